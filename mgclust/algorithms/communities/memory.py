"""Memory that a graph takes on its way from edges to communities."""

from __future__ import annotations

from mgclust.engine.memory import Estimate

__all__ = ["estimate"]

ENTRY_BYTES = 28  # ends, key, and the sort's second key
NODE_BYTES = 64
LEVEL_BYTES = 24  # coarser graphs, for each entry of the first


def estimate(shape: tuple[int, int], itemsize: int, size: int, room: int, *, n: int, levels: bool = False) -> Estimate:
    """Memory of a rank beside its edges; see `mgclust.engine.memory.EstimateFunction`.

    Parameters
    ----------
    shape, itemsize, size, room
        Edges of the whole graph, bytes of a number, ranks; bytes that edges may take.
    n : int
        Number of nodes.
    levels : bool
        Coarser graphs are made as well.
    """
    entries = 2 * -(-shape[0] // size)
    wide = 16 if shape[1] == 3 else 0  # weights, and the order of a sort by pairs
    what = {"neighbours": entries * (ENTRY_BYTES + wide), "nodes": n * NODE_BYTES}
    if levels:
        what["coarser graphs"] = entries * LEVEL_BYTES
    return Estimate(what)
