"""Graphs as coordinate matrices in Matrix Market files (.mtx)."""

from __future__ import annotations

import numpy as np

from mgclust.base.errors import InputError
from mgclust.base.hashing import splitmix64
from mgclust.data.graphs.adjacency import open_matrix
from mgclust.data.graphs.base import Graph, check_n_nodes
from mgclust.data.graphs.edge_list import SIZE, read_head
from mgclust.data.graphs.edge_text import Dialect
from mgclust.data.graphs.text import LinesGraph, scan_edges
from mgclust.data.graphs.text_chunks import TextChunks
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened

__all__ = ["open_matrix_market"]

_FIELDS = {"pattern": 2, "real": 3, "integer": 3, "double": 3}
_KIND = "matrix market"
_SYMMETRIES = ("general", "symmetric")


def open_matrix_market(chunks: TextChunks) -> Graph:
    """Open an adjacency matrix in coordinate format.

    A ``symmetric`` file lists each edge once. A ``general`` file whose matrix is not symmetric holds directed edges. An
    entry on the diagonal is the weight of a self-loop.
    """
    name = chunks.location.name
    head = read_head(chunks, 1)
    words = head.comments.split("\n")[0].lower().split()
    if words[:1] != ["%%matrixmarket"]:
        raise InputError(f"{name} does not begin with %%MatrixMarket; check that it is a Matrix Market file.")
    if (
        len(words) != 5
        or words[1:3] != ["matrix", "coordinate"]
        or words[3] not in _FIELDS
        or words[4] not in _SYMMETRIES
    ):
        raise InputError(
            f"{name} is '{shortened(' '.join(words[1:]))}'; a graph should be 'matrix coordinate', pattern, integer or "
            "real, general or symmetric."
        )
    sizes = head.lines[0].split() if head.lines else []
    if len(sizes) != 3 or not all(SIZE.fullmatch(size) for size in sizes):
        raise InputError(f"{name}, line {head.starts[0][1]} should be three numbers: rows, columns and entries.")
    rows, columns, entries = map(int, sizes)
    if rows != columns:
        raise InputError(
            f"{name} is a matrix of {shortened(rows)} x {shortened(columns)}; an adjacency matrix should be square."
        )
    count = check_n_nodes(rows, name)
    width = _FIELDS[words[3]]
    dialect = Dialect(name, " ", width, tuple(range(width)), base=1)
    halves = _Halves()
    index, count, _ = scan_edges(chunks, dialect, *head.starts[1], count, halves.add)
    found = sum(edges for _, edges in index)
    if found != entries:
        raise InputError(
            f"{name} has {found} entries, but its line of sizes states {shortened(entries)}; copy or write it again."
        )
    if words[4] == "symmetric" or halves.one_is_empty:
        return LinesGraph(chunks, index, count, dialect, _KIND, undirected=words[4] == "symmetric")
    if halves.weights == 0:
        index = [(chunk, edges) for (chunk, _), edges in zip(index, halves.upper, strict=True)]
        return LinesGraph(chunks, index, count, dialect, _KIND, upper=True, undirected=True)
    graph = LinesGraph(chunks, index, count, dialect, _KIND, directed=True)
    return _whole(graph) if halves.pairs == 0 else graph


def _whole(graph: LinesGraph) -> Graph:
    """Return the graph in memory if its weights are symmetric up to rounding; else return it unchanged."""
    from scipy.sparse import coo_array

    m, n = graph.shape[0], graph.n_nodes
    check_memory(graph.name, 100 * m + 16 * n)
    u, v, weights = graph.read(0, m).T
    matrix = open_matrix(coo_array((weights, (u.astype(np.int32), v.astype(np.int32))), shape=(n, n)), graph.name)
    return graph if matrix.directed else matrix


class _Halves:
    """Comparison of the entries above and below the diagonal of a matrix, by sums of hashes.

    Attributes
    ----------
    pairs, weights : int
        Sum of the hashes of entries above the diagonal, minus the sum of the hashes below it. `pairs` hashes the
        positions of entries; `weights` also hashes their weights. Both are 0 if the matrix is symmetric.
    upper : list of int
        Number of entries of each chunk that are not below the diagonal.
    """

    def __init__(self) -> None:
        self.pairs = self.weights = self._above = self._below = 0
        self.upper: list[int] = []

    @property
    def one_is_empty(self) -> bool:
        """True if there are no entries above the diagonal, or none below."""
        return not (self._above and self._below)

    def add(self, u: np.ndarray, v: np.ndarray, weights: np.ndarray | None) -> None:
        """Add the entries of one chunk."""
        sign = np.sign(v - u).astype(np.int8)
        self.upper.append(int((sign >= 0).sum()))
        self._above += int((sign > 0).sum())
        self._below += int((sign < 0).sum())
        place = splitmix64((np.minimum(u, v).astype(np.uint64) << np.uint64(32)) + np.maximum(u, v).astype(np.uint64))
        full = place if weights is None else splitmix64(place ^ (weights + 0.0).view(np.uint64))
        self.pairs = _added(self.pairs, place, sign)
        self.weights = _added(self.weights, full, sign)


def _added(total: int, hashes: np.ndarray, sign: np.ndarray) -> int:
    return (total + int(hashes[sign > 0].sum()) - int(hashes[sign < 0].sum())) % 2**64
