"""Edges in memory as numbers: NumPy, CuPy and Dask arrays, with or without weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.base.by_value import by_value
from mgclust.base.dask_arrays import check_chunk, computed, unannotated
from mgclust.base.errors import InputError
from mgclust.data import chunks
from mgclust.data.base import dask_digests
from mgclust.data.graphs.base import MAX_NODES, Graph, check_ids, check_n_nodes, edge_rows, namespace_of, row_number

__all__ = ["ArrayGraph", "DaskGraph", "DeviceGraph", "open_edges"]

_CHUNK = 2**22  # edges that are checked at a time, so that temporary arrays stay small


class ArrayGraph(Graph):
    """Edges in a NumPy array.

    Parameters
    ----------
    pairs : array of shape (n_edges, 2)
        Node numbers, of any number type.
    weights : array of shape (n_edges,), optional
        Weights of the edges.
    n_nodes : int, optional
        Number of nodes; by default, the largest node number plus one.
    name : str
        Name of the graph in messages.
    **about
        Keyword arguments of `Graph`.
    """

    kind = "array"

    def __init__(
        self, pairs: Any, weights: Any = None, n_nodes: int | None = None, name: str = "edge array", **about: Any
    ) -> None:
        _check_numbers(pairs, weights, name)
        count = _count_nodes(pairs, name) if n_nodes is None else n_nodes
        super().__init__(len(pairs), count, name, weighted=weights is not None, **about)
        self._pairs = pairs
        self._weights = weights

    def _read(self, start: int, stop: int) -> Any:
        weights = None if self._weights is None else self._weights[start:stop]
        return edge_rows(self._pairs[start:stop], weights, self.n_nodes, row_number(self.name, start))


class DeviceGraph(ArrayGraph):
    """Edges in CuPy arrays. `read` returns CuPy arrays on the same device."""

    kind = "cuda array"


class DaskGraph(Graph):
    """Edges in a Dask array. The engine takes `dask_array` and leaves chunks on the workers that hold them already.

    The workers that hold the chunks check them once when the graph is opened.
    """

    kind = "dask array"

    def __init__(
        self, array: Any, n_nodes: int | None = None, name: str = "Dask array", names: np.ndarray | None = None
    ) -> None:
        if array.ndim != 2 or array.shape[1] not in (2, 3):
            raise InputError(_shape_sentence(tuple(array.shape), name))
        if any(size != size for size in array.shape):
            raise InputError(f"{name} has chunks of unknown size; call edges.compute_chunk_sizes() first.")
        weighted = array.shape[1] == 3
        if array.dtype.kind not in "iuf":
            raise InputError(f"{name} has dtype {array.dtype}; edges should be node numbers.")
        array = array if array.numblocks[1] == 1 else array.rechunk({1: -1})
        bound = MAX_NODES if n_nodes is None else check_n_nodes(n_nodes, name)
        largest = -1
        if array.shape[0]:
            parts = array.map_blocks(
                by_value(chunks.largest_id, chunks),
                bound,
                dtype=np.int64,
                chunks=((1,) * array.numblocks[0], (1,)),
                meta=_NO_IDS,
            )
            largest = int(computed(parts.max()))
            if largest == chunks.INVALID:
                _reject_invalid(array, parts, bound, name)
        super().__init__(
            array.shape[0], largest + 1 if n_nodes is None else n_nodes, name, weighted=weighted, names=names
        )
        self._array = array if array.dtype == self.dtype else array.astype(self.dtype)

    @property
    def dask_array(self) -> Any:
        """The edges as a Dask array of type `dtype`, with one chunk across the columns."""
        return self._array

    def fingerprint(self) -> str:
        """Return the SHA-256 of shape, dtype and edges; the workers hash the edges that they hold."""
        return self._combine(dask_digests(self._array) if self.shape[0] else [])

    @unannotated
    def _read(self, start: int, stop: int) -> Any:
        rows = computed(self._array[start:stop])
        check_chunk(rows, (stop - start, self.shape[1]))
        weights = rows[:, 2] if self.weighted else None
        return edge_rows(rows[:, :2], weights, self.n_nodes, row_number(self.name, start))


_NO_IDS = np.empty((0, 0), np.int64)


def open_edges(edges: Any, weights: Any, n_nodes: int | None, name: str = "edge array", **about: Any) -> Graph:
    """Open arrays as a graph.

    Parameters
    ----------
    edges : array of shape (m, 2) or (m, 3)
        NumPy or CuPy array; the third column holds weights.
    weights : array of shape (m,) or None
        Weights, if `edges` has two columns.
    n_nodes : int or None
        Number of nodes. None: the largest node number plus one.
    name : str
        Name of the graph in messages.
    **about
        Keyword arguments of `Graph`.
    """
    if edges.ndim != 2 or edges.shape[1] not in (2, 3):
        raise InputError(_shape_sentence(tuple(edges.shape), name))
    if edges.shape[1] == 3:
        if weights is not None:
            raise InputError(f"{name} has 3 columns, and the last holds the weights; leave out the other weights.")
        edges, weights = edges[:, :2], edges[:, 2]
    device = hasattr(edges, "__cuda_array_interface__")
    if weights is not None:
        weights = namespace_of(edges).asarray(weights)
        if weights.shape != (len(edges),):
            raise InputError(
                f"weights of {name} have shape {weights.shape}, they should be ({len(edges)},): one per edge."
            )
    return (DeviceGraph if device else ArrayGraph)(edges, weights, n_nodes, name, **about)


def _shape_sentence(shape: tuple[int, ...], name: str) -> str:
    return (
        f"{name} has shape {shape}; edges should be (m, 2) or, with weights, (m, 3), and an adjacency matrix should be "
        "square."
    )


def _check_numbers(pairs: Any, weights: Any, name: str) -> None:
    if pairs.dtype.kind not in "iuf":
        raise InputError(f"{name} has dtype {pairs.dtype}; edges should be node numbers: 0, 1, ...")
    if weights is not None and weights.dtype.kind not in "iufb":
        raise InputError(f"weights of {name} have dtype {weights.dtype}; they should be real numbers >= 0.")


def _count_nodes(pairs: Any, name: str) -> int:
    """Return the largest node number plus one."""
    if not len(pairs):
        raise InputError(f"{name} is an empty graph: no edges, and n_nodes is not given; give n_nodes.")
    largest = -1
    for start in range(0, len(pairs), _CHUNK):
        part = pairs[start : start + _CHUNK]
        largest = max(largest, check_ids(part, MAX_NODES, row_number(name, start)))
    return largest + 1


def _reject_invalid(array: Any, parts: Any, bound: int, name: str) -> None:
    """Raise the error for the first chunk with an invalid edge; `parts` holds the `largest_id` of each chunk."""
    first = int(computed(parts.argmax()))
    block, where = computed(array.blocks[first]), row_number(f"a chunk of {name}")
    edge_rows(block[:, :2], block[:, 2] if block.shape[1] == 3 else None, bound, where)
    raise InputError(f"{name} gives other edges each time it is computed; call edges = edges.persist() first.")
