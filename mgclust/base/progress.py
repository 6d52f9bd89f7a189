"""Progress of a run and speed of its current stage, as numbers and as text, for terminals, logs and the service."""

from __future__ import annotations

import math
import shutil
import sys
import time
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, TypeGuard

from mgclust.base.errors import printable

__all__ = [
    "LINE_SECONDS",
    "WAITING",
    "ProgressLine",
    "details_text",
    "is_first_compiled",
    "pace_text",
    "paced",
    "progress_text",
    "reported_details",
    "seconds_text",
    "worded",
]

Report = Callable[[dict[str, Any]], None]

WAITING = {"stage": "waiting for the cluster", "fraction": 0.0, "elapsed": 0.0}  # event while a run waits
MEMORY = 30.0  # seconds: time constant with which the weight of earlier progress decays
LEAST = 0.5  # seconds of a stage after which its rate is reported
LINE_SECONDS = 5.0  # interval between the lines of a long stage in a log; each stage begins with a line
LONGEST_DETAIL = 200  # largest number of characters of one detail, which may come from another machine
LONGEST_DETAILS = 1000  # largest number of characters of all details together
COMPILING = "compiling kernels (once): {:,} so far; `mgclust warmup` does so beforehand"

_ALWAYS = {"stage", "fraction", "elapsed", "stage_rate", "stage_eta", "details"}


def worded(report: Report | None, formats: Mapping[str, str]) -> Report | None:
    """Add the key ``details`` to each event: the values that the method reports, as text.

    Parameters
    ----------
    report : callable or None
        Function that receives each event.
    formats : mapping of str to str
        Format of each value, by the value's name, as in `mgclust.algorithms.presentation.Presentation`.

    Returns
    -------
    callable or None
        Function to call with events; None if `report` is None.
    """
    if report is None:
        return None
    return lambda event: report({**event, "details": details_text(event, formats)})


def paced(report: Report | None) -> Report | None:
    """Add to each event the rate of its stage, and the time until the stage ends at this rate.

    Parameters
    ----------
    report : callable or None
        Function that receives each event with two more values, which are None as long as they are unknown:

        - ``stage_rate``: fraction of the stage that is done per second, smoothed over half a minute.
        - ``stage_eta``: seconds until the end of the stage. The end of the run is unknown, because the lengths of later
          stages are unknown. A method that stops at convergence computes its ``fraction`` as if it did not stop early,
          so the stage may end sooner.

    Returns
    -------
    callable or None
        Function to call with events that have ``stage``, ``fraction`` and ``elapsed``; None if `report` is None.
    """
    if report is None:
        return None
    pace = _Pace()
    return lambda event: report({**event, **pace.told(event)})


class _Pace:
    """Rate of a stage: fraction done divided by seconds, both summed with weights that decay into the past.

    The time starts at the first nonzero fraction. Until then, the stage is prepared; and if this run resumes another
    run, the first fraction was done by the other run. If a stage begins again, its rate is computed anew.
    """

    def __init__(self) -> None:
        self._begin(None, 0.0, 0.0)

    def _begin(self, stage: Any, fraction: float, elapsed: float) -> None:
        self._stage, self._fraction, self._elapsed = stage, fraction, elapsed
        self._done = self._seconds = 0.0

    def told(self, event: Mapping[str, Any]) -> dict[str, float | None]:
        """Return ``stage_rate`` and ``stage_eta`` after this event."""
        stage, fraction, elapsed = event.get("stage"), event.get("fraction") or 0.0, event.get("elapsed") or 0.0
        if stage != self._stage or fraction < self._fraction or elapsed < self._elapsed or not self._fraction:
            self._begin(stage, fraction, elapsed)
        else:
            seconds = elapsed - self._elapsed
            kept = math.exp(-seconds / MEMORY)
            # Mean weight of these seconds. At a steady rate, the result is first a plain mean, and later a mean over
            # the last half minute.
            share = MEMORY * (1.0 - kept) / seconds if seconds else 1.0
            self._done = self._done * kept + (fraction - self._fraction) * share
            self._seconds = self._seconds * kept + seconds * share
            self._fraction, self._elapsed = fraction, elapsed
        if self._seconds < LEAST or self._done <= 0.0:
            return {"stage_rate": None, "stage_eta": None}
        rate = self._done / self._seconds
        return {"stage_rate": rate, "stage_eta": max(0.0, 1.0 - fraction) / rate}


def progress_text(event: Mapping[str, Any]) -> str:
    """Format an event as ``12% K=34 clusters damping=0.50 812 it/s (4.1%/min, 3 min left in this stage)``.

    Parameters
    ----------
    event : mapping
        Event with ``fraction`` from 0 to 1 if it is known, ``details`` from `worded`, and the values from `paced` if
        they are known.

    Returns
    -------
    str
    """
    fraction = event.get("fraction")
    done = [_cut(f"{fraction:.0%}", LONGEST_DETAIL)] if _is_number(fraction) else []
    pace = pace_text(event)
    return " ".join(part for part in (*done, reported_details(event), f"({pace})" if pace else "") if part)


def is_first_compiled(event: Mapping[str, Any]) -> bool:
    """Return whether a run begins to compile kernels, which a log should report at once."""
    return event.get("compiling") == 1


def reported_details(event: Mapping[str, Any]) -> str:
    """Return the ``details`` of an event, made safe to print, because the event may come from another machine."""
    return _cut(printable(str(event.get("details") or "")), LONGEST_DETAILS)


def pace_text(event: Mapping[str, Any]) -> str:
    """Format the values of `paced` as ``4.1%/min, 3 min left in this stage``; return "" while they are unknown.

    If the event has ``max_iter``, the text is "at most 3 min", because convergence may end the stage sooner.
    """
    rate, eta = event.get("stage_rate"), event.get("stage_eta")
    if not _is_number(rate) or not _is_number(eta):
        return ""
    pace, unit = (100 * rate, "s") if rate > 0.02 else (6000 * rate, "min")
    most = "at most " if _is_number(event.get("max_iter")) else ""  # convergence may end it early
    return f"{pace:{',.0f' if pace >= 10 else '.2g'}}%/{unit}, {most}{_duration(eta)} left in this stage"


class ProgressLine:
    """Progress on standard error: one line that is updated on a terminal or in a notebook, else one line per stage.

    In a log, a long stage also gets a line every `LINE_SECONDS` seconds. Use this class as a context manager: at the
    end of the block, the updated line stays.
    """

    def __init__(self) -> None:
        self._moves = sys.stderr.isatty() or "ipykernel" in sys.modules
        self._stage, self._printed, self._width = "", 0.0, 0

    def __enter__(self) -> ProgressLine:
        return self

    def __exit__(self, *exception: object) -> None:
        self._end()

    def __call__(self, event: Mapping[str, Any]) -> None:
        """Show the next event, if a line is due."""
        stage = printable(str(event.get("stage", self._stage)))
        text = f"{stage}: {progress_text(event)} ({event['elapsed']:.1f} s)"
        if "warning" in event:
            self._end()
            print(text, file=sys.stderr)
        elif self._moves:
            text = _cut(text, shutil.get_terminal_size().columns - 1)
            print(f"\r{text:{self._width}}", end="", file=sys.stderr, flush=True)
            self._width = len(text)
        elif stage != self._stage or is_first_compiled(event) or time.monotonic() - self._printed > LINE_SECONDS:
            self._printed = time.monotonic()
            print(text, file=sys.stderr)
        self._stage = stage

    def _end(self) -> None:
        if self._width:
            print(file=sys.stderr)
        self._width = 0


def seconds_text(seconds: float) -> str:
    """Format a time with its unit and about three digits."""
    if seconds < 0.00995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def _duration(seconds: float) -> str:
    """Format an estimated time as a whole number of seconds, minutes, hours or days."""
    for unit, size, most in (("s", 1, 119.5), ("min", 60, 7170), ("h", 3600, 172_800)):
        if seconds < most:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 86_400:,.0f} days"


def details_text(event: Mapping[str, Any], formats: Mapping[str, str]) -> str:
    """Format the values that a method adds to an event, such as ``K=34 damping=0.50``; return "" if there are none.

    Parameters
    ----------
    event : mapping
        Event of a run.
    formats : mapping of str to str
        Format of each value, by the value's name. The text has the values in this order; values without a format follow
        as ``name=value``.
    """
    figures = {name: value for name, value in event.items() if name not in _ALWAYS and value is not None}
    formats = {**formats, "compiling": COMPILING, "warning": "warning: {}"}
    names = [name for name in formats if name in figures]
    names += [name for name in figures if name not in formats]
    return _cut(" ".join(_detail(name, figures[name], formats) for name in names), LONGEST_DETAILS)


def _detail(name: str, value: Any, formats: Mapping[str, str]) -> str:
    if name in formats and (name == "warning" or _is_number(value)):
        text = formats[name].format(value)
    else:
        text = f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"
    return _cut(printable(text), LONGEST_DETAIL)


def _is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, Real) and not isinstance(value, bool)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
