r"""Coarsening by matching: nodes that choose each other become one node.

Each node chooses, among neighbours with dQ > 0, the neighbour with the largest dQ / sqrt(d_i d_j). Ties are decided by
a hash of the pair, then by the lower number. Two nodes that choose each other merge. If only few nodes merge in this
way, a node also joins the group of the node that it chose. This rule is needed at hubs: many nodes choose a hub, but
the hub chooses only one of them. Without the rule, a star of a thousand leaves would take a thousand rounds. Then the
weights between the groups are sorted and summed, and the next round begins.

A round reads every weight once and sorts the weights that are left. The ranks exchange the n choices as int32, and
every weight that belongs to another rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract
from mgclust.base.hashing import GOLDEN

__all__ = ["Round", "coarsen", "rounds"]

Array = Any
FEW = 0.2  # if less than this fraction of the nodes with a choice is matched, the others join the group of their choice
KEPT = 0.6  # a level is kept if it has at most this fraction of the nodes of the last kept level
# The same for graphs of LARGE entries or more. Nodes always join, so that there are half as many rounds. Fewer levels
# are kept, because more levels would fill the memory.
LARGE, FEW_LARGE, KEPT_LARGE = 1 << 28, 1.0, 0.25


class Round(NamedTuple):
    """Merges of one round."""

    level: Level  # the graph before the merges
    partner: Array
    representative: Array
    ids: Array  # group of each node
    after: Level  # the graph after the merges
    within: Array | None  # `within` of the nodes of `after`


def rounds(level: Level, within: Array | None, *, salt: int, noise: float, any_sign: bool = False) -> Iterator[Round]:
    """Merge round after round until no node has a choice.

    Parameters
    ----------
    level : Level
    within : int32 array of shape (n,), or None
        A number for each node. Nodes merge only if their numbers are equal.
    salt : int
        Determines ties and noise.
    noise : float
        Largest fraction by which a score is lowered at random. A hash of the pair determines the fraction.
    any_sign : bool
        Whether nodes also merge if this lowers the modularity.

    Yields
    ------
    Round
    """
    kernels, xp = level.kernels, level.kernels.xp
    few = FEW if level.entries < LARGE else FEW_LARGE
    number = 0
    while True:
        partner = xp.empty(level.n, np.int32)
        number += 1
        kernels.graph.best_partners(
            level.rows, level.strength, within, gain=level.gain, any_sign=any_sign, noise=noise,
            salt=(salt * 65536 + number) * GOLDEN % 2**64, out=partner,
        )  # fmt: skip
        level.comm.queue_gather(partner, level.bounds)
        representative = kernels.graph.match_mutual(partner, share=few)
        ids, count = kernels.graph.relabel(representative)
        if count == level.n:
            return
        after = contract(level, ids, count)
        if within is not None:
            whole, within = within, xp.empty(count, np.int32)
            within[ids] = whole
        yield Round(level, partner, representative, ids, after, within)
        level = after


def coarsen(
    level: Level, within: Array | None, *, salt: int, noise: float
) -> tuple[list[tuple[Level, Array]], Level, Array | None]:
    """Coarsen until no node has a choice; keep only levels that are much smaller than the last kept level (`KEPT`).

    Returns
    -------
    kept : list of (Level, int32 array)
        From fine to coarse: a level, and, for each of its nodes, the node of the next kept level.
    top : Level
    within : int32 array of shape (top.n,), or None
    """
    kept: list[tuple[Level, Array]] = []
    base, ids, top = level, None, level
    share = KEPT if level.entries < LARGE else KEPT_LARGE
    for step in rounds(level, within, salt=salt, noise=noise):
        ids = step.ids if ids is None else step.ids[ids]
        top, within = step.after, step.within
        if top.n <= share * base.n:
            kept.append((base, ids))
            base, ids = top, None
    if ids is not None:
        kept.append((base, ids))
    return kept, top, within
