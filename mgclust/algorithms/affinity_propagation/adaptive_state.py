"""State of an adaptive scan: constants, observations and decisions. `adaptive_scan` has the rules."""

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

MEAN_OF = 6  # number of iterations in the running mean of K
STRIDE = 4  # iterations between two steps of profile "fast"
# Above the range of K, the pace grows if the range is more than this many strides away at the rate of the last stride.
STRIDES_AHEAD = 8
# While K has not been above its range: factor of the preference, strides between two rises, largest number of rises.
RISE, RISE_STRIDES, MAX_RISES = 0.25, 5, 12
MIN_PACE, MAX_PACE = 0.006, 0.4  # size of the steps of profile "fast", as a fraction of the preference
PACE_GROWTH, PACE_DROP = 1.5, 0.5  # factor of the pace after a stride in which K stayed the same, and after others
MAX_RETURNS, RETURN_DROP = 3, 0.1  # steps taken back in a row if numbers were skipped, and factor of the pace then
MAX_UNSTABLE = 100  # up to this many clusters, "fast" records solutions that are not at rest
SPREAD_OF = 50  # number of iterations whose K determine the width of an escape
# Fields that do not change during a scan, so checkpoints leave them out.
GIVEN = ("profile", "n", "median", "max_iter", "fixed", "wait_limit", "low", "high")
ALWAYS = 1 << 62  # longer than any run; until a flag changes, all flags count as unchanged forever


@dataclass(frozen=True)
class Profile:
    """Constants in which the profiles differ, or which a test may shorten."""

    name: str
    # rest, half_rest: iterations without a change of flags that count as at rest and as half at rest; half_rest is 0 if
    # the profile has no half confirmations
    rest: int
    half_rest: int
    calm_share: float  # a smaller fraction of calm marks counts as an oscillation
    stall: int  # more iterations without a confirmation count as an oscillation, whatever the marks; 0: never
    damping_limit: float  # oscillations raise the damping up to this limit; only repeated escapes raise it further
    # plain: the simpler rules of profile "paper" for changes of damping and preference; records only confirmed
    # solutions
    plain: bool
    delay: int = 10  # number of iterations in a row at rest that make a confirmation
    first_decision: int = 100  # no decision is made before this iteration
    window: int = 40  # number of marks that are checked for an oscillation
    damping: float = 0.5  # initial damping
    step: float = 0.01  # step of the preference, as a fraction of the median
    stride: int = 0  # iterations between two steps; 0: a step follows a confirmation

    def unit(self, median: float, n_clusters: int) -> float:
        """Return the step of the preference at this number of clusters; it is smaller if there are many clusters."""
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
    """Outcome of one iteration: the number of exemplars, and whether they are the same as one iteration before."""

    n_exemplars: int
    unchanged: bool


class ScanCandidate(NamedTuple):
    """A solution to score, and how the scan found it."""

    n_clusters: int
    iteration: int
    strength: int
    preference: float
    damping: float
    confirmed: bool


class Decision(NamedTuple):
    """Consequences of one iteration.

    `record`: store the exemplars of this iteration as the candidate with this number of clusters. `renoise`: draw new
    noise on all similarities before the next iteration. `event`: a line for the log, or None.
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
    """State of a scan; `start` creates it, and `step` changes it."""

    profile: Profile
    n: int
    median: float
    max_iter: int
    fixed: bool
    # damping, preference: for the next iteration
    damping: float
    preference: float
    unit: float
    marks: deque[bool]
    wait_limit: int  # iterations at rest that end the scan
    # low, high: requested range of the number of clusters; high is 0 if there is no upper end
    low: int
    high: int
    hastens: bool  # whether K has not yet come down to `high`
    rises: int = 0  # number of rises of the preference so far; MAX_RISES: no more rises
    nearest: tuple[int, int] = (0, 0)  # nearest K above `high` and below `low` that were seen; 0: none
    # returns: steps taken back in a row; returned_at: K at the last of these steps; given_up: skipped numbers from here
    # on do not cause a step back
    returns: int = 0
    returned_at: int = 0
    given_up: int = MAX_UNSTABLE + 1
    iteration: int = 0  # iterations done
    phase: int = 1  # 1 until the first confirmation, then 2
    run: int = ALWAYS  # number of iterations over which no flag has changed
    held: int = 0  # number of iterations in a row at rest since the last confirmation
    half_held: int = 0
    confirmations: int = 0  # confirmations in a row
    half_confirmations: int = 0
    confirmed_at: int = 0  # number of clusters at the last confirmation
    repeats: int = 0  # confirmations in a row that found `confirmed_at` again
    waited: int = 0
    pace: float = MIN_PACE  # size of the steps of profile "fast"
    oscillated: bool = False
    escapes: float = 2.0
    top: int = 0  # largest number of clusters that was confirmed or recorded
    counts: deque[int] = field(default_factory=lambda: deque([0], maxlen=SPREAD_OF))
    sums: deque[int] = field(default_factory=lambda: deque([0] * MEAN_OF, maxlen=MEAN_OF))
    # strongest solution so far for each number of clusters
    candidates: dict[int, ScanCandidate] = field(default_factory=dict)
    latest: ScanCandidate | None = (
        None  # solution of the last iteration; its strength is 0 if it was not worth recording
    )
    stopped: str = ""  # why the scan ended; empty until then

    def wanted(self, k: int) -> bool:
        """Return whether this number of clusters is in the requested range."""
        return self.low <= k and (not self.high or k <= self.high)

    def to_plain(self) -> dict[str, Any]:
        """Return the fields that iterations have changed, as types that JSON has."""
        plain = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in GIVEN}
        plain |= {name: list(plain[name]) for name in ("marks", "counts", "sums")}
        return {**plain, "candidates": list(self.candidates.values())}

    def resume(self, told: dict[str, Any]) -> None:
        """Resume from the output of `to_plain`; call it on a state that `start` created with the same arguments."""
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
    """Return the state of a scan of n rows before its first iteration.

    Parameters
    ----------
    profile : {"code", "paper", "fast"} or Profile
    n : int
    median : float
        Median of the n (n - 1) similarities off the diagonal. It must be below zero, because every step of the
        preference is a fraction of it.
    preference : float, optional
        First preference; by default half the median. With one preference per row, the caller gives their median, and
        adds the difference of each preference from this median to the preference of the scan.
    max_iter : int
    fixed : bool
        Keep the preference: only the damping adapts, and the first confirmation ends the run.
    n_clusters_range : tuple of (int, int), optional
        Requested range of the number of clusters.
    """
    profile = PROFILES[profile] if isinstance(profile, str) else profile
    if not median < 0 and not fixed:
        raise InputError(
            f"median={median!r} of the similarities must be below 0, because each step of the scan is a fraction of it "
            "and must lower the preference; subtract a constant from all similarities, for example their maximum."
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
