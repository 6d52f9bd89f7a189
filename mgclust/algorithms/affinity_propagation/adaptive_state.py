"""The state of an adaptive scan: its constants, what it has seen, what it decides. `adaptive_scan` has the rules."""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from mgclust.base.errors import InputError

__all__ = [
    "ALWAYS",
    "MAX_PACE",
    "MAX_RETURNS",
    "MAX_RISES",
    "MAX_UNSTABLE",
    "MEAN_OF",
    "MIN_PACE",
    "PACE_DROP",
    "PACE_GROWTH",
    "PROFILES",
    "RETURN_DROP",
    "RISE",
    "RISE_STRIDES",
    "STRIDES_AHEAD",
    "Decision",
    "Profile",
    "ScanCandidate",
    "ScanState",
    "Stats",
    "start",
]

MEAN_OF = 6  # iterations in the running mean of K
STRIDE = 4  # iterations of profile "fast" from one step to the next
STRIDES_AHEAD = 8  # above the range of K the pace grows while the range is more strides away at that of the last one
RISE, RISE_STRIDES, MAX_RISES = 0.25, 5, 12  # below the upper end at first: to which share, how often, how many times
MIN_PACE, MAX_PACE = 0.006, 0.4  # of its steps, as a share of the preference
PACE_GROWTH, PACE_DROP = 1.5, 0.5  # its pace after a stride in which K stayed, and after one in which it did not
MAX_RETURNS, RETURN_DROP = 3, 0.1  # steps taken back in a row for numbers that were skipped, and its pace after one
MAX_UNSTABLE = 100  # clusters up to which it records solutions that do not stay
SPREAD_OF = 50  # iterations whose K tell how wide an escape must be
# Of a scan, before its first iteration.
GIVEN = ("profile", "n", "median", "max_iter", "fixed", "wait_limit", "low", "high")
ALWAYS = 1 << 62  # a run length longer than any: before any flag was set, all were alike for ever


@dataclass(frozen=True)
class Profile:
    """The constants in which the two descriptions of the method differ, or that a test may wish to shorten."""

    name: str
    # rest, half_rest: iterations without a change of any flag that count as being at rest, and as half so; 0: there is
    # no half
    rest: int
    half_rest: int
    calm_share: float  # share of calm marks below which it is one
    stall: int  # iterations without a change that count as an oscillation, whatever the marks; 0: none do
    damping_limit: float
    # the simpler rules of profile "paper": how far a confirmation and an oscillation move damping and preference, and
    # that nothing is recorded in between
    plain: bool
    delay: int = 10  # times in a row at rest that make a confirmation
    first_decision: int = 100  # no decision falls before this iteration
    window: int = 40  # iterations that are watched for oscillation
    # damping, damping_limit: initial damping, and the most that oscillations alone raise it to
    damping: float = 0.5
    step: float = 0.01  # step of the preference, in medians
    stride: int = 0  # iterations from one step to the next, whatever rests; 0: a step follows a confirmation

    def unit(self, median: float, n_clusters: int) -> float:
        """Step of the preference at this many clusters: finer where there are many."""
        return self.step * median / (0.1 * math.sqrt(n_clusters + 50))


PROFILES = {
    "code": Profile("code", 50, 15, calm_share=0.66, stall=150, damping_limit=0.9, plain=False),
    "paper": Profile("paper", 40, 0, calm_share=2 / 3, stall=0, damping_limit=0.85, plain=True),
    "fast": Profile(
        "fast",
        8,
        0,
        calm_share=0.2,
        stall=0,
        damping_limit=0.9,
        plain=True,
        first_decision=40,
        damping=0.7,
        stride=STRIDE,
    ),
}


@dataclass(frozen=True)
class Stats:
    """Outcome of one iteration: how many exemplars, and whether they are those of the iteration before."""

    n_exemplars: int
    unchanged: bool


class ScanCandidate(NamedTuple):
    """A solution worth scoring, and how it was come by."""

    n_clusters: int
    iteration: int
    strength: int
    preference: float
    damping: float
    confirmed: bool


class Decision(NamedTuple):
    """Consequences of one iteration.

    `record`: keep its exemplars as the solution of so many clusters. `renoise`: draw new noise on all similarities
    before the next one. `event`: a line for the log, or None.
    """

    record: bool
    strength: int
    stop: bool
    renoise: bool
    event: str | None
    used_damping: float
    used_preference: float


@dataclass
class ScanState:
    """State of a scan; made by `start`, moved on by `step`."""

    profile: Profile
    n: int
    median: float
    max_iter: int
    fixed: bool
    # damping, preference: of the next one
    damping: float
    preference: float
    unit: float
    marks: deque[bool]
    wait_limit: int  # iterations at rest that end the scan
    # low, high: numbers of clusters that are wanted; high is 0 where all are
    low: int
    high: int
    hastens: bool  # K has not come down to high yet
    rises: int = 0  # of the preference so far, since K was not above high; MAX_RISES: no more
    nearest: tuple[int, int] = (0, 0)  # the numbers above high and below low that came nearest; 0: none
    # steps taken back: how many in a row, at which K that had skipped numbers; from which number on there are no more
    returns: int = 0
    returned_at: int = 0
    given_up: int = MAX_UNSTABLE + 1
    iteration: int = 0  # iterations done
    phase: int = 1  # 1 until the first confirmation, then 2
    run: int = ALWAYS  # iterations over which no flag has changed
    held: int = 0  # times in a row at rest since the last confirmation
    half_held: int = 0
    confirmations: int = 0  # in a row
    half_confirmations: int = 0
    confirmed_at: int = 0  # number of clusters of the last confirmation
    repeats: int = 0  # confirmations in a row that found that number again
    waited: int = 0
    pace: float = MIN_PACE  # of profile "fast"
    oscillated: bool = False
    escapes: float = 2.0
    top: int = 0  # most clusters among what was confirmed or recorded
    counts: deque[int] = field(default_factory=lambda: deque([0], maxlen=SPREAD_OF))
    sums: deque[int] = field(default_factory=lambda: deque([0] * MEAN_OF, maxlen=MEAN_OF))
    # the best solution so far at each number of clusters
    candidates: dict[int, ScanCandidate] = field(default_factory=dict)
    latest: ScanCandidate | None = (
        None  # the last iteration's solution; its strength is 0 where it was not worth recording
    )
    stopped: str = ""  # why the scan is over; empty while it is not

    def wanted(self, k: int) -> bool:
        """Tell whether so many clusters are wanted."""
        return self.low <= k and (not self.high or k <= self.high)

    def to_plain(self) -> dict[str, Any]:
        """Values that iterations have changed, in types that JSON knows."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in GIVEN}
        plain |= {name: list(plain[name]) for name in ("marks", "counts", "sums")}
        return {**plain, "candidates": list(self.candidates.values())}

    def resume(self, told: dict[str, Any]) -> None:
        """Resume from `to_plain`; this is a state that `start` made with the same arguments."""
        for name, value in told.items():
            if name in ("marks", "counts", "sums"):
                getattr(self, name).clear()
                getattr(self, name).extend(value)
            elif name == "candidates":
                self.candidates = {each[0]: ScanCandidate(*each) for each in value}
            elif name == "nearest":
                self.nearest = (value[0], value[1])
            elif name == "latest":
                self.latest = None if value is None else ScanCandidate(*value)
            else:
                setattr(self, name, value)


def start(
    profile: Profile | str,
    n: int,
    median: float,
    preference: float | None = None,
    *,
    max_iter: int = 50_000,
    fixed: bool = False,
    n_clusters_range: tuple[int, int] | None = None,
) -> ScanState:
    """Begin a scan of n rows.

    Parameters
    ----------
    profile : {"code", "paper", "fast"} or Profile
    n : int
    median : float
        Median of the n (n - 1) similarities off the diagonal; below zero, since every step is a share of it.
    preference : float, optional
        Where to start; half the median by default. A caller with one preference a row gives 0 and adds what it is told.
    max_iter : int
    fixed : bool
        Keep the preference: only the damping adapts, and the first confirmation ends the run.
    n_clusters_range : tuple of (int, int), optional
        The numbers of clusters that are wanted.
    """
    profile = PROFILES[profile] if isinstance(profile, str) else profile
    if not median < 0 and not fixed:
        raise InputError(
            f"median={median!r} of the similarities must be below 0: each step of the scan is a share of it and must "
            "lower the preference. Subtract a constant from all similarities, for example their maximum"
        )
    low, high = n_clusters_range or (0, 0)
    return ScanState(
        profile=profile,
        n=n,
        median=median,
        max_iter=max_iter,
        fixed=fixed,
        damping=profile.damping,
        preference=0.5 * median if preference is None else preference,
        unit=profile.step * median,
        marks=deque([True] * profile.window, maxlen=profile.window),
        wait_limit=profile.rest if fixed else max(max_iter // 10, 2000),
        low=low,
        high=high,
        hastens=high > 0,
    )
