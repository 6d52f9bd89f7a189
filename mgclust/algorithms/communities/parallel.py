r"""Communities of large modularity in graphs of 10^6 to 10^10 edges, in parallel.

Exact greedy merging does one merge after the other. Here all nodes decide at once, and later steps on every scale
correct decisions that were made too early::

    local moving   nodes move until none gains; communities become nodes; repeat (Louvain, BGLL 2008)
    cycle          coarsen        within the communities, by matching mutual best choices (see `matching`)
                   local moving   from the coarsest graph
                   refine         on each kept level, from coarse to fine, the nodes of this level move once more
    ...            repeat, with other noise in the choices, until a cycle raises the modularity too little, at
                   most 7 times in large graphs
    parts          a community that has several connected parts is split into them, which never lowers the modularity

One start may end in a poor optimum, so small graphs have several starts of one cycle, which are then combined
(Ovelgönne and Geyer-Schulz 2013)::

    contract       nodes that are in the same community after every start become one node
    cycles         on this smaller graph, from the best start's communities and from single nodes
    cycles         on the whole graph, from the better of the two results

Guarantees. Modularity never falls from one cycle of a start to the next, and the combination is at least as good as the
best start. Every community is connected. Labels are bitwise identical on any number of ranks and on CPU and GPU,
because all sums are sums of integers and all ties have a rule. The result is the best partition that was found; its
modularity may be smaller than the largest possible modularity.

Cost, for E edges: about 12 E weights are read before the first cycle and 12 E in each cycle; 4 to 6 E are sorted in
each cycle. Memory: 30 to 60 bytes per edge. Exchanges: n int32 for each class of each sweep, and all weights of a level
once when it is contracted.

References
----------
V. D. Blondel et al., J. Stat. Mech. P10008 (2008); V. A. Traag et al., Sci. Rep. 9:5233 (2019);
R. Rotta, A. Noack, ACM J. Exp. Algorithmics 16:2.3 (2011); J. Riedy et al., PPAM 2011;
M. Ovelgönne, A. Geyer-Schulz, An ensemble learning strategy for graph clustering, Contemp. Math. 588 (2013).
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract, modularity_of
from mgclust.algorithms.communities.local_moving import compact, local_moving, move_nodes
from mgclust.algorithms.communities.matching import coarsen
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import all_true

__all__ = ["Effort", "communities", "connected_parts"]

Array = Any
NOISE = 0.5


class Effort(NamedTuple):
    """Limits of the search."""

    starts: int  # several starts have one cycle each, and are then combined
    cycles: int  # largest number of cycles on the whole graph; with several starts, after they have been combined
    least_rise: float  # smallest rise of modularity in a cycle after which another cycle follows
    few: float = 0.2  # see `rounds`


EFFORTS = (  # in graphs of up to so many entries (twice the edges)
    (1 << 12, Effort(10, 2, 1e-5)),
    (1 << 18, Effort(6, 2, 1e-5)),
    (1 << 20, Effort(2, 7, 1e-5)),
    (math.inf, Effort(1, 7, 1e-4, 0.35)),
)
AGREED_CYCLES = 4  # cycles on the graph of the nodes on which all starts agree


class Found(NamedTuple):
    """Communities, numbered without gaps."""

    labels: Array
    n_clusters: int
    modularity: float


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
        The combination of several starts is reported as further starts.
    """
    effort = effort or next(effort for entries, effort in EFFORTS if level.entries <= entries)
    search = _Search(context, effort)
    seeds = [seed * 1009 + start for start in range(effort.starts + 2)]
    if effort.starts == 1:
        best = search.start(level, seeds[0], effort.cycles)
    else:
        runs = [search.start(level, each, 1) for each in seeds[: effort.starts]]
        best = max(runs, key=lambda found: found.modularity)  # the first of equal ones
        ids, count = _agreed(level, [found.labels for found in runs])
        small = contract(level, ids, count)
        labels = level.kernels.xp.empty(count, np.int32)
        labels[ids] = best.labels
        combined = search.cycles(small, Found(labels, best.n_clusters, best.modularity), seeds[-2], 1, AGREED_CYCLES)
        again = search.start(small, seeds[-1], AGREED_CYCLES)
        best = max(combined, again, key=lambda found: found.modularity)
        best = search.cycles(
            level, Found(best.labels[ids], best.n_clusters, best.modularity), seeds[0], 2, effort.cycles
        )
    return connected_parts(level, best.labels), search.report


class _Search:
    """Starts and cycles, with a report of them.

    Parameters
    ----------
    context : Context
        Receives the progress.
    effort : Effort
    """

    def __init__(self, context: Context, effort: Effort) -> None:
        self.report: list[dict[str, Any]] = []
        self._context, self._effort, self._started = context, effort, 0

    def start(self, level: Level, seed: int, cycles: int) -> Found:
        """Find communities by local moving from single nodes, and then by cycles."""
        labels, count = compact(level, local_moving(level, level.kernels.xp.arange(level.n, dtype=np.int32), seed))
        return self.cycles(level, Found(labels, count, modularity_of(level, labels)), seed, 1, cycles)

    def cycles(self, level: Level, found: Found, seed: int, first: int, count: int) -> Found:
        """Improve communities by at most `count` cycles, of which the first has the number `first`."""
        self._note(found, first - 1, 0)
        for cycle in range(first, first + count):
            noise = NOISE if cycle > 1 else 0.0
            after, levels = _cycle(level, found.labels, seed * 16 + cycle, noise, self._effort.few)
            risen = modularity_of(level, after) - found.modularity
            if risen > 0:
                found = Found(*compact(level, after), found.modularity + risen)
            self._note(found, cycle, levels)
            if risen < self._effort.least_rise:
                break
        self._started += 1
        return found._replace(modularity=modularity_of(level, found.labels))

    def _note(self, found: Found, cycle: int, levels: int) -> None:
        starts = self._effort.starts
        entry = {"start": self._started, "cycle": cycle, "n_clusters": found.n_clusters, "levels": levels}
        self.report.append(entry | {"modularity": found.modularity})
        done = cycle / self._effort.cycles if starts == 1 else self._started / (starts + 3)
        self._context.progress(done, modularity=found.modularity, n_clusters=found.n_clusters)


def _agreed(level: Level, partitions: list[Array]) -> tuple[Array, int]:
    """Number the groups of nodes that are in the same community of every partition; labels are below level.n."""
    xp = level.kernels.xp
    ids = partitions[0]
    for labels in partitions[1:]:
        keys = ids.astype(np.int64) * level.n + labels
        order = xp.argsort(keys)
        keys = keys[order]
        steps = xp.zeros(level.n, np.int32)
        steps[1:] = keys[1:] != keys[:-1]
        ids = xp.empty(level.n, np.int32)
        ids[order] = xp.cumsum(steps, dtype=np.int32)
    return ids, int(ids.max()) + 1


def _cycle(level: Level, labels: Array, salt: int, noise: float, few: float) -> tuple[Array, int]:
    """Coarsen within the communities and refine back to the nodes; the given labels have no gaps."""
    kept, top, within = coarsen(level, labels, salt=salt, noise=noise, few=few)
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
