"""Estimate of the memory that a rank needs, from the edges of a graph to its communities."""

from __future__ import annotations

from mgclust.engine.memory import Estimate

__all__ = ["estimate"]

ENTRY_BYTES = 16  # per entry of the adjacency: the ends of the edges, the neighbour, and the weight of equal edges
SENT_BYTES = 12  # per entry, if several ranks share the rows: columns and weights that are sent, and that arrive
SORTED_BYTES, MOST_SORTED = 24, 1 << 27  # per entry that is sorted at once, and the largest number of these
NODE_BYTES = 60
KNOWN_BYTES = 32  # per node: known communities, and sorted pairs of their ids and the new communities
REWIRED_BYTES = 130  # per edge of the whole graph
THINNED_BYTES = 40  # per entry of the adjacency: a hash, its parts, and the entries that stay
LEVEL_BYTES = 16  # coarser graphs, per entry of the first graph
LEVEL_NODE_BYTES = 190  # at least, per node: coarser graphs, and labels of several starts


def estimate(
    shape: tuple[int, int],
    itemsize: int,
    size: int,
    room: int,
    *,
    n: int,
    levels: bool = False,
    candidates: int = 1,
    known: bool = False,
    rewired: int = 0,
    thinned: bool = False,
) -> Estimate:
    """Estimate the memory of a rank in addition to its edges; see `mgclust.engine.memory.EstimateFunction`.

    Parameters
    ----------
    shape, itemsize, size, room
        Shape of the edges of the whole graph, bytes of a number, number of ranks, and bytes that edges may take.
    n : int
        Number of nodes.
    levels : bool
        Whether the run also makes coarser graphs.
    candidates : int
        Number of resolutions, whose labels are all kept.
    known : bool
        Whether the run begins with known communities.
    rewired : int
        Largest number of edges that every rank rewires.
    thinned : bool
        Whether the run makes graphs without some edges.
    """
    entries = 2 * -(-shape[0] // size)
    wide = 16 if shape[1] == 3 else 0  # weights, and the order of the sort by pairs
    each = ENTRY_BYTES + wide + (SENT_BYTES if size > 1 else 0)
    what = {"neighbours": entries * each, "nodes": n * (NODE_BYTES + 4 * candidates)}
    what["sorted neighbours"] = min(entries, MOST_SORTED) * SORTED_BYTES
    if known:
        what["known communities"] = n * KNOWN_BYTES
    if levels:
        what["coarser graphs"] = max(entries * LEVEL_BYTES, n * LEVEL_NODE_BYTES)
    if rewired:
        what["rewired graph"] = rewired * REWIRED_BYTES
    if thinned:
        what["graph without some edges"] = entries * (THINNED_BYTES + wide)
    return Estimate(what)
