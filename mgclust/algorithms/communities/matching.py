r"""Coarsening by matching: nodes that choose each other become one node.

Each node chooses, among neighbours with dQ > 0, the one with the largest dQ / sqrt(d_i d_j). Ties are decided by a hash
of the pair, then by the lower number. Two nodes that choose each other merge. If only few nodes merge in this way,
a node also joins the group of the node that it chose. This is needed at hubs, which many nodes choose but which choose
only one: without this rule, a star of a thousand leaves would take a thousand rounds. Then a sort sums the weights
between the groups, and the next round begins.

A round reads every weight once and sorts the weights that are left. The exchange is n int32 of choices, and every
weight that belongs to another rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract
from mgclust.base.hashing import GOLDEN

__all__ = ["Round", "coarsen", "rounds"]

Array = Any
FEW = 0.2  # if a smaller fraction of the nodes that could be matched is matched, others join their choice's group
KEPT = 0.6  # a level is kept when its nodes are at most this fraction of the last kept level
KEPT_LARGE, LARGE = 0.25, 1 << 28  # the same fraction for graphs of so many entries that levels would fill the memory


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
        Nodes merge only with nodes of the same number.
    salt : int
        Determines ties and noise.
    noise : float
        Each score is lowered by a random fraction up to this, from a hash of the pair.
    any_sign : bool
        Whether to merge even if that lowers the modularity.

    Yields
    ------
    Round
    """
    kernels, xp = level.kernels, level.kernels.xp
    number = 0
    while True:
        partner = xp.empty(level.n, np.int32)
        number += 1
        kernels.graph.best_partners(
            level.rows, level.strength, within, gain=level.gain, any_sign=any_sign, noise=noise,
            salt=(salt * 65536 + number) * GOLDEN % 2**64, out=partner,
        )  # fmt: skip
        level.comm.queue_gather(partner, level.bounds)
        representative = kernels.graph.match_mutual(partner, share=FEW)
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
    """Coarsen until no node has a choice; keep a level if it has at most 0.6 times the nodes of the last kept one.

    Returns
    -------
    kept : list of (Level, int32 array)
        From fine to coarse: the level, and the node of the next kept level for each of its nodes.
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
