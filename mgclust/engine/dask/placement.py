"""Transport of rows to the ranks that own them.

=====================  ==========================================================================================
source                 transport
=====================  ==========================================================================================
Dask array             chunks stay where they are; ranks are numbered so that most rows need not move
array in the client    each worker is sent only the rows of its rank, and keeps them; if the rows of the next run
                       are identical, they are not sent again
path                   each worker opens it and reads the rows of its rank
=====================  ==========================================================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
from dask.core import flatten
from distributed import CancelledError, Client, Future, futures_of
from scipy.optimize import linear_sum_assignment

from mgclust.base.dask_arrays import check_chunk, is_dask, lost_array
from mgclust.base.errors import InputError, RunFailed, described
from mgclust.data import Dataset
from mgclust.data.chunks import plain_rows
from mgclust.engine.dask import scheduler, sessions, task_starts
from mgclust.engine.memory import Estimate, Residency, check
from mgclust.engine.partition import Partition
from mgclust.engine.rank import RankAssignment

__all__ = ["ChunkedRows", "check_workers", "chunks_of", "place", "place_beside"]

IN_CLIENT = ("array", "cuda array")
# Most bytes of rows that are sent with the task itself. Dask keeps the last thousand messages of each connection,
# including tasks.
LARGEST_IN_A_TASK = 1 << 16
LARGEST_KEPT = 1 << 30  # bytes of rows that stay on a worker for the next run of the same client
SENDERS = 8  # threads of the client that send rows; even fewer would use the whole bandwidth of its network

# Either a dataset and None, or a function that makes a source from arrays, and the futures of these arrays.
Rows = tuple[Any, list[Any] | None]


class ChunkedRows:
    """Consecutive rows in several arrays, which are read like the dataset from which they come.

    Parameters
    ----------
    shape : tuple of int
        Shape of the whole data.
    start : int
        Number of the first row of the first array.
    lengths : sequence of int
        Number of rows of each array.
    arrays : list of arrays
        The rows, one array after the other; each has shape (m, n_features).

    Raises
    ------
    InputError
        An array has another shape than stated, which is possible for chunks of Dask.
    """

    kind = "array"

    def __init__(self, shape: tuple[int, int], start: int, lengths: Sequence[int], arrays: list[Any]) -> None:
        for rows, array in zip(lengths, arrays, strict=True):
            check_chunk(array, (rows, shape[1]))
        self.shape = shape
        self.dtype = np.dtype(getattr(arrays[0], "dtype", np.float64) if arrays else np.float64)
        self._floating = np.result_type(self.dtype, np.float32)  # type to which masked arrays are converted
        self._edges = np.cumsum([start, *lengths])
        self._arrays = arrays

    @property
    def edges(self) -> list[int]:
        """Numbers of the first rows of the arrays, and one more than the last row."""
        edges: list[int] = self._edges.tolist()
        return edges

    def read(self, start: int, stop: int) -> Any:
        """Read rows start to stop - 1 of the whole data, which must be in these arrays."""
        first = int(np.searchsorted(self._edges, start, side="right")) - 1
        last = min(int(np.searchsorted(self._edges, stop, side="left")), len(self._arrays))
        parts = [
            self._arrays[i][max(start - self._edges[i], 0) : stop - self._edges[i]] for i in range(max(first, 0), last)
        ]
        parts = [plain_rows(part, self._floating) for part in parts if part.shape[0]]
        if len(parts) == 1:
            return parts[0]
        if any(hasattr(part, "__cuda_array_interface__") for part in parts):
            parts = [part.get() if hasattr(part, "get") else part for part in parts]
        return np.concatenate(parts) if parts else np.empty((0, self.shape[1]), self.dtype)


def check_workers(first: RankAssignment, dataset: Dataset, beside: Dataset | None, size: int, room: int) -> None:
    """Reject a run before its workers are sent more than they can hold.

    The ranks also check their memory, but only after their inputs have arrived. Before that, Dask would pause or end
    workers whose inputs do not fit.

    Parameters
    ----------
    first : RankAssignment
        The assignment of any rank.
    dataset : Dataset
        The rows.
    beside : Dataset or None
        Rows that the ranks get in addition.
    size : int
        Number of ranks.
    room : int
        Bytes that each worker may take.

    Raises
    ------
    InsufficientMemoryError
        The run does not fit. The message lists the bytes needed, the bytes free, and changes that would make it fit.
    """
    spec, device = first.spec, first.device
    # A task's arguments are in memory twice: as they were received, and as they are used.
    arguments = 2 * sum(value.nbytes for value in spec.arguments.values() if isinstance(value, np.ndarray))
    a_row = sum(value.nbytes // len(value) for value in spec.row_arguments.values() if not is_dask(value))
    a_row += _input_row(dataset, device)

    def need(shape: tuple[int, int], size: int, free: int) -> Estimate:
        inputs = {"rows of the rank": -(-shape[0] // size) * a_row, "arguments": arguments}
        if beside is not None:
            inputs["rows to label"] = -(-beside.shape[0] // size) * _input_row(beside, device)
        if device != "cpu":
            return Estimate(inputs)
        itemsize, left = np.dtype(spec.dtype).itemsize, max(0, free - sum(inputs.values()))
        own = Residency(left, shape, itemsize, size, spec.estimate, keep=spec.resident)
        return Estimate(inputs) + own.estimate(own.block_rows)

    if a_row or arguments > LARGEST_IN_A_TASK or (beside is not None and _input_row(beside, device)):
        check(need, dataset.shape, size, room)


def _input_row(dataset: Dataset, device: str) -> int:
    """Return the bytes of a row in the host memory of the worker whose rank owns it, before the rank reads it."""
    # Chunks of a Dask array may be in the memory of a GPU.
    given = dataset.kind in IN_CLIENT or (dataset.dask_array is not None and device == "cpu")
    return dataset.shape[1] * dataset.dtype.itemsize if given else 0


def place(
    client: Client, dataset: Dataset, partition: Partition, workers: dict[str, str]
) -> tuple[list[str], list[Rows], set[str]]:
    """Assign ranks to the workers, and choose the source of each rank's rows.

    Parameters
    ----------
    client : Client
        Client of the cluster.
    dataset : Dataset
        The rows.
    partition : Partition
        Which rank owns which rows.
    workers : dict of str to str
        Identities of the workers by address, in the preferred order of ranks.

    Returns
    -------
    workers : list of str
        Addresses in rank order: the given order, unless rows would then have to move.
    sources : list of Rows
        Sources for the tasks of the ranks.
    holders : set of str
        Addresses of the workers from which rows come.
    """
    if dataset.dask_array is not None:
        return _place_chunks(client, dataset, partition, list(workers))
    if dataset.kind not in IN_CLIENT:
        return list(workers), [(dataset, None)] * len(workers), set()

    def send(rank: int, worker: tuple[str, str]) -> Rows:
        start, rows = partition.rows_of(rank)[0], _on_host(dataset, *partition.rows_of(rank))
        return _chunked_rows(dataset, start, [len(rows)]), [
            rows if rows.nbytes <= LARGEST_IN_A_TASK else _sent(client, rows, *worker)
        ]

    with ThreadPoolExecutor(min(len(workers), SENDERS)) as pool:
        return list(workers), list(pool.map(send, range(len(workers)), workers.items())), set()


def place_beside(client: Client, dataset: Dataset, workers: list[str], shares: Sequence[tuple[int, int]]) -> list[Rows]:
    """Choose the source of rows that ranks get in addition to their own rows.

    Parameters
    ----------
    client : Client
        Client of the cluster.
    dataset : Dataset
        The additional rows.
    workers : list of str
        Addresses in rank order.
    shares : sequence of (int, int)
        For each rank, its first row and one more than its last row.

    Returns
    -------
    list of Rows
        Sources for the tasks of the ranks, as from `place`.
    """
    if dataset.dask_array is not None:
        chunks, edges = chunks_of(client, dataset.dask_array)
        wanted = [np.flatnonzero(_shared(edges, *share) > 0) for share in shares]
        firsts = [int(edges[some[0]]) if len(some) else start for some, (start, _) in zip(wanted, shares, strict=True)]
        return [
            (_chunked_rows(dataset, first, np.diff(edges)[some]), [chunks[i] for i in some])
            for first, some in zip(firsts, wanted, strict=True)
        ]
    if dataset.kind not in IN_CLIENT:
        return [(dataset, None)] * len(workers)
    sources: list[Rows] = []
    for (start, stop), address in zip(shares, workers, strict=True):
        rows: Any = _on_host(dataset, start, stop)
        if rows.nbytes > LARGEST_IN_A_TASK:
            rows = client.scatter(rows, workers=[address], hash=False)
        sources.append((_chunked_rows(dataset, start, [stop - start]), [rows]))
    return sources


def chunks_of(client: Client, array: Any) -> tuple[list[Future], np.ndarray]:
    """Compute the chunks of a Dask array along its first axis.

    Parameters
    ----------
    client : Client
        Client of the cluster.
    array : dask.array.Array
        An array with a single chunk along each other axis.

    Returns
    -------
    chunks : list of Future
        The computed chunks.
    edges : ndarray
        Numbers of the first rows of the chunks, and one more than the last row.

    Raises
    ------
    InputError
        A chunk is on another cluster.
    RunFailed
        A chunk could not be computed, or is lost.
    """
    keys = list(flatten(array.__dask_keys__()))
    try:
        chunks = futures_of(array, client=client)
        _reject_other_clusters(client, chunks)
        if {future.key for future in chunks} != set(keys):
            chunks = futures_of(client.persist(array), client=client)
        _wait(client, chunks)
        for future in chunks:  # the workers that hold the chunks are known only when the chunks are computed
            error = future.exception() if future.status != "finished" else None
            if future.status == "cancelled":
                raise lost_array()
            if error is not None:
                raise RunFailed(f"a chunk of the Dask array could not be computed: {described(error)}")
    except CancelledError:
        raise lost_array() from None
    by_key = {future.key: future for future in chunks}
    return [by_key[key] for key in keys], np.cumsum([0, *array.chunks[0]])


def _reject_other_clusters(client: Client, chunks: list[Future]) -> None:
    """Reject chunks that belong to a client of another cluster; a second client of the same cluster may have them."""
    others = {future.client.id: future.client for future in chunks if future.client is not client}
    if others and (unknown := scheduler.ask(client, "unknown", clients=list(others))):
        raise InputError(
            f"client={client!r} is not the client of a Dask array, whose chunks are on the cluster of "
            f"{others[unknown[0]]!r}; give the array's client as client=, or use X.compute()."
        )


def _wait(client: Client, chunks: list[Future]) -> None:
    """Wait for the first chunk that is missing; warn if it takes long because no worker may compute it."""
    missing = [future for future in chunks if future.status == "pending"]
    if missing:
        try:
            missing[0].exception(timeout=task_starts.START_SECONDS)
        except TimeoutError:
            task_starts.look_at_chunks(client, missing)


def _shared(edges: np.ndarray, start: int, stop: int) -> np.ndarray:
    """Return how many rows of a range each chunk has; the number is not positive if a chunk has none."""
    return np.asarray(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start))


def _on_host(dataset: Dataset, start: int, stop: int) -> Any:
    rows = dataset.read(start, stop)
    return rows.get() if hasattr(rows, "__cuda_array_interface__") else rows


def _sent(client: Client, rows: np.ndarray, address: str, identity: str) -> Future:
    """Return the future of rows on a worker; send the rows only if their hash differs from the rows sent last."""
    last = sessions.sent_rows(client)
    form = rows.shape, rows.dtype.str
    known = last.get(identity)
    if known is not None and known[0] == form and known[1] == _hash(rows) and known[2].status == "finished":
        return known[2]
    del known
    last.pop(identity, None)  # free the old rows before others are sent
    if rows.nbytes > LARGEST_KEPT:
        return client.scatter(rows, workers=[address], hash=False)
    with ThreadPoolExecutor(1) as beside:
        content = beside.submit(_hash, rows)
        future = client.scatter(rows, workers=[address], hash=False)
        last[identity] = form, content.result(), future
    return future


def _hash(rows: np.ndarray) -> str:
    content: Any = np.ascontiguousarray(rows).view(np.uint8)
    return hashlib.sha256(content).hexdigest()


def _chunked_rows(dataset: Dataset, start: int, lengths: Any) -> Callable[[list[Any]], ChunkedRows]:
    return partial(ChunkedRows, dataset.shape, start, [int(rows) for rows in lengths])


def _place_chunks(
    client: Client, dataset: Dataset, partition: Partition, workers: list[str]
) -> tuple[list[str], list[Rows], set[str]]:
    chunks, edges = chunks_of(client, dataset.dask_array)
    holders = client.who_has(chunks)
    overlap = np.zeros((partition.size, len(workers)), np.int64)
    wanted: list[list[int]] = []
    for rank in range(partition.size):
        shared = _shared(edges, *partition.rows_of(rank))
        wanted.append([int(i) for i in np.flatnonzero(shared > 0)])
        for i in wanted[rank]:
            for address in holders.get(chunks[i].key, ()):
                if address in workers:
                    overlap[rank, workers.index(address)] += shared[i]
    ranks, chosen = linear_sum_assignment(overlap, maximize=True)
    if overlap.trace() < overlap[ranks, chosen].sum():
        workers = [workers[i] for i in chosen]
    sources: list[Rows] = []
    for rank in range(partition.size):
        first = int(edges[wanted[rank][0]]) if wanted[rank] else partition.rows_of(rank)[0]
        lengths = np.diff(edges)[wanted[rank]]
        sources.append((_chunked_rows(dataset, first, lengths), [chunks[i] for i in wanted[rank]]))
    return workers, sources, set().union(*holders.values())
