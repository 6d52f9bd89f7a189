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

One start may end in a poor optimum, so graphs of up to half a million edges have several starts of one cycle, which are
then combined (Ovelgönne and Geyer-Schulz 2013)::

    contract       nodes that are in the same community after every start become one node
    cycles         on this smaller graph, from the best start's communities and from single nodes
    cycles         on the whole graph, from the better of the two results

For the constant Potts model, every second start begins with a cycle that matches all nodes. At high resolutions, most
communities have two or three nodes, and single moves seldom find the heaviest pairs. Starts that are combined have two
cycles. Larger graphs have two starts, of which the better is kept. One more start moves the nodes in 64 classes,
because all leaves of a class join their hub at once, and too many of them lower the quality. Graphs of up to 131,072
edges also have a second set of 16 starts, which moves nodes in 16 classes and is combined separately. At the end, the
nodes of these graphs move once more in 1,024 classes, that is, almost one after the other.

If communities are known, local moving begins with them, and there is only this start. Its first sweep checks all nodes,
because the old graph is not known; later sweeps check only neighbours of moved nodes. Then communities move as a whole;
if this lowers the modularity, only the moves of nodes are kept. Cycles follow only in three cases: more than 5% of the
nodes are new or have changed their community, no edge connects two communities, or the simultaneous moves of nodes have
lowered the modularity. So a small update reads the edges about seven times after they are sorted: in one sweep, three
searches for connected parts, one contraction, and two sums of the weight between communities.

Guarantees. Modularity never falls from one cycle of a start to the next, and the combination is at least as good as the
best start. Every community is connected, except communities of fixed nodes that no path inside the community connects.
Labels are bitwise identical on any number of ranks and on CPU and GPU, because all sums are sums of integers and all
ties have a rule. The result is the best partition that was found; its modularity may be smaller than the largest
possible modularity.

Graphs of 134 million edges or more have half as many rounds of matching, and fewer levels are kept, because time and
memory matter more; their modularity may be slightly lower.

Cost, for E edges: about 12 E weights are read before the first cycle and 12 E in each cycle; 6 E are summed by pairs of
groups in each cycle. Memory: about 50 bytes per edge. Exchanges: n int32 for each class of each sweep, and all weights
of a level once when it is contracted.

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

from mgclust.algorithms.communities.continuation import (
    KnownCommunities,
    connected_parts,
    start_labels,
    with_initial_ids,
)
from mgclust.algorithms.communities.levels import Level, contract, modularity_of
from mgclust.algorithms.communities.local_moving import compact, local_moving, move_nodes
from mgclust.algorithms.communities.matching import coarsen
from mgclust.algorithms.communities.search_memory import Found, SearchMemory, StartState
from mgclust.engine.spmd import Context
from mgclust.kernels.masks import count_true

__all__ = ["Effort", "communities"]

Array = Any
NOISE = 0.5
CHANGED = 0.05  # cycles follow if more than this fraction of the nodes is not in its known community


class Effort(NamedTuple):
    """Limits of the search."""

    starts: int
    cycles: int  # largest number of cycles of a start; starts that are combined have fewer
    least_rise: float  # smallest rise of modularity in a cycle after which another cycle follows
    combined: int = 0  # largest number of cycles after starts are combined; 0: the best start is kept
    classes: int = 4  # see `move_nodes`


EFFORTS = (  # largest number of entries (twice the edges) of a graph, and its limits
    (1 << 12, Effort(10, 8, 1e-5, combined=2, classes=2)),
    (1 << 18, Effort(6, 8, 1e-5, combined=2, classes=2)),
    (1 << 20, Effort(2, 8, 1e-5, combined=7, classes=2)),
    (math.inf, Effort(1, 5, 1e-4)),
)
HUB_CLASSES = 64  # classes of one more start for the constant Potts model, for hubs that too many nodes join at once
START_CYCLES, MATCHED_CYCLES = 1, 2  # cycles of starts that are combined; the second if every second start is matched
# A second set of starts for the constant Potts model, in graphs with more than two starts. Moves in more classes suit
# graphs with hubs, and fewer classes suit other graphs.
MORE_STARTS, MORE_CLASSES = 16, 16
NEAR_ONE_CLASSES = 1024  # classes of the last moves in small graphs, whose nodes then move almost one by one
AGREED_CYCLES = 4  # cycles on the graph of the nodes on which all starts agree


def communities(
    context: Context,
    level: Level,
    seed: int,
    effort: Effort | None = None,
    *,
    known: KnownCommunities | None = None,
    matched: bool = False,
    memory: SearchMemory | None = None,
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
    memory : SearchMemory, optional
        Keeps the state for checkpoints, and has the state of an interrupted run.

    Returns
    -------
    labels : int32 array of shape (n,)
        Communities, numbered by their smallest node; on every rank.
    report : list of dict
        State after each cycle: ``start``, ``cycle`` (0: before the first), ``n_clusters``, ``levels``, ``modularity``.
        The combination of several starts is reported as further starts.
    """
    if memory is not None and (ended := memory.next_search()) is not None:
        return ended
    effort = effort or next(effort for entries, effort in EFFORTS if level.entries <= entries)
    if known is not None:
        effort = effort._replace(starts=1, combined=0)
    elif matched:
        effort = effort._replace(starts=max(2, effort.starts))
    more = matched and known is None and effort.starts > 2 and effort.combined > 0
    further = (matched and known is None) + (MORE_STARTS + 3 if more else 0)
    search = _Search(context, effort, memory, further)
    if known is not None:
        best = search.update(level, known, seed * 1009)
    else:
        seeds = [seed * 1009 + start for start in range(effort.starts)]
        cycles = effort.cycles
        if effort.combined:
            cycles = MATCHED_CYCLES if matched else START_CYCLES
        best = search.several(level, seeds, cycles, matched=matched)
        if matched:
            others = [search.start(level, seeds[0], cycles, classes=HUB_CLASSES)]
            if more:
                seeds = [seed * 1009 + start for start in range(MORE_STARTS)]
                others.append(search.several(level, seeds, cycles, matched=True, classes=MORE_CLASSES))
            best = max(best, *others, key=lambda found: found.modularity)
            if more:
                first = _by_member(level, best.labels)
                best = _better(level, move_nodes(level, first, seeds[0], NEAR_ONE_CLASSES), None, first)
    labels = connected_parts(level, best.labels)
    if memory is not None:
        memory.end(labels, search.report)
    return labels, search.report


class _Search:
    """Starts and cycles, with a report of them.

    Parameters
    ----------
    context : Context
        Receives the progress.
    effort : Effort
    memory : SearchMemory or None
        See `communities`.
    further : int
        Number of starts in addition to those of `effort`.
    """

    def __init__(self, context: Context, effort: Effort, memory: SearchMemory | None, further: int) -> None:
        self.report: list[dict[str, Any]] = [] if memory is None else memory.resumed_report()
        self._context, self._effort, self._memory = context, effort, memory
        self._started, self._all = 0, effort.starts + (3 if effort.combined else 0) + further

    def several(
        self, level: Level, seeds: list[int], cycles: int, *, matched: bool, classes: int | None = None
    ) -> Found:
        """Return the best of several starts, combined if `effort` has combined starts."""
        runs = [
            self.start(level, seed, cycles, by_matching=matched and number % 2 == 1, classes=classes)
            for number, seed in enumerate(seeds)
        ]
        best = max(runs, key=lambda found: found.modularity)  # the first of equal ones
        return self.combine(level, runs, best, seeds[0]) if self._effort.combined else best

    def start(
        self, level: Level, seed: int, cycles: int, *, by_matching: bool = False, classes: int | None = None
    ) -> Found:
        """Find communities from single nodes, by a matching or by local moving, and then by cycles."""
        if (resumed := self._resumed()) is not None:
            return self._cycles(level, resumed.found, seed, 1, cycles)
        alone, groups = _alone(level), None
        if by_matching:
            labels, _ = _cycle(level, None, seed * 16, NOISE, self._effort)
        else:
            labels, groups = local_moving(level, alone, seed, classes or self._effort.classes)
        return self._cycles(level, _better(level, labels, groups, alone), seed, 1, cycles)

    def update(self, level: Level, known: KnownCommunities, seed: int) -> Found:
        """Find communities by local moving from known communities, and then by cycles if they are needed."""
        if (resumed := self._resumed()) is not None:
            return self._cycles(level, resumed.found, seed, 1, self._effort.cycles, members=True)
        first, classes = start_labels(level, known), self._effort.classes
        ids, count = compact(level, move_nodes(level, first, seed, classes))
        near = contract(level, ids, count)
        labels, groups = local_moving(near, _alone(near), seed, classes)
        found = _better(near, labels, groups, _alone(near))
        earlier = modularity_of(level, first)
        if found.modularity < earlier:
            found, needed = Found(*compact(level, first), earlier), True
        else:
            found = found._replace(labels=found.labels[ids])
            # A single node does not leave a community that contains all its neighbours. So if no edge connects two
            # communities, only a cycle can find out whether they should be divided.
            needed = not groups.entries or _many_changed(level, found.labels, known)
        cycles = self._effort.cycles if needed else 0
        return self._cycles(level, found, seed, 1, cycles, members=True)

    def combine(self, level: Level, runs: list[Found], best: Found, seed: int) -> Found:
        """Find communities from those of several starts, of which one is the best; `seed` is that of the first start.

        Nodes that are in the same community after every start become one node of a smaller graph.
        """
        ids, count = _agreed(level, [found.labels for found in runs])
        small = contract(level, ids, count)
        labels = level.kernels.xp.empty(count, np.int32)
        labels[ids] = best.labels
        kept = self._cycles(small, best._replace(labels=labels), seed + len(runs), 1, AGREED_CYCLES)
        again = self.start(small, seed + len(runs) + 1, AGREED_CYCLES)
        best = max(kept, again, key=lambda found: found.modularity)
        return self._cycles(level, best._replace(labels=best.labels[ids]), seed, 2, self._effort.combined)

    def _cycles(self, level: Level, found: Found, seed: int, first: int, count: int, *, members: bool = False) -> Found:
        """Improve communities by at most `count` cycles, of which the first has the number `first`."""
        last = first + count - 1
        if (resumed := self._resumed()) is None:
            self._note(found, first - 1, last, 0)
            resumed = self._keep(found, first - 1, done=last < first)
        found = resumed.found
        for cycle in () if resumed.done else range(resumed.cycle + 1, last + 1):
            noise = NOISE if cycle > 1 else 0.0
            after, levels = _cycle(level, found.labels, seed * 16 + cycle, noise, self._effort, members=members)
            modularity = modularity_of(level, after)
            risen = modularity - found.modularity
            if risen > 0:
                found = Found(*compact(level, after), modularity)
            self._note(found, cycle, last, levels)
            if self._keep(found, cycle, done=risen < self._effort.least_rise).done:
                break
        self._started += 1
        return found

    def _resumed(self) -> StartState | None:
        """Return the state of this start before an interruption, or None."""
        return None if self._memory is None else self._memory.resumed(self._started)

    def _keep(self, found: Found, cycle: int, *, done: bool) -> StartState:
        """Keep the state after a cycle."""
        state = StartState(found, cycle, done)
        if self._memory is not None:
            self._memory.keep(self._started, state, self.report)
        return state

    def _note(self, found: Found, cycle: int, last: int, levels: int) -> None:
        """Report the state after a cycle; the start has at most `last` cycles."""
        entry = {"start": self._started, "cycle": cycle, "n_clusters": found.n_clusters, "levels": levels}
        self.report.append(entry | {"modularity": found.modularity})
        done = (self._started + cycle / max(last, 1)) / self._all
        self._context.progress(done, modularity=found.modularity, n_clusters=found.n_clusters)


def _alone(level: Level) -> Array:
    """Return labels that put each node into a community of its own."""
    return level.kernels.xp.arange(level.n, dtype=np.int32)


def _by_member(level: Level, labels: Array) -> Array:
    """Label each community with the number of its first node, so that each other node can become a new community."""
    community, first = np.unique(level.kernels.memory.to_host(labels), return_index=True)
    number = np.zeros(int(community.max(initial=0)) + 1, np.int32)
    number[community] = first
    return level.kernels.memory.to_device(number)[labels]


def _better(level: Level, labels: Array, groups: Level | None, before: Array) -> Found:
    """Return the communities after the moves, or before the moves if their modularity was larger; labels are below n.

    Nodes that move simultaneously do not take each other's moves into account, so together they may lower the
    modularity. `groups` is the contracted graph of the communities after the moves, or None. Their modularity is
    computed from `groups` if possible, because it is smaller than `level`.
    """
    modularity = modularity_of(level, labels) if groups is None else modularity_of(groups, _alone(groups))
    earlier = modularity_of(level, before)
    if modularity < earlier:
        return Found(*compact(level, before), earlier)
    return Found(*compact(level, labels), modularity)


def _many_changed(level: Level, labels: Array, known: KnownCommunities) -> bool:
    """Return whether more than the fraction `CHANGED` of the nodes are new or in another community."""
    return count_true(with_initial_ids(level, labels, known) != known.labels) > CHANGED * level.n


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


def _cycle(
    level: Level, labels: Array | None, salt: int, noise: float, effort: Effort, *, members: bool = False
) -> tuple[Array, int]:
    """Coarsen within the communities and refine back to the nodes; the given labels have no gaps.

    Without labels, all nodes may be matched, and each node of the coarsest graph begins as a community. If `members` is
    true, each community begins with the number of one of its nodes as its label. Then all other nodes can leave it and
    be alone, because a node can be alone only under its own number.
    """
    kept, top, within = coarsen(level, labels, salt=salt, noise=noise)
    levels = len(kept)
    if within is None:
        within = _alone(top)
    elif members:
        within = _by_member(level, within)
    labels, _ = local_moving(top, within, salt, effort.classes)
    while kept:
        finer, ids = kept.pop()
        labels = move_nodes(finer, labels[ids], salt, effort.classes)
    return labels, levels
