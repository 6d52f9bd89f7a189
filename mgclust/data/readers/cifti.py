"""Readers of CIFTI-2 files: the grayordinates that the header describes, their surfaces, and files of labels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import float_dtype
from mgclust.data.location import Location, listed_paths
from mgclust.data.readers.gifti import (
    NO_LABEL,
    Mesh,
    label_name,
    read_mesh,
    read_vertex_labels,
    structure_name,
    whole_numbers,
    without_unlabelled,
)
from mgclust.data.readers.nifti import CIFTI_EXTENSION, cifti_axes, read_header
from mgclust.outside.inflation import check_holds
from mgclust.outside.quoting import shortened

__all__ = [
    "CORTICES",
    "BrainStructure",
    "brain_models",
    "brain_structures",
    "grayordinate",
    "is_dlabel",
    "labels_on_rows",
    "matching_grayordinates",
    "read_grayordinate_labels",
    "read_meshes",
    "surface_locations",
]

# Structure -> name of the structure in GIFTI files, and label of the hemisphere in BIDS names.
CORTICES = {"cortex_left": ("CortexLeft", "L"), "cortex_right": ("CortexRight", "R")}
_DLABEL = ".dlabel.nii"
_REMEDY = "give surfaces: the .surf.gii file of each, such as sub-01_hemi-L_midthickness.surf.gii"
# Parts of the names of surfaces whose metadata name no structure.
_SIDES = dict.fromkeys(("hemi-L", "L", "lh", "left"), "cortex_left") | dict.fromkeys(
    ("hemi-R", "R", "rh", "right"), "cortex_right"
)


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


def surface_locations(surfaces: Any) -> tuple[Location, ...]:
    """Return the files of the option `surfaces`: a path, a sequence of paths, or a str of paths separated by commas."""
    paths = listed_paths(surfaces)
    if not paths:
        raise InputError(
            f"surfaces is {'empty' if paths == [] else f'a {type(surfaces).__name__}'}; give the paths of .surf.gii "
            "files, one for each hemisphere."
        )
    return tuple(map(Location.of, paths))


def read_meshes(surfaces: Sequence[Location], series: Location) -> dict[str, Mesh]:
    """Read the mesh of each structure of a CIFTI file that has vertices.

    A surface belongs to the structure that its metadata name (``AnatomicalStructurePrimary``). If they name none, its
    hemisphere is taken from the name of the file (``hemi-L``, ``.L.``, ``lh`` or ``left``). Other surfaces belong to
    the remaining structures, in the order of the CIFTI file. A surface is ignored if it names a structure that the
    CIFTI file does not have.

    Parameters
    ----------
    surfaces : sequence of Location
        The surfaces: .surf.gii files. Empty if none were given.
    series : Location
        The CIFTI file.

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
    name = series.name
    with series.reading():
        structures = brain_structures(brain_models(series), name)
    wanted = {each.name: each.n_vertices for each in structures if each.n_vertices}
    listed = f"{name} has vertices of {_listed(wanted)}"
    found: dict[str, Mesh] = {}
    unnamed = []
    for mesh in map(read_mesh, surfaces):
        structure = mesh.structure or _structure_in_name(mesh.name)
        if not structure:
            unnamed.append(mesh)
        elif structure in found:
            raise InputError(
                f"surfaces: {found[structure].name} and {mesh.name} are both of {shortened(structure, 40)}; "
                "give one surface for each structure."
            )
        else:
            found[structure] = mesh
    left = [structure for structure in wanted if structure not in found]
    if len(unnamed) > len(left):
        raise InputError(
            f"surfaces: there is no structure for {unnamed[len(left)].name}, because {listed}; leave it out."
        )
    found |= dict(zip(left, unnamed, strict=False))
    missing = [structure for structure in wanted if structure not in found]
    if missing:
        given = f"surfaces has none for {' and '.join(missing)}" if surfaces else "surfaces=None"
        raise InputError(f"{given}, but {listed}; {_REMEDY}.")
    for structure, size in wanted.items():
        mesh = found[structure]
        if len(mesh.coordinates) != size:
            raise InputError(
                f"surfaces: {mesh.name} has {len(mesh.coordinates):,} vertices, but {structure} of {name} has "
                f"{size:,}; give the surface on which the series was sampled."
            )
    return {structure: found[structure] for structure in wanted}


def _structure_in_name(path: str) -> str:
    """Return the cortex that the name of a surface states, or an empty string."""
    parts = re.split(r"[._]", re.split(r"[/\\]", path)[-1])
    return next((_SIDES[part] for part in parts if part in _SIDES), "")


def matching_grayordinates(own: Any, name: str, others: Any, others_name: str) -> np.ndarray:
    """Find the grayordinates of one file in another file.

    Two grayordinates match if they are the same vertex or voxel of the same structure.

    Parameters
    ----------
    own, others : BrainModelAxis
        The return values of `brain_models`.
    name, others_name : str
        Names of the files, for messages.

    Returns
    -------
    ndarray of shape (len(own),), int64
        For each grayordinate of `own`, its number in `others`; -1 if the other file does not have it.

    Raises
    ------
    InputError
        A surface has different numbers of vertices in the files, or the voxels are on different grids.
    """
    theirs = {(each.name, each.n_vertices > 0): each for each in brain_structures(others, others_name)}
    found = np.full(len(own), -1, dtype=np.int64)
    for each in brain_structures(own, name):
        other = theirs.get((each.name, each.n_vertices > 0))
        if other is None:
            continue
        if each.n_vertices != other.n_vertices:
            raise InputError(
                f"{others_name} has {other.n_vertices:,} vertices of {each.name}, but {name} has {each.n_vertices:,}; "
                "resample one of them to the other's surface."
            )
        if not each.n_vertices and not _same_voxels(own, others):
            raise InputError(
                f"the voxels of {others_name} are on another grid than the voxels of {name}; resample one of them to "
                "the other's grid with nearest neighbour."
            )
        sizes = (each.n_vertices,) if each.n_vertices else tuple(int(size) for size in own.volume_shape)
        places, others_places = (
            np.ravel_multi_index(tuple(part.places.reshape(len(part.places), -1).T), sizes) for part in (each, other)
        )
        order = np.argsort(others_places)
        at = np.minimum(np.searchsorted(others_places, places, sorter=order), len(order) - 1)
        same = others_places[order[at]] == places
        found[each.grayordinates] = np.where(same, other.grayordinates[order[at]], -1)
    return found


def _same_voxels(own: Any, others: Any) -> bool:
    """Return whether the voxels of both files are on one grid."""
    if tuple(own.volume_shape) != tuple(others.volume_shape):
        return False
    return bool(np.allclose(own.affine, others.affine, rtol=0, atol=1e-3))


def labels_on_rows(labels: Location, series: Location, what: str = "labels") -> tuple[str, np.ndarray, dict[int, str]]:
    """Read labels of the vertices of one structure, and assign them to grayordinates.

    Parameters
    ----------
    labels : Location
        A .label.gii file. If the file names no structure, its number of vertices must fit exactly one structure.
    series : Location
        A CIFTI file.
    what : str
        Name of the option that names the labels, for messages.

    Returns
    -------
    structure : str
        The structure of the labels.
    labels : ndarray of shape (n_grayordinates,), int64
        Label of each grayordinate; -1 if its vertex has no label, or if it belongs to another structure.
    names : dict of int to str
        Name of each label in the table of labels.

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
            f"{what}={labels.name!r} has {size:,} vertices{of}, but {series.name} has vertices of {sizes}; give labels "
            "of one of these structures."
        )
    everywhere = np.full(len(models), -1, dtype=np.int64)
    everywhere[fitting[0].grayordinates] = given.labels[fitting[0].places]
    return fitting[0].name, everywhere, given.names


def is_dlabel(location: Location) -> bool:
    """Return whether the name has the suffix of a CIFTI file of labels."""
    return location.path.lower().endswith(_DLABEL)


def read_grayordinate_labels(location: Location, what: str = "labels") -> tuple[Any, np.ndarray, dict[int, str]]:
    """Read one label per grayordinate.

    Parameters
    ----------
    location : Location
        A .dlabel.nii file with one map.
    what : str
        Name of the option that names the file, for messages.

    Returns
    -------
    models : BrainModelAxis
        Description of each grayordinate.
    labels : ndarray of shape (n_grayordinates,), int64
        Key of each grayordinate. A grayordinate has no label (-1) if its key is 0 or negative, or if the file calls the
        key ``???``.
    names : dict of int to str
        Name of each key in the table of labels.

    Raises
    ------
    InputError
        The file is not a whole CIFTI file, or it does not hold one map of labels of grayordinates.
    """
    with location.reading():
        header = read_header(location)
        if CIFTI_EXTENSION not in header.extensions.get_codes():
            raise InputError(f"{what}={location.name!r} is not a CIFTI file; give a .dlabel.nii file, or name it .nii.")
        axes = cifti_axes(header)
        kinds = [type(axis).__name__.removesuffix("Axis") for axis in axes]
        if kinds != ["Label", "BrainModel"] or len(axes[0]) != 1:
            raise InputError(
                f"{what}={location.name!r} is a CIFTI file of {len(axes[0])} maps of {' by '.join(kinds)}; give a "
                ".dlabel.nii file with one map of labels."
            )
        size = len(axes[1])
        if tuple(header.get_data_shape())[4:] != (1, size):
            raise InputError(f"{what}={location.name!r} does not hold {size:,} labels; write it again.")
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
        names = {int(key): label_name(name) for key, (name, _) in axes[0].label[0].items()}
        keys = whole_numbers(location, values, "labels")
        return axes[1], without_unlabelled(keys, [key for key, name in names.items() if name == NO_LABEL]), names


def _listed(sizes: dict[str, int]) -> str:
    return " and ".join(f"{structure} ({size:,} vertices)" for structure, size in sizes.items()) or "no structure"
