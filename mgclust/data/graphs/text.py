"""Edges in text files, whose chunks are found by a first pass; see `edge_list`, `matrix_market` and `metis`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mgclust.data.graphs.base import check_ids, edge_rows
from mgclust.data.graphs.edge_text import Dialect, line_of, parse_edges
from mgclust.data.graphs.node_names import IntegerIds, TextIds, without_gaps
from mgclust.data.graphs.numpy_files import FileGraph
from mgclust.data.graphs.text_chunks import Chunk, TextChunks

__all__ = ["ChunkedGraph", "LinesGraph", "scan_edges"]


class ChunkedGraph(FileGraph):
    """Edges in a text file. A first pass has found the chunks; a rank parses only the chunks that hold its edges.

    Parameters
    ----------
    chunks : TextChunks
        Reads the file.
    index : sequence of (Chunk, int)
        Every chunk with its number of edges.
    n_nodes : int
        Number of nodes.
    **about
        Keyword arguments of `Graph`.
    """

    def __init__(self, chunks: TextChunks, index: Sequence[tuple[Chunk, int]], n_nodes: int, **about: Any) -> None:
        self._chunks = chunks
        self._index = [chunk for chunk, _ in index]
        self._edges = np.cumsum([0, *(count for _, count in index)])
        super().__init__(chunks.location, int(self._edges[-1]), n_nodes, **about)
        self._kept: tuple[int, np.ndarray] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_kept": None}

    def _read(self, start: int, stop: int) -> np.ndarray:
        rows = np.empty((stop - start, self.shape[1]), self.dtype)
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        for number in range(first, len(self._index)):
            begin, end = int(self._edges[number]), int(self._edges[number + 1])
            if begin >= stop:
                break
            low, high = max(start, begin), min(stop, end)
            if low < high:
                rows[low - start : high - start] = self._chunk(number)[low - begin : high - begin]
        return rows

    def _chunk(self, number: int) -> np.ndarray:
        # A read may end within a chunk: keep this chunk, because the next read continues there.
        if self._kept is None or self._kept[0] != number:
            self._kept = None
            self._kept = number, self._parse(number, self._chunks.read(self._index[number]))
        return self._kept[1]

    @abstractmethod
    def _parse(self, number: int, text: bytes) -> np.ndarray:
        """Parse the edges of one chunk."""


class LinesGraph(ChunkedGraph):
    """Edges in a text file, one per line.

    Parameters
    ----------
    chunks, index, n_nodes
        See `ChunkedGraph`.
    dialect : Dialect
        How the lines are read.
    kind : str
        Name of the format.
    upper : bool
        Whether to keep only edges whose first node number is at most as large as the second. `index` must then count
        only these edges.
    **about
        Keyword arguments of `Graph`.
    """

    def __init__(
        self,
        chunks: TextChunks,
        index: Sequence[tuple[Chunk, int]],
        n_nodes: int,
        dialect: Dialect,
        kind: str,
        upper: bool = False,
        **about: Any,
    ) -> None:
        self.kind = kind
        self._dialect = dialect
        self._upper = upper
        super().__init__(chunks, index, n_nodes, weighted=dialect.weighted, **about)

    def _parse(self, number: int, text: bytes) -> np.ndarray:
        line = self._index[number].line
        u, v, weights = parse_edges(text, line, self._dialect)
        if self._names is not None:
            u, v = self._names.encode(u), self._names.encode(v)
        rows = edge_rows(
            np.stack([u, v], axis=1),
            weights,
            self.n_nodes,
            line_of(self._dialect.name, text, line, self._dialect.skipped),
        )
        return rows[rows[:, 0] <= rows[:, 1]] if self._upper else rows


def scan_edges(
    chunks: TextChunks,
    dialect: Dialect,
    offset: int,
    line: int,
    n_nodes: int | None,
    visit: Callable[[Any, Any, np.ndarray | None], None] = lambda u, v, weights: None,
) -> tuple[list[tuple[Chunk, int]], int, np.ndarray | None]:
    """Pass over all edges once, to find the chunks and the nodes.

    Parameters
    ----------
    chunks : TextChunks
        Reads the file.
    dialect : Dialect
        How the lines are read.
    offset, line : int
        Byte and line number at which the first edge begins.
    n_nodes : int or None
        Number of nodes, which is the limit of the ids. None: collect the ids.
    visit : callable
        Called with the edges of each chunk.

    Returns
    -------
    index : list of (Chunk, int)
        Every chunk with its number of edges.
    n_nodes : int
        Number of nodes.
    names : ndarray or None
        Names of the nodes; None if the ids are the node numbers.
    """
    index = []
    ids: Any = TextIds() if dialect.text else IntegerIds()
    for chunk, text in chunks.scan(offset, line):
        u, v, weights = parse_edges(text, chunk.line, dialect)
        visit(u, v, weights)
        index.append((chunk, len(u)))
        if n_nodes is None:
            ids.add(u)
            ids.add(v)
        else:
            check_ids(
                np.stack([u, v], axis=1),
                n_nodes,
                line_of(dialect.name, text, chunk.line, dialect.skipped),
                dialect.base,
            )
    if n_nodes is not None:
        return index, n_nodes, None
    names = ids.names()
    return index, len(names), None if not dialect.text and without_gaps(names) else names
