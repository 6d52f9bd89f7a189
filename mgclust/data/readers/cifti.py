"""CIFTI-2: the description of the grayordinates in the header, and the surfaces on which their vertices lie."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.location import Location, is_path
from mgclust.data.readers.gifti import Mesh, read_mesh, structure_name
from mgclust.data.readers.nifti import cifti_axes, read_header
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile

__all__ = ["CORTICES", "BrainStructure", "Surfaces", "brain_models", "brain_structures", "grayordinate", "meshes_of"]

Surface = str | os.PathLike[str] | RootedFile | Mesh
Surfaces = Surface | Sequence[Surface] | None

# Structure -> its name in GIFTI files, and the hemisphere in BIDS names.
CORTICES = {"cortex_left": ("CortexLeft", "L"), "cortex_right": ("CortexRight", "R")}
_REMEDY = "give surfaces=[left, right]: the .surf.gii file of each, such as sub-01_hemi-L_midthickness.surf.gii"


class BrainStructure(NamedTuple):
    """The grayordinates of one structure, which are either vertices or voxels.

    Attributes
    ----------
    name : str
        Name of the structure, such as ``cortex_left``.
    grayordinates : ndarray of shape (n,), int64
        Numbers of the grayordinates.
    n_vertices : int
        Number of vertices of the surface, of which the file may have some; 0 if the grayordinates are voxels.
    places : ndarray of shape (n,) or (n, 3), int64
        The vertex, or the voxel (i, j, k), of each grayordinate.
    """

    name: str
    grayordinates: np.ndarray
    n_vertices: int
    places: np.ndarray


def brain_models(location: Location) -> Any:
    """Return the meaning of each grayordinate: nibabel's BrainModelAxis."""
    return cifti_axes(read_header(location))[1]


def grayordinate(models: Any, index: int) -> tuple[str, str, tuple[int, ...]]:
    """Return the structure of a grayordinate, "vertex" or "voxel", and the number of the vertex or (i, j, k)."""
    element, where, structure = models[index]
    name = structure.removeprefix("CIFTI_STRUCTURE_").lower()
    if element == "CIFTI_MODEL_TYPE_SURFACE":
        return name, "vertex", (int(where),)
    return name, "voxel", tuple(int(value) for value in where)


def brain_structures(models: Any, name: str) -> list[BrainStructure]:
    """Return the structures of a CIFTI file, in the order of their first grayordinates.

    Parameters
    ----------
    models : BrainModelAxis
        The return value of `brain_models`.
    name : str
        Name of the file, for messages.

    Raises
    ------
    InputError
        Two grayordinates are the same vertex or voxel, or a vertex or voxel lies outside its surface or grid.
    """
    names, surface = np.asarray(models.name), np.asarray(models.surface_mask)
    kinds = dict.fromkeys(zip(names.tolist(), surface.tolist(), strict=True))
    structures = []
    for structure, vertices in kinds:
        own = np.flatnonzero((names == structure) & (surface == vertices))
        places = np.asarray(models.vertex if vertices else models.voxel)[own].astype(np.int64)
        size = int(models.nvertices[structure]) if vertices else 0
        limits = [size] if vertices else [int(each) for each in models.volume_shape]
        inside = (places.reshape(len(own), -1) >= 0) & (places.reshape(len(own), -1) < limits)
        if not inside.all() or len(np.unique(places, axis=0)) < len(own):
            what = "vertices" if vertices else "voxels"
            raise InputError(
                f"{name}: {what} of {structure_name(structure)} occur twice or lie outside their "
                f"{'surface' if vertices else 'grid'}; write it again."
            )
        structures.append(BrainStructure(structure_name(structure), own, size, places))
    return structures


def meshes_of(structures: Sequence[BrainStructure], surfaces: Surfaces, name: str) -> dict[str, Mesh]:
    """Find the mesh of each structure that has vertices.

    A surface belongs to the structure that its metadata name (``AnatomicalStructurePrimary``). Surfaces that name none
    belong to the remaining structures, in the order of the file. A surface of a structure that the file does not have
    is ignored.

    Parameters
    ----------
    structures : sequence of BrainStructure
        Structures of the CIFTI file.
    surfaces : path, Mesh, sequence of them, or None
        The surfaces: .surf.gii files, or meshes that `read_mesh` has returned.
    name : str
        Name of the CIFTI file, for messages.

    Returns
    -------
    dict of str to Mesh
        The mesh of each structure with vertices.

    Raises
    ------
    InputError
        A structure has no surface or two surfaces, or a surface has another number of vertices.
    """
    wanted = {each.name: each.n_vertices for each in structures if each.n_vertices}
    listed = f"{name} has vertices of {_listed(wanted)}"
    found: dict[str, Mesh] = {}
    unnamed = []
    for mesh in _read(surfaces):
        if not mesh.structure:
            unnamed.append(mesh)
        elif mesh.structure in found:
            raise InputError(
                f"surfaces: {found[mesh.structure].name} and {mesh.name} are both of {shortened(mesh.structure, 40)}; "
                "give one surface for each structure."
            )
        else:
            found[mesh.structure] = mesh
    left = [structure for structure in wanted if structure not in found]
    if len(unnamed) > len(left):
        raise InputError(
            f"surfaces: there is no structure for {unnamed[len(left)].name}, because {listed}; leave it out."
        )
    found |= dict(zip(left, unnamed, strict=False))
    missing = [structure for structure in wanted if structure not in found]
    if missing:
        given = "surfaces=None" if surfaces is None else f"surfaces has none for {' and '.join(missing)}"
        raise InputError(f"{given}, but {listed}; {_REMEDY}.")
    for structure, size in wanted.items():
        mesh = found[structure]
        if len(mesh.coordinates) != size:
            raise InputError(
                f"surfaces: {mesh.name} has {len(mesh.coordinates):,} vertices, but {structure} of {name} has "
                f"{size:,}; give the surface on which the series was sampled."
            )
    return {structure: found[structure] for structure in wanted}


def _read(surfaces: Surfaces) -> list[Mesh]:
    if surfaces is None:
        return []
    given: Any = [surfaces] if is_path(surfaces) or isinstance(surfaces, Mesh) else surfaces
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, Mesh) or is_path(each) for each in given):
        raise InputError(f"surfaces is a {type(surfaces).__name__}; give a list of paths of .surf.gii files.")
    return [each if isinstance(each, Mesh) else read_mesh(Location.of(each)) for each in given]


def _listed(sizes: dict[str, int]) -> str:
    return " and ".join(f"{structure} ({size:,} vertices)" for structure, size in sizes.items()) or "no structure"
