"""Edges in .npy and .npz files, read by rows, and the base class of graphs in files."""

from __future__ import annotations

import math
import zipfile
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.files import InFile
from mgclust.data.graphs.adjacency import open_matrix
from mgclust.data.graphs.base import MAX_NODES, Graph, check_ids, check_n_nodes, edge_rows, row_number
from mgclust.data.graphs.stored_array import StoredArray
from mgclust.data.location import Location
from mgclust.data.readers.numpy_files import member_layout
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened

__all__ = ["FileGraph", "NumpyGraph", "open_npy_graph", "open_npz_graph"]

_CHUNK = 2**22  # edges that are read at a time to count the nodes, if the file does not state their number


class FileGraph(InFile, Graph):
    """Edges at a `Location`. A pickle holds the path and the properties that were found when the file was opened."""

    def __init__(self, location: Location, n_edges: int, n_nodes: int, **about: Any) -> None:
        super().__init__(n_edges, n_nodes, location.name, **about)
        self.location = location
        self._stamp = location.stamp()


class NumpyGraph(FileGraph):
    """Edges in a .npy file, or in the array ``edges`` of a .npz file.

    Parameters
    ----------
    location : Location
        Location of the file.
    edges : StoredArray
        Array of shape (n_edges, 2), or (n_edges, 3) with weights.
    weights : StoredArray, optional
        Array of shape (n_edges,).
    n_nodes : int, optional
        Number of nodes. By default, the largest node number plus one; all edges are read to find it.
    names, labels : StoredArray, optional
        Arrays of shape (n_nodes,).
    """

    kind = "npz"

    def __init__(
        self,
        location: Location,
        edges: StoredArray,
        weights: StoredArray | None = None,
        n_nodes: int | None = None,
        names: StoredArray | None = None,
        labels: StoredArray | None = None,
    ) -> None:
        self._edges = edges
        self._weights = weights
        # Read on demand, because the ranks to which the graph is sent need neither names nor labels.
        self._beside = {"names": names, "labels": labels}
        weighted = weights is not None or edges.shape[1] == 3
        count = self._count_nodes() if n_nodes is None else n_nodes
        super().__init__(location, edges.shape[0], count, weighted=weighted)
        for what, array in self._beside.items():
            if array is not None and array.shape != (self.n_nodes,):
                raise InputError(
                    f"{what} of {location.name} has shape {array.shape}, it should be ({self.n_nodes},): one for every "
                    "node."
                )

    @property
    def names(self) -> np.ndarray | None:
        """The array ``names`` of a .npz file."""
        return self._whole("names")

    @property
    def labels(self) -> np.ndarray | None:
        """The array ``labels`` of a .npz file."""
        return self._whole("labels")

    def _read(self, start: int, stop: int) -> np.ndarray:
        pairs = self._edges.read(start, stop)
        weights = None if self._weights is None else self._weights.read(start, stop)
        if pairs.shape[1] == 3:
            pairs, weights = pairs[:, :2], pairs[:, 2]
        return edge_rows(pairs, weights, self.n_nodes, row_number(self.name, start))

    def _whole(self, what: str) -> np.ndarray | None:
        array = self._beside[what]
        return None if array is None else array.whole()

    def _count_nodes(self) -> int:
        largest = -1
        for start in range(0, self._edges.shape[0], _CHUNK):
            pairs = self._edges.read(start, min(start + _CHUNK, self._edges.shape[0]))[:, :2]
            largest = max(largest, check_ids(pairs, MAX_NODES, row_number(self._edges.location.name, start)))
        if largest < 0:
            raise InputError(f"{self._edges.location.name} is an empty graph: it has no edges; give n_nodes.")
        return largest + 1


def open_npy_graph(location: Location, n_nodes: int | None) -> Graph:
    """Open a .npy file of edges."""
    edges = StoredArray(location)
    _check_edges(edges)
    return NumpyGraph(location, edges, n_nodes=n_nodes)


def open_npz_graph(location: Location, n_nodes: int | None) -> Graph:
    """Open a .npz file: ``edges``, and optionally ``n``, ``weights``, ``names`` and ``labels``.

    The file may also be a sparse matrix that `scipy.sparse.save_npz` wrote.
    """
    with location.open() as file, zipfile.ZipFile(file) as archive:
        listed = {info.filename.removesuffix(".npy"): info.filename for info in archive.infolist()}
    if {"format", "shape", "data"} <= set(listed):
        return _open_stored_matrix(location)
    if "edges" not in listed:
        others = shortened(", ".join(sorted(listed))) or "no arrays at all"
        raise InputError(
            f"{location.name} has no array 'edges' ({others}); write a graph as "
            "numpy.savez(path, edges=edges, n=n_nodes); weights=, names= and labels= are optional."
        )
    stored = {name: StoredArray(location, listed[name]) for name in _MEMBERS if name in listed}
    edges, weights = stored["edges"], stored.get("weights")
    _check_edges(edges)
    if weights is not None and (edges.shape[1] == 3 or weights.shape != edges.shape[:1]):
        raise InputError(
            f"{weights.name} has shape {weights.shape}, and edges have shape {edges.shape}; it should be "
            f"({edges.shape[0]},), with edges of 2 columns."
        )
    about = {name: stored[name] for name in ("names", "labels") if name in stored}
    count = n_nodes
    if "n" in stored:
        shape = stored["n"].shape
        if math.prod(shape) != 1:
            raise InputError(f"{stored['n'].name} has shape {shape}, it should be one number: the number of nodes.")
        written = stored["n"].whole()
        own = check_n_nodes(written.reshape(-1)[0].item(), location.name)
        if n_nodes is not None and n_nodes != own:
            raise InputError(f"n_nodes={n_nodes} should be {own}, as in {location.name}; leave it out.")
        count = own
    elif count is None and about:
        count = next(iter(about.values())).shape[0]
    return NumpyGraph(location, edges, weights, count, **about)


_MEMBERS = ("edges", "n", "weights", "names", "labels")


def _check_edges(edges: StoredArray) -> None:
    if len(edges.shape) != 2 or edges.shape[1] not in (2, 3):
        raise InputError(f"{edges.name} has shape {edges.shape}; edges should be (m, 2) or, with weights, (m, 3).")
    if edges.dtype.kind not in "iuf":
        raise InputError(f"{edges.name} has dtype {edges.dtype}; edges should be node numbers: 0, 1, ...")


def _open_stored_matrix(location: Location) -> Graph:
    """Open a file that `scipy.sparse.save_npz` wrote; it is read as a whole."""
    from scipy.sparse import load_npz

    with location.open() as file:
        with zipfile.ZipFile(file) as archive:
            needed = sum(member_layout(archive, info, location).nbytes for info in archive.infolist())
        check_memory(location.name, 2 * needed)
        file.seek(0)
        matrix = load_npz(file)
        if hasattr(matrix, "check_format"):
            matrix.check_format(full_check=True)  # SciPy's loops do not check that indices are in range
        return open_matrix(matrix, location.name)
