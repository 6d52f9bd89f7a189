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

Guarantees. Modularity never falls from one cycle to the next. Every community is connected. Labels are bitwise
identical on any number of ranks and on CPU and GPU, because all sums are sums of integers and all ties have a rule. The
result is the best partition that was found; its modularity may be smaller than the largest possible modularity.

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

from mgclust.algorithms.communities.levels import Level, modularity_of
from mgclust.algorithms.communities.local_moving import compact, local_moving, move_nodes
from mgclust.algorithms.communities.matching import coarsen
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import all_true

__all__ = ["Effort", "communities", "connected_parts"]

Array = Any
NOISE = 0.5


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
    context: Context, level: Level, seed: int, effort: Effort | None = None
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
    for start in range(effort.starts):
        labels, modularity = _one_start(context, level, seed * 1009 + start, start, effort, report)
        if modularity > reached:
            best, reached = labels, modularity
    assert best is not None
    return connected_parts(level, best), report


def _one_start(
    context: Context, level: Level, seed: int, start: int, effort: Effort, report: list[dict[str, Any]]
) -> tuple[Array, float]:
    xp = level.kernels.xp
    labels, count = compact(level, local_moving(level, xp.arange(level.n, dtype=np.int32), seed))
    modularity = modularity_of(level, labels)

    def note(cycle: int, levels: int) -> None:
        entry = {"start": start, "cycle": cycle, "n_clusters": count, "levels": levels, "modularity": modularity}
        report.append(entry)
        context.progress((start + cycle / effort.cycles) / effort.starts, modularity=modularity, n_clusters=count)

    note(0, 0)
    for cycle in range(1, effort.cycles + 1):
        salt = seed * 16 + cycle
        after, levels = _cycle(level, labels, salt, NOISE if cycle > 1 else 0.0)
        risen = modularity_of(level, after) - modularity
        if risen > 0:
            labels, count = compact(level, after)
            modularity = modularity + risen
        note(cycle, levels)
        if risen < effort.least_rise:
            break
    return labels, modularity_of(level, labels)


def _cycle(level: Level, labels: Array, salt: int, noise: float) -> tuple[Array, int]:
    """Coarsen within the communities and refine back to the nodes; the given labels have no gaps."""
    kept, top, within = coarsen(level, labels, salt=salt, noise=noise)
    assert within is not None
    levels = len(kept)
    labels = local_moving(top, within, salt)
    while kept:
        finer, ids = kept.pop()
        labels = move_nodes(finer, labels[ids], salt)
    return labels, levels


def connected_parts(level: Level, labels: Array) -> Array:
    """Split communities into their connected parts, numbered by their smallest node.

    Parameters
    ----------
    level : Level
    labels : int32 array of shape (n,)

    Returns
    -------
    int32 array of shape (n,)
    """
    xp = level.kernels.xp
    roots = xp.arange(level.n, dtype=np.int32)
    while True:
        before = roots.copy()
        level.kernels.graph.propagate_roots(level.rows, labels, roots)
        level.comm.queue_reduce(roots, "min")
        roots = roots[roots]
        if all_true(roots == before):
            return level.kernels.graph.relabel(roots)[0]
