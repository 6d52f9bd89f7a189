"""Arrays of a result: from the ranks to the caller, or to Dask arrays whose chunks stay where they were computed.

An array stays where the rows, or the edges of a graph, were given as a Dask collection and the client outlives the run.
A rank's part is then data of Dask on its worker, as ``Client.scatter`` makes it: it lives while the caller has the
array or one that is computed from it, and nothing computes it again. Where its worker is lost, so is the array, and
Dask says so.
"""

from __future__ import annotations

from typing import Any

from distributed import Client, Future

from mgclust.data import Dataset, Graph
from mgclust.engine.dask import tasks

__all__ = ["PartLost", "left_on_workers"]


class PartLost(Exception):
    """Part of an array that its worker, whose address this has, could not keep."""


def left_on_workers(
    client: Client, run: str, workers: list[str], parts: list[dict[str, Any]], rows: Dataset
) -> dict[str, Any]:
    """Dask arrays of what the ranks of a run have left on their workers.

    Parameters
    ----------
    client : Client
        Whose they are.
    run : str
        Name of the run.
    workers : list of str
        Addresses in rank order.
    parts : list of dict of str to tasks.Left
        By name, in rank order.
    rows : Dataset
        Those that the arrays have a row for: chunks are as theirs. Arrays of a graph have one for each node: a chunk is
        what a rank has.

    Raises
    ------
    PartLost
        A worker has left, or has not what it should have: it restarted.
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
