"""Arrays of a result: sent from the ranks to the caller, or left on the workers as chunks of Dask arrays.

An array is left on the workers if the rows, or the edges of a graph, were a Dask collection, and if the client outlives
the run. Each rank's part is then stored as Dask data on its worker, as if ``Client.scatter`` had sent it. The part
exists as long as the caller has the array, or an array that is computed from it. The part cannot be computed again: if
its worker is lost, the array is also lost, and Dask reports the loss.
"""

from __future__ import annotations

from typing import Any

from distributed import Client, Future

from mgclust.data import Dataset, Graph
from mgclust.engine.dask import tasks

__all__ = ["PartLost", "left_on_workers"]


class PartLost(Exception):
    """A worker could not keep its part of an array; the argument is the address of the worker."""


def left_on_workers(
    client: Client, run: str, workers: list[str], parts: list[dict[str, Any]], rows: Dataset
) -> dict[str, Any]:
    """Make Dask arrays of the parts that the ranks of a run have left on their workers.

    Parameters
    ----------
    client : Client
        Client that will own the arrays.
    run : str
        Name of the run.
    workers : list of str
        Addresses of the workers in rank order.
    parts : list of dict of str to tasks.Left
        Parts of the arrays by name, for each rank in rank order.
    rows : Dataset
        Rows of the input. The arrays have one row for each of them, and the same chunks. If the input is a graph, the
        arrays have one row for each node, and one chunk per rank.

    Raises
    ------
    PartLost
        A worker has left, or has restarted and lost its part.
    """
    import dask.array as da

    sizes = client.run(tasks.publish, run, workers=workers, on_error="return")
    lost = [address for address in workers if not isinstance(sizes.get(address), dict)]
    if lost:
        raise PartLost(lost[0])
    holders = {key: [address] for address in workers for key in sizes[address]}
    nbytes = {key: size for each in sizes.values() for key, size in each.items()}
    client.sync(client.scheduler.update_data, who_has=holders, nbytes=nbytes, client=client.id)
    arrays = {}
    for name in parts[0]:
        key = tasks.name_of_part(run, name)
        empty = parts[0][name].empty
        behind = [0] * (empty.ndim - 1)
        graph = {(key, rank, *behind): Future(f"{key}-{rank}", client) for rank in range(len(parts))}
        chunks = (tuple(part[name].rows for part in parts), *((size,) for size in empty.shape[1:]))
        whole = da.Array(graph, key, chunks, meta=empty)
        wanted = rows.dask_array.chunks[0]
        if isinstance(rows, Graph):
            wanted = tuple(length for length in chunks[0] if length) or (0,)
        arrays[name] = whole.rechunk({0: wanted}, method="tasks")
    return arrays
