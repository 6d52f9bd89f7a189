"""Costs and limits of a device, which decide when neighbour lists become longer or shorter, or become columns."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["PACES", "Pace"]


@dataclass(frozen=True)
class Pace:
    """Costs and limits of a device.

    On a GPU, an undecided row stops all other rows, and reading far in a list is cheap.
    """

    long_list: int  # up to this length, each extension of a list multiplies its growth by `LIST_GROWTH`
    nearly_short: float  # a list with more than this fraction in use is extended together with lists that are too short
    # Active columns are chosen if more than one in `rows_a_choice` rows has undecided maxima. At most `most_active`
    # columns are active.
    rows_a_choice: int
    most_active: int
    # Active columns are also chosen if rows read on average more elements than this, in addition to their own elements.
    read_far: int
    # Cost of undecided rows, in pairs of a matrix: `stop_pairs` per stop, because all rows wait, and `search_pace` per
    # pair of an undecided row.
    stop_pairs: float
    search_pace: float
    # Active columns are chosen at once if longer lists would need this many times the similarities of the columns.
    choice_pace: float
    least_saved: int  # lists become shorter only if this frees more than this number of bytes
    # Few columns replace the lists if own elements exceed `most_own` of the available room, or `most_share` of all
    # pairs.
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
