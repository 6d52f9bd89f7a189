"""Readers of CIFTI-2 files: the grayordinates that the header describes, their surfaces, and files of labels."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import float_dtype
from mgclust.data.location import Location, is_path
from mgclust.data.readers.gifti import (
    NO_LABEL,
    Mesh,
    read_mesh,
    read_vertex_labels,
    structure_name,
    whole_numbers,
    without_unlabelled,
)
from mgclust.data.readers.nifti import CIFTI_EXTENSION, cifti_axes, read_header
from mgclust.outside.inflation import check_holds
from mgclust.outside.quoting import shortened
from mgclust.outside.rooted_files import RootedFile

__all__ = [
    "CORTICES",
    "BrainStructure",
    "Surfaces",
    "brain_models",
    "brain_structures",
    "grayordinate",
    "is_dlabel",
    "labels_on_rows",
    "meshes_of",
    "read_grayordinate_labels",
]

Surface = str | os.PathLike[str] | RootedFile | Mesh
Surfaces = Surface | Sequence[Surface] | None

# Structure -> name of the structure in GIFTI files, and label of the hemisphere in BIDS names.
CORTICES = {"cortex_left": ("CortexLeft", "L"), "cortex_right": ("CortexRight", "R")}
_DLABEL = ".dlabel.nii"
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
        Number of vertices of the whole surface, of which the file may contain only some; 0 if the grayordinates are
        voxels.
    places : ndarray of shape (n,) or (n, 3), int64
        Number of the vertex, or indices (i, j, k) of the voxel, of each grayordinate.
    """

    name: str
    grayordinates: np.ndarray
    n_vertices: int
    places: np.ndarray


def brain_models(location: Location) -> Any:
    """Return nibabel's BrainModelAxis, which describes each grayordinate."""
    return cifti_axes(read_header(location))[1]


def grayordinate(models: Any, index: int) -> tuple[str, str, tuple[int, ...]]:
    """Return a grayordinate's structure, its kind ("vertex" or "voxel"), and its vertex number or voxel (i, j, k)."""
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

    A surface belongs to the structure that its metadata name (``AnatomicalStructurePrimary``). Surfaces that name no
    structure belong to the remaining structures, in the order of the CIFTI file. A surface is ignored if it names a
    structure that the CIFTI file does not have.

    Parameters
    ----------
    structures : sequence of BrainStructure
        Structures of the CIFTI file.
    surfaces : path, Mesh, sequence of paths or Meshes, or None
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
        A structure has no surface or two surfaces, a surface is left over, or a surface and its structure differ in
        their number of vertices.
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


def labels_on_rows(labels: Location, series: Location) -> np.ndarray:
    """Read labels of the vertices of one structure, and assign them to grayordinates.

    Parameters
    ----------
    labels : Location
        A .label.gii file. If the file names no structure, its number of vertices must fit exactly one structure.
    series : Location
        A CIFTI file.

    Returns
    -------
    ndarray of shape (n_grayordinates,), int64
        Label of each grayordinate; -1 if its vertex has no label, or if it belongs to another structure.

    Raises
    ------
    InputError
        The CIFTI file does not have the structure of the labels, or the structure has another number of vertices.
    """
    given = read_vertex_labels(labels)
    with series.reading():
        models = brain_models(series)
        structures = [each for each in brain_structures(models, series.name) if each.n_vertices]
    size = len(given.labels)
    fitting = [
        each for each in structures if each.n_vertices == size and (not given.structure or each.name == given.structure)
    ]
    if len(fitting) != 1:
        of = (
            f" of {shortened(given.structure, 40)}"
            if given.structure
            else " of a structure that the file does not name"
        )
        sizes = _listed({each.name: each.n_vertices for each in structures})
        raise InputError(
            f"labels={labels.name!r} has {size:,} vertices{of}, but {series.name} has vertices of {sizes}; give labels "
            "of one of these structures."
        )
    everywhere = np.full(len(models), -1, dtype=np.int64)
    everywhere[fitting[0].grayordinates] = given.labels[fitting[0].places]
    return everywhere


def is_dlabel(location: Location) -> bool:
    """Return whether the name has the suffix of a CIFTI file of labels."""
    return location.path.lower().endswith(_DLABEL)


def read_grayordinate_labels(location: Location) -> tuple[Any, np.ndarray]:
    """Read one label per grayordinate.

    Parameters
    ----------
    location : Location
        A .dlabel.nii file with one map.

    Returns
    -------
    models : BrainModelAxis
        Description of each grayordinate.
    labels : ndarray of shape (n_grayordinates,), int64
        Key of each grayordinate. A grayordinate has no label (-1) if its key is 0 or negative, or if the file calls the
        key ``???``.

    Raises
    ------
    InputError
        The file is not a whole CIFTI file, or it does not hold one map of labels of grayordinates.
    """
    with location.reading():
        header = read_header(location)
        if CIFTI_EXTENSION not in header.extensions.get_codes():
            raise InputError(f"labels={location.name!r} is not a CIFTI file; give a .dlabel.nii file, or name it .nii.")
        axes = cifti_axes(header)
        kinds = [type(axis).__name__.removesuffix("Axis") for axis in axes]
        if kinds != ["Label", "BrainModel"] or len(axes[0]) != 1:
            raise InputError(
                f"labels={location.name!r} is a CIFTI file of {len(axes[0])} maps of {' by '.join(kinds)}; give a "
                ".dlabel.nii file with one map of labels."
            )
        size = len(axes[1])
        if tuple(header.get_data_shape())[4:] != (1, size):
            raise InputError(f"labels={location.name!r} does not hold {size:,} labels; write it again.")
        dtype, offset = header.get_data_dtype(), int(header.get_data_offset())
        float_dtype(dtype, location.name)  # rejects colours and complex numbers
        wanted = size * dtype.itemsize
        with location.open() as file:
            file.seek(offset)
            data = file.read(wanted)
        check_holds(location.name, offset + wanted, offset + len(data))
        slope, inter = header.get_slope_inter()
        values = np.frombuffer(data, dtype=dtype)
        if slope is not None:
            values = values * float(slope) + float(inter)
        table = axes[0].label[0]
        keys = whole_numbers(location, values, "labels")
        return axes[1], without_unlabelled(keys, [key for key, (name, _) in table.items() if name == NO_LABEL])


def _read(surfaces: Surfaces) -> list[Mesh]:
    if surfaces is None:
        return []
    given: Any = [surfaces] if is_path(surfaces) or isinstance(surfaces, Mesh) else surfaces
    if not isinstance(given, (list, tuple)) or not all(isinstance(each, Mesh) or is_path(each) for each in given):
        raise InputError(f"surfaces is a {type(surfaces).__name__}; give a list of paths of .surf.gii files.")
    return [each if isinstance(each, Mesh) else read_mesh(Location.of(each)) for each in given]


def _listed(sizes: dict[str, int]) -> str:
    return " and ".join(f"{structure} ({size:,} vertices)" for structure, size in sizes.items()) or "no structure"
