"""Graphs as coordinate matrices in Matrix Market files (.mtx)."""

from __future__ import annotations

from mgclust.base.errors import InputError
from mgclust.data.graphs.base import Graph, check_n_nodes
from mgclust.data.graphs.edge_list import SIZE, read_head
from mgclust.data.graphs.edge_text import Dialect
from mgclust.data.graphs.text import LinesGraph, scan_edges
from mgclust.data.graphs.text_chunks import TextChunks
from mgclust.outside.quoting import shortened

__all__ = ["open_matrix_market"]

_FIELDS = {"pattern": 2, "real": 3, "integer": 3, "double": 3}
_SYMMETRIES = ("general", "symmetric")


def open_matrix_market(chunks: TextChunks) -> Graph:
    """Open an adjacency matrix: ``symmetric`` has every edge once, ``general`` has arcs.

    An entry on the diagonal is the weight of a self-loop.
    """
    name = chunks.location.name
    head = read_head(chunks, 1)
    words = head.comments.split("\n")[0].lower().split()
    if words[:1] != ["%%matrixmarket"]:
        raise InputError(f"{name} does not begin with %%MatrixMarket; is it a Matrix Market file?")
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
    index, count, _ = scan_edges(chunks, dialect, *head.starts[1], count)
    found = sum(edges for _, edges in index)
    if found != entries:
        raise InputError(
            f"{name} has {found} entries where its line of sizes says {shortened(entries)}; copy or write it again."
        )
    return LinesGraph(chunks, index, count, dialect, "matrix market", directed=words[4] == "general")
