r"""Communities of large modularity in graphs of 10^6 to 10^10 edges, in parallel.

Exact greedy merging does one merge after the other. Here all nodes decide at once, and later steps on every scale
correct decisions that were made too early::

    local moving   nodes move until none gains; communities become nodes; repeat (Louvain, BGLL 2008)
    cycle          coarsen        within the communities, by matching mutual best choices (see `matching`)
                   local moving   from the coarsest graph
                   refine         on each kept level, from coarse to fine, the nodes of this level move once more
    ...            repeat, with other noise in the choices, until a cycle raises the modularity too little; at most
                   5 to 8 cycles
    parts          a community that has several connected parts is split into them, which never lowers the modularity

Small graphs have several starts, because one start may end in a poor optimum; the best result is kept.

For the constant Potts model, every second start begins with a cycle that matches all nodes. At high resolutions, most
communities have two or three nodes, and single moves seldom find the heaviest pairs.

If communities are known, local moving begins with them, and there is only this start. Its first sweep checks all nodes,
because the old graph is not known; later sweeps check only neighbours of moved nodes. Cycles follow only if more than
5% of the nodes are new or have changed their community, or if no edge connects two communities. So a small update
costs about two sweeps, two searches for connected parts and one contraction.

Guarantees. Modularity never falls from one cycle to the next. Every community is connected, except communities of fixed
nodes that no path inside the community connects. Labels are bitwise identical on any number of ranks and on CPU and
GPU, because all sums are sums of integers and all ties have a rule. The result is the best partition that was found;
its modularity may be smaller than the largest possible modularity.

Cost, for E edges: about 12 E weights are read before the first cycle and 12 E in each cycle; 6 E are sorted in each
cycle. Memory: 30 to 60 bytes per edge. Exchanges: n int32 for each class of each sweep, and all weights of a level once
when it is contracted.

References
----------
V. D. Blondel et al., J. Stat. Mech. P10008 (2008); V. A. Traag et al., Sci. Rep. 9:5233 (2019);
R. Rotta, A. Noack, ACM J. Exp. Algorithmics 16:2.3 (2011); J. Riedy et al., PPAM 2011.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.continuation import (
    KnownCommunities,
    connected_parts,
    start_labels,
    with_initial_ids,
)
from mgclust.algorithms.communities.levels import Level, modularity_of
from mgclust.algorithms.communities.local_moving import compact, local_moving, move_nodes
from mgclust.algorithms.communities.matching import coarsen
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import count_true

__all__ = ["Effort", "communities"]

Array = Any
NOISE = 0.5
CHANGED = 0.05  # cycles follow if more than this fraction of the nodes is not in its known community


class Effort(NamedTuple):
    """Limits of the search."""

    starts: int
    cycles: int
    least_rise: float  # smallest rise of modularity in a cycle after which another cycle follows


EFFORTS = (  # largest number of entries (twice the edges) of a graph, and its limits
    (1 << 12, Effort(16, 8, 1e-5)),
    (1 << 15, Effort(8, 8, 1e-5)),
    (1 << 18, Effort(6, 8, 1e-5)),
    (1 << 20, Effort(1, 8, 1e-5)),
    (math.inf, Effort(1, 5, 1e-4)),
)


def communities(
    context: Context,
    level: Level,
    seed: int,
    effort: Effort | None = None,
    *,
    known: KnownCommunities | None = None,
    matched: bool = False,
) -> tuple[Array, list[dict[str, Any]]]:
    """Find communities of large modularity, as the docstring of this module describes.

    Parameters
    ----------
    context : Context
        Receives the progress.
    level : Level
    seed : int
    effort : Effort, optional
        Limits of the search; by default, smaller graphs have more starts.
    known : KnownCommunities, optional
        Communities with which to begin. There is then only one start.
    matched : bool
        Whether every second start begins with a matching of the nodes instead of local moving; there are then at least
        two starts.

    Returns
    -------
    labels : int32 array of shape (n,)
        Communities, numbered by their smallest node; on every rank.
    report : list of dict
        State after each cycle: ``start``, ``cycle`` (0: before the first), ``n_clusters``, ``levels``, ``modularity``.
    """
    effort = effort or next(effort for entries, effort in EFFORTS if level.entries <= entries)
    report: list[dict[str, Any]] = []
    best, reached = None, -np.inf
    if known is not None or matched:
        effort = effort._replace(starts=1 if known is not None else max(2, effort.starts))
    for start in range(effort.starts):
        by_matching = matched and start % 2 == 1
        labels, modularity = _one_start(context, level, seed * 1009 + start, start, effort, report, known, by_matching)
        if modularity > reached:
            best, reached = labels, modularity
    assert best is not None
    return connected_parts(level, best), report


def _one_start(
    context: Context,
    level: Level,
    seed: int,
    start: int,
    effort: Effort,
    report: list[dict[str, Any]],
    known: KnownCommunities | None,
    by_matching: bool,
) -> tuple[Array, float]:
    if by_matching:
        first, _ = _cycle(level, None, seed * 16, NOISE)
    elif known is not None:
        first = local_moving(level, start_labels(level, known), seed)
    else:
        first = local_moving(level, level.kernels.xp.arange(level.n, dtype=np.int32), seed)
    labels, count = compact(level, first)
    modularity = modularity_of(level, labels)

    def note(cycle: int, levels: int) -> None:
        entry = {"start": start, "cycle": cycle, "n_clusters": count, "levels": levels, "modularity": modularity}
        report.append(entry)
        context.progress((start + cycle / effort.cycles) / effort.starts, modularity=modularity, n_clusters=count)

    note(0, 0)
    cycles = effort.cycles if known is None or _needs_cycles(level, labels, known) else 0
    for cycle in range(1, cycles + 1):
        salt = seed * 16 + cycle
        noise = NOISE if cycle > 1 else 0.0
        after, levels = _cycle(level, labels, salt, noise, members=known is not None)
        risen = modularity_of(level, after) - modularity
        if risen > 0:
            labels, count = compact(level, after)
            modularity = modularity + risen
        note(cycle, levels)
        if risen < effort.least_rise:
            break
    return labels, modularity_of(level, labels)


def _needs_cycles(level: Level, labels: Array, known: KnownCommunities) -> bool:
    """Return whether many nodes are new or in another community, or local moving cannot divide the known communities.

    No node leaves a community alone if its neighbours are all in it. So if no edge connects two communities, only a
    cycle can tell whether they should be divided.
    """
    if count_true(with_initial_ids(level, labels, known) != known.labels) > CHANGED * level.n:
        return True
    cross = np.array([level.kernels.graph.cross_weight(level.rows, labels)], np.int64)
    return not int(level.comm.all_reduce(cross)[0])


def _cycle(level: Level, labels: Array | None, salt: int, noise: float, *, members: bool = False) -> tuple[Array, int]:
    """Coarsen within the communities and refine back to the nodes; the given labels have no gaps.

    Without labels, all nodes may be matched, and each node of the coarsest graph begins as a community. If `members` is
    true, each community begins with the number of one of its nodes as its label. Then all other nodes can leave it and
    be alone, because a node can be alone only under its own number.
    """
    kept, top, within = coarsen(level, labels, salt=salt, noise=noise)
    levels = len(kept)
    if within is None:
        within = level.kernels.xp.arange(top.n, dtype=np.int32)
    elif members:
        community, first = np.unique(level.kernels.memory.to_host(within), return_index=True)
        number = np.zeros(int(community.max(initial=0)) + 1, np.int32)
        number[community] = first
        within = level.kernels.memory.to_device(number)[within]
    labels = local_moving(top, within, salt)
    while kept:
        finer, ids = kept.pop()
        labels = move_nodes(finer, labels[ids], salt)
    return labels, levels
