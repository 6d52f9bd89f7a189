"""Transport of rows to the ranks that own them.

=====================  ============================================================================
Dask array             its chunks stay where they are; ranks are numbered so that most rows need not move
array in the client    each worker is sent the rows of its rank, no more
path                   each worker opens it and reads the rows of its rank
=====================  ============================================================================
"""

from __future__ import annotations

from typing import Any

import numpy as np
from distributed import Client, futures_of
from scipy.optimize import linear_sum_assignment

from mgclust.data import Dataset
from mgclust.engine.partition import Partition
from mgclust.errors import RunFailed

__all__ = ["Pieces", "place"]

IN_CLIENT = ("array", "cuda array")


class Pieces:
    """Consecutive rows in several arrays, read like the dataset that they come from.

    Parameters
    ----------
    shape : tuple of int
        Of the whole data.
    start : int
        Number of the first row of the first array.
    arrays : list of arrays
        Each (m, n_features), one behind the other.
    """

    kind = "array"

    def __init__(self, shape: tuple[int, int], start: int, arrays: list[Any]) -> None:
        self.shape = shape
        self.dtype = np.dtype(arrays[0].dtype if arrays else np.float64)
        self._edges = np.cumsum([start, *(len(array) for array in arrays)])
        self._arrays = arrays

    def read(self, start: int, stop: int) -> Any:
        """Rows start to stop - 1 of the whole data, as far as they are here."""
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = min(int(np.searchsorted(self._edges, stop, side="left")), len(self._arrays))
        parts = [
            self._arrays[i][max(start - self._edges[i], 0) : stop - self._edges[i]] for i in range(max(first, 0), last)
        ]
        parts = [part for part in parts if len(part)]
        if len(parts) == 1:
            return parts[0]
        if any(hasattr(part, "__cuda_array_interface__") for part in parts):
            parts = [part.get() if hasattr(part, "get") else part for part in parts]
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), self.dtype)


def place(client: Client, dataset: Dataset, partition: Partition, workers: list[str]) -> tuple[list[str], list[Any]]:
    """Decide which worker is which rank, and what each is given as its source.

    Returns
    -------
    workers : list of str
        Addresses in rank order.
    sources : list
        Arguments for the ranks' tasks: the dataset itself, or `Pieces`, with futures in place of arrays.
    """
    if dataset.dask_array is not None:
        return _place_chunks(client, dataset, partition, workers)
    if dataset.kind in IN_CLIENT:
        sources = []
        for rank, address in enumerate(workers):
            start, stop = partition.rows_of(rank)
            rows = dataset.read(start, stop)
            if hasattr(rows, "__cuda_array_interface__"):
                rows = rows.get()
            future = client.scatter(rows, workers=[address], hash=False)
            sources.append(_later(client, dataset.shape, start, [future], address))
        return workers, sources
    return workers, [dataset] * len(workers)


def _place_chunks(
    client: Client, dataset: Dataset, partition: Partition, workers: list[str]
) -> tuple[list[str], list[Any]]:
    array = client.persist(dataset.dask_array)
    # Where chunks end up is known once they are computed.
    chunks = futures_of(array, client=client)
    for future in chunks:
        error = future.exception()
        if error is not None:
            raise RunFailed(f"a chunk of the Dask array could not be computed: {type(error).__name__}: {error}")
    by_key = {future.key: future for future in chunks}
    keys = [key for row in array.__dask_keys__() for key in row]
    edges = np.cumsum([0, *array.chunks[0]])
    holders = client.who_has(chunks)
    overlap = np.zeros((partition.size, len(workers)), np.int64)
    wanted: list[list[int]] = []
    for rank in range(partition.size):
        start, stop = partition.rows_of(rank)
        shared = np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start)
        wanted.append([int(i) for i in np.flatnonzero(shared > 0)])
        for i in wanted[rank]:
            for address in holders.get(keys[i], ()):
                if address in workers:
                    overlap[rank, workers.index(address)] += shared[i]
    _, chosen = linear_sum_assignment(overlap, maximize=True)
    order = [workers[i] for i in chosen]
    sources = []
    for rank, address in enumerate(order):
        first = int(edges[wanted[rank][0]]) if wanted[rank] else partition.rows_of(rank)[0]
        sources.append(_later(client, dataset.shape, first, [by_key[keys[i]] for i in wanted[rank]], address))
    return order, sources


def _later(client: Client, shape: tuple[int, int], start: int, futures: list[Any], address: str) -> Any:
    """A future of `Pieces` on a worker that holds, or fetches, their arrays."""
    return client.submit(Pieces, shape, start, futures, workers=[address], pure=False)
