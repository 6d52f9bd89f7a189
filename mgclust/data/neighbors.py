"""Graphs of neighbours: two voxels are neighbours if they touch, two vertices if an edge of a mesh joins them.

A graph lists the neighbours of each row in the form of a CSR matrix without values. Every graph is symmetric, and no
row is its own neighbour.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.base import Dataset
from mgclust.data.readers.cifti import BrainStructure, brain_models, brain_structures
from mgclust.data.readers.gifti import Mesh
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.outside.inflation import check_memory

__all__ = [
    "CONNECTIVITIES",
    "RowNeighbors",
    "checked_coordinates",
    "checked_neighbors",
    "coordinates_of",
    "from_pairs",
    "neighbors_of",
    "volume_neighbors",
]

# Number of neighbours of a voxel -> largest number of axes along which a neighbour's index differs.
CONNECTIVITIES = {6: 1, 18: 2, 26: 3}
_ROWS_AT_ONCE = 2**14
_GRID_BYTES, _ROW_BYTES = 5, 40  # bytes of memory per voxel of the grid, and per row without its list of neighbours
_PAIR_BYTES = 64  # bytes of memory per pair of rows while pairs are sorted


class RowNeighbors(NamedTuple):
    """Neighbours of each row: the neighbours of row i are ``columns[starts[i] : starts[i + 1]]``.

    Attributes
    ----------
    starts : ndarray of shape (n + 1,), int64
        Position in `columns` of the first neighbour of each row, and the length of `columns`.
    columns : ndarray of shape (m,), int32
        Neighbours of the rows, ascending for each row. A pair of neighbours is listed twice, once for each row.
    """

    starts: np.ndarray
    columns: np.ndarray


def volume_neighbors(chosen: Any, shape: Sequence[int], connectivity: int = 26) -> RowNeighbors:
    """Find the neighbours of the voxels of a mask.

    For a mask of N voxels on a grid of G voxels, this function needs 5 G + (40 + 4 `connectivity`) N bytes of memory,
    including the result.

    Parameters
    ----------
    chosen : array of shape (grid size,) or of the grid's shape, bool
        Mask of the voxels, in C order of the grid. Row i is the i-th voxel of the mask in this order.
    shape : sequence of 3 int
        Number of voxels of the grid along i, j and k.
    connectivity : {6, 18, 26}
        Voxels touch if they share a face (6), a face or an edge (18), or a face, an edge or a corner (26).

    Returns
    -------
    RowNeighbors
        The graph of the voxels. Voxels without neighbours have empty lists.

    Raises
    ------
    InputError
        The mask does not have the size of the grid, or `connectivity` is not 6, 18 or 26.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust.data.neighbors import volume_neighbors
    >>> mask = np.array([[[True, True, False], [False, True, True]]])
    >>> graph = volume_neighbors(mask, mask.shape, connectivity=6)
    >>> [graph.columns[a:b].tolist() for a, b in zip(graph.starts, graph.starts[1:])]
    [[1], [0, 2], [1, 3], [2]]
    """
    reach = _axes_that_differ(connectivity)
    sizes = tuple(int(size) for size in shape)
    if len(sizes) != 3 or min(sizes) < 1:
        raise InputError(f"shape={tuple(shape)} should be 3 numbers of voxels, each at least 1.")
    mask = np.asarray(chosen)
    if mask.dtype != bool or mask.shape not in (sizes, (math.prod(sizes),)):
        raise InputError(
            f"chosen has dtype {mask.dtype} and shape {mask.shape}; give a bool array of shape {sizes}, or of "
            f"{math.prod(sizes):,} voxels in C order."
        )
    n = int(np.count_nonzero(mask))
    # The grid gets a border of voxels outside the mask. So a step to a neighbour is the same shift for all voxels.
    padded = tuple(size + 2 for size in sizes)
    check_memory(
        f"the graph of {n:,} voxels with {connectivity} neighbours",
        _GRID_BYTES * math.prod(padded) + (_ROW_BYTES + 4 * connectivity) * n,
        "give a mask of fewer voxels, or a smaller connectivity",
    )
    present = np.zeros(padded, dtype=bool)
    present[1:-1, 1:-1, 1:-1] = mask.reshape(sizes)
    present = present.reshape(-1)
    positions = np.flatnonzero(present)
    # Ascending shifts give ascending neighbours, because positions and rows have the same order.
    steps = np.array([step for step in product((-1, 0, 1), repeat=3) if 0 < np.count_nonzero(step) <= reach])
    shifts = steps @ [padded[1] * padded[2], padded[2], 1]
    starts = np.zeros(n + 1, dtype=np.int64)
    for shift in shifts:
        starts[1:] += present[positions + shift]
    np.cumsum(starts, out=starts)
    columns = np.empty(starts[-1], dtype=np.int32)
    row_at = np.full(len(present), -1, dtype=np.int32)
    row_at[positions] = np.arange(n, dtype=np.int32)
    for start in range(0, n, _ROWS_AT_ONCE):
        stop = min(start + _ROWS_AT_ONCE, n)
        near = row_at[positions[start:stop, None] + shifts]
        columns[starts[start] : starts[stop]] = near[near >= 0]
    return RowNeighbors(starts, columns)


def neighbors_of(dataset: Dataset, connectivity: int = 26) -> RowNeighbors:
    """Find the neighbours of the rows of a BOLD series.

    - NIfTI: voxels that touch are neighbours.
    - CIFTI: two vertices are neighbours if an edge of the mesh joins them. Two voxels are neighbours if they touch and
      belong to the same structure. Grayordinates of different structures are never neighbours, so each parcel lies in
      one structure. By default, the smoothing of Connectome Workbench also treats structures separately.

    Parameters
    ----------
    dataset : Dataset
        The return value of `open_dataset` for a BOLD series. A CIFTI file must be opened with its `surfaces`.
    connectivity : {6, 18, 26}
        Voxels touch if they share a face (6), a face or an edge (18), or a face, an edge or a corner (26).

    Returns
    -------
    RowNeighbors
        The graph of the rows. Constant voxels are not rows, so they are not in the graph.

    Raises
    ------
    InputError
        The dataset is not a BOLD series, or it is a CIFTI file that was opened without its surfaces.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import open_dataset
    >>> from mgclust.data import samples
    >>> from mgclust.data.neighbors import neighbors_of
    >>> localizer = open_dataset(samples.path("localizer"), mask=samples.mask_path())
    >>> graph = neighbors_of(localizer)
    >>> localizer.shape[0], int(np.diff(graph.starts).max())  # two slices
    (1983, 17)
    """
    _axes_that_differ(connectivity)
    volumes = _volumes(dataset)
    if volumes.kind == "nifti":
        return volume_neighbors(volumes.chosen, volumes.runs[0].grid.shape, connectivity)
    meshes = volumes.meshes()
    _, structures = _structures(volumes)
    rows = _row_numbers(volumes.chosen)
    pairs = []
    for structure in structures:
        own = rows[structure.grayordinates]
        if structure.n_vertices:
            pairs += _mesh_pairs(structure, own, meshes[structure.name])
        elif (own >= 0).any():
            pairs.append(_voxel_pairs(structure.places[own >= 0], own[own >= 0], connectivity))
    first, second = (np.concatenate([pair[side] for pair in pairs] or [rows[:0]]) for side in (0, 1))
    return from_pairs(first, second, volumes.shape[0])


def coordinates_of(dataset: Dataset) -> np.ndarray:
    """Return the coordinates of the rows of a BOLD series.

    Parameters
    ----------
    dataset : Dataset
        The return value of `open_dataset` for a BOLD series. A CIFTI file must be opened with its `surfaces`.

    Returns
    -------
    ndarray of shape (n, 3), float64
        Coordinates x, y and z in mm. A voxel has the coordinates of its centre, by the affine of the file; a vertex has
        its coordinates in the mesh.

    Raises
    ------
    InputError
        The dataset is not a BOLD series, or it is a CIFTI file that was opened without its surfaces.

    Examples
    --------
    >>> from mgclust import open_dataset
    >>> from mgclust.data import samples
    >>> from mgclust.data.neighbors import coordinates_of
    >>> coordinates_of(open_dataset(samples.path("localizer"), mask=samples.mask_path())).shape
    (1983, 3)
    """
    volumes = _volumes(dataset)
    if volumes.kind == "nifti":
        return _millimetres(volumes.voxels, np.array(volumes.runs[0].grid.affine))
    meshes = volumes.meshes()
    models, structures = _structures(volumes)
    everywhere = np.full((volumes.runs[0].grid.size, 3), np.nan)
    for structure in structures:
        if structure.n_vertices:
            where = meshes[structure.name].coordinates[structure.places]
        else:
            where = _millimetres(structure.places, np.asarray(models.affine))
        everywhere[structure.grayordinates] = where
    return everywhere[volumes.chosen]


def checked_neighbors(neighbors: Any, n: int) -> RowNeighbors:
    """Check a given graph of rows, and convert it to lists of neighbours.

    An edge in one direction makes both rows neighbours of each other. Self-loops and repeated edges have no effect.

    Parameters
    ----------
    neighbors : sparse matrix of SciPy, array of shape (m, 2), or RowNeighbors
        A sparse matrix of shape (n, n), in which each entry other than 0 joins two rows; or an array with one edge per
        line, as the numbers of two rows, from 0 to n - 1; or a graph that a function of this module returned.
    n : int
        Number of rows.

    Returns
    -------
    RowNeighbors
        The graph, symmetric and without self-loops.

    Raises
    ------
    InputError
        The graph does not have n rows, or it does not have one of these forms.

    Examples
    --------
    >>> from mgclust.data.neighbors import checked_neighbors
    >>> graph = checked_neighbors([[1, 0], [1, 2], [2, 2]], 4)
    >>> graph.starts.tolist(), graph.columns.tolist()
    ([0, 1, 3, 4, 4], [1, 0, 2, 1])
    """
    from scipy import sparse

    if isinstance(neighbors, RowNeighbors):
        first, second = _listed_pairs(neighbors, n)
    elif sparse.issparse(neighbors):
        first, second = _matrix_pairs(neighbors, n)
    else:
        first, second = _edge_pairs(neighbors, n)
    return from_pairs(first, second, n)


def checked_coordinates(coordinates: Any, n: int) -> np.ndarray:
    """Check given coordinates of rows, and convert them to float64.

    Parameters
    ----------
    coordinates : array of shape (n, 3)
        Coordinates x, y and z of each row, in mm.
    n : int
        Number of rows.

    Returns
    -------
    ndarray of shape (n, 3), float64, in C order

    Raises
    ------
    InputError
        The coordinates are not n times 3 finite real numbers.

    Examples
    --------
    >>> from mgclust.data.neighbors import checked_coordinates
    >>> checked_coordinates([[0, 0, 0], [3, 0, 0]], 2).dtype
    dtype('float64')
    """
    try:
        places = np.asarray(coordinates)
    except ValueError:  # a ragged list
        places = np.empty(0, dtype=object)
    if places.shape != (n, 3) or places.dtype.kind not in "iuf":
        raise InputError(
            f"coordinates has shape {places.shape} and dtype {places.dtype}; give an array of real numbers of shape "
            f"{(n, 3)}: x, y and z of each row, in mm."
        )
    places = places.astype(np.float64, order="C")
    wrong = ~np.isfinite(places).all(axis=1)
    if wrong.any():
        raise InputError(
            f"coordinates holds NaN or infinite values in {int(wrong.sum())} of {n:,} rows, the first is row "
            f"{int(wrong.argmax())} (counted from 0); give finite coordinates."
        )
    return places


def from_pairs(first: np.ndarray, second: np.ndarray, n: int) -> RowNeighbors:
    """Make a graph from pairs of rows.

    Parameters
    ----------
    first, second : ndarray of shape (m,), int
        The two rows of each pair. Pairs may be repeated, also in the other direction, and may be self-loops.
    n : int
        Number of rows, below 2**31.
    """
    check_memory(f"a graph of {len(first):,} edges", _PAIR_BYTES * len(first), "give a graph with fewer edges")
    joined = first != second
    # Each direction of an edge is one number, row * n + column. Ascending numbers give the lists in their order.
    directions = np.empty((2, int(np.count_nonzero(joined))), dtype=np.int64)
    for own, (row, column) in zip(directions, ((first, second), (second, first)), strict=True):
        own[:] = row[joined]
        own *= n
        own += column[joined].astype(np.int64)
    keys = directions.reshape(-1)
    keys.sort()
    keys = keys[np.diff(keys, prepend=-1) > 0]
    counts = np.bincount(keys // n, minlength=n) if len(keys) else np.zeros(n, dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
    return RowNeighbors(starts, (keys % max(n, 1)).astype(np.int32))


def _volumes(dataset: Dataset) -> VolumeDataset:
    if not isinstance(dataset, VolumeDataset):
        raise InputError(
            f"{dataset.name} is not a BOLD series, so its rows have no places; give a .nii, .nii.gz or .dtseries.nii "
            "file, or a graph of the rows."
        )
    return dataset


def _structures(volumes: VolumeDataset) -> tuple[Any, list[BrainStructure]]:
    """Return the grayordinates of a CIFTI file (nibabel's BrainModelAxis), and its structures."""
    location = volumes.runs[0].location
    with location.reading():
        models = brain_models(location)
        return models, brain_structures(models, location.name)


def _row_numbers(chosen: np.ndarray) -> np.ndarray:
    """Return the row of each grayordinate, or -1 if the grayordinate is not a row."""
    rows = np.full(len(chosen), -1, dtype=np.int64)
    rows[chosen] = np.arange(np.count_nonzero(chosen))
    return rows


def _mesh_pairs(structure: BrainStructure, rows: np.ndarray, mesh: Mesh) -> list[tuple[np.ndarray, np.ndarray]]:
    """Return the pairs of rows that an edge of the mesh joins; vertices that are not rows are in no pair."""
    row_at = np.full(structure.n_vertices, -1, dtype=np.int64)
    row_at[structure.places] = rows
    corners = row_at[mesh.triangles]
    pairs = []
    for one, other in ((0, 1), (1, 2), (2, 0)):
        there = (corners[:, one] >= 0) & (corners[:, other] >= 0)
        pairs.append((corners[there, one], corners[there, other]))
    return pairs


def _voxel_pairs(voxels: np.ndarray, rows: np.ndarray, connectivity: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the pairs of rows whose voxels touch, for voxels in any order."""
    low = voxels.min(axis=0)
    shape = tuple(int(size) for size in voxels.max(axis=0) - low + 1)
    check_memory("a structure of the CIFTI file", _GRID_BYTES * math.prod(shape), "give a file with a smaller grid")
    mask = np.zeros(shape, dtype=bool)
    places = np.ravel_multi_index(tuple((voxels - low).T), shape)
    mask.reshape(-1)[places] = True
    graph = volume_neighbors(mask, shape, connectivity)
    in_order = rows[np.argsort(places)]
    return np.repeat(in_order, np.diff(graph.starts)), in_order[graph.columns]


def _millimetres(voxels: np.ndarray, affine: np.ndarray) -> np.ndarray:
    return voxels @ affine[:3, :3].T + affine[:3, 3]


def _axes_that_differ(connectivity: int) -> int:
    reach = CONNECTIVITIES.get(connectivity) if isinstance(connectivity, (int, np.integer)) else None
    if reach is None:
        raise InputError(f"connectivity={connectivity!r} should be 6, 18 or 26: the number of neighbours of a voxel.")
    return reach


def _listed_pairs(graph: RowNeighbors, n: int) -> tuple[np.ndarray, np.ndarray]:
    starts, columns = np.asarray(graph.starts), np.asarray(graph.columns)
    if starts.shape != (n + 1,) or columns.ndim != 1 or starts.dtype.kind not in "iu" or columns.dtype.kind not in "iu":
        raise InputError(
            f"neighbors lists the neighbours of {max(len(starts) - 1, 0):,} rows; give {n:,} lists of int."
        )
    if starts[0] != 0 or starts[-1] != len(columns) or (np.diff(starts) < 0).any():
        raise InputError("neighbors: starts should rise from 0 to the length of columns; make the graph again.")
    _check_rows(columns, n)
    return np.repeat(np.arange(n), np.diff(starts)), columns


def _matrix_pairs(graph: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    if graph.shape != (n, n):
        raise InputError(f"neighbors has shape {graph.shape}; give a sparse matrix of shape {(n, n)}.")
    entries = graph.tocoo()
    there = entries.data != 0
    if np.isnan(entries.data).any():
        raise InputError("neighbors holds NaN; give 0 or no entry for rows that are not neighbours.")
    first, second = entries.row[there], entries.col[there]
    _check_rows(first, n)
    _check_rows(second, n)
    return first, second


def _edge_pairs(graph: Any, n: int) -> tuple[np.ndarray, np.ndarray]:
    try:
        edges = np.asarray(graph)
    except ValueError:  # a ragged list
        edges = np.empty(0, dtype=object)
    if edges.shape in ((0,), (0, 2)) and edges.dtype != object:
        edges = np.empty((0, 2), dtype=np.int64)
    if edges.ndim != 2 or edges.shape[1] != 2 or edges.dtype.kind not in "iu":
        raise InputError(
            f"neighbors has shape {edges.shape} and dtype {edges.dtype}; give a sparse matrix "
            f"of SciPy of shape {(n, n)}, or edges as an int array of shape (m, 2)."
        )
    _check_rows(edges, n)
    return edges[:, 0], edges[:, 1]


def _check_rows(rows: np.ndarray, n: int) -> None:
    if rows.size and not (rows.min() >= 0 and rows.max() < n):
        wrong = rows.min() if rows.min() < 0 else rows.max()
        raise InputError(f"neighbors names row {wrong}, but there are {n:,} rows; number the rows from 0 to {n - 1}.")
