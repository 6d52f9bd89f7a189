"""Limits of a device at which neighbour lists become longer or shorter, or give way to columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["PACES", "Pace"]


@dataclass(frozen=True)
class Pace:
    """Costs and limits of a device.

    On a GPU a row that is undecided stops all others, and reading far in a list costs little.
    """

    long_list: int  # Up to that many elements a list is made longer by `LIST_GROWTH` again each time.
    nearly_short: float  # Lists in use to that share are made longer together with those that are too short.
    # Active columns are chosen where one of so many rows has undecided maxima, and are at most so many.
    rows_a_choice: int
    most_active: int
    # They are chosen, too, where rows read more elements in their lists than that on average, beside own ones.
    read_far: int
    # Pairs that matrices would pass while undecided rows are decided: because all wait, and for each of their pairs.
    stop_pairs: float
    search_pace: float
    # Similarities that longer lists would take for each one of chosen columns, from which on these are chosen at once.
    choice_pace: float
    least_saved: int  # bytes: lists become shorter where that gives back more
    # With more own elements than such a share of what there is room for, or of all pairs, few columns take the lists'
    # place.
    most_own: float
    most_share: float


PACES = {
    "cpu": Pace(
        long_list=0,
        nearly_short=math.inf,
        rows_a_choice=64,
        most_active=128,
        read_far=4,
        stop_pairs=0.0,
        search_pace=0.0,
        choice_pace=4.0,
        least_saved=16 << 20,
        most_own=0.5,
        most_share=math.inf,
    ),
    "cuda": Pace(
        long_list=4096,
        nearly_short=0.6,
        rows_a_choice=1 << 40,
        most_active=2048,
        read_far=64,
        stop_pairs=1e9,
        search_pace=6.0,
        choice_pace=4.0,
        least_saved=1 << 29,
        most_own=0.2,
        most_share=0.02,
    ),
}
