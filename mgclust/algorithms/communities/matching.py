r"""Coarsening by matching: nodes that choose each other become one.

Each node chooses the neighbour with the largest dQ / sqrt(d_i d_j) among those with dQ > 0 (ties: a hash of the pair,
then the lower number). Two nodes that choose each other merge. Where only few do (hubs, which many choose and which
choose one), those whose choice merges follow it, or a star of a thousand leaves would take a thousand rounds. Weights
between the groups are then summed by a sort, and the next round begins.

A round reads every weight once and sorts those that are left; the exchange is n int32 of choices, and every weight
that belongs to another rank.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.algorithms.communities.levels import Level, contract
from mgclust.base.hashing import GOLDEN

__all__ = ["Round", "coarsen", "rounds"]

Array = Any
FEW = 0.2  # of the nodes that could be matched; where fewer are, others follow
KEPT = 0.6  # nodes of one kept level for each of the one before
KEPT_LARGE, LARGE = 0.25, 1 << 28  # of graphs so large that levels crowd the memory


class Round(NamedTuple):
    """Merges of one round."""

    level: Level  # before
    partner: Array
    representative: Array
    ids: Array  # group of each node
    after: Level
    within: Array | None  # of the nodes after


def rounds(level: Level, within: Array | None, *, salt: int, noise: float, any_sign: bool = False) -> Iterator[Round]:
    """Merge round after round until no node has a choice.

    Parameters
    ----------
    level : Level
    within : int32 array of shape (n,), or None
        Nodes merge only with those of the same number.
    salt : int
        Decides ties and noise.
    noise : float
        Each score is lowered by a share of up to this, drawn for the pair from a hash.
    any_sign : bool
        Merge although it lowers the modularity.

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
    """Coarsen as far as it goes, and keep a level whenever the nodes have become 0.6 times as many.

    Returns
    -------
    kept : list of (Level, int32 array)
        From fine to coarse: the level, and the node of the next one for each of its nodes.
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
