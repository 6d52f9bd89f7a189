"""Replaced functions of other projects: mgclust, or else the original, computes each call, and calls are counted."""

from __future__ import annotations

import functools
import inspect
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mgclust.base.errors import ClusterUnavailableError, MgclustError, printable

__all__ = ["AccelSettings", "Call", "Unsupported", "replacement", "summary", "totals"]

MAX_REASONS = 100  # largest number of distinct reasons per call; reasons may quote data, so they may all differ


class Unsupported(Exception):
    """mgclust does not compute this call as the project does; the text is the reason."""


@dataclass(frozen=True)
class AccelSettings:
    """Choices of the user; see `install`.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
    client : None, address or distributed.Client
        Where to run, as for the estimators.
    seeded : bool
        Whether to replace calls that pass a seed even if mgclust uses a different algorithm.
    verbose : bool
        Whether to print a line for each call.
    lost : list of str
        Reason why the cluster is not available; empty until a call finds this. Later calls do not wait for the cluster.
    """

    device: str = "auto"
    client: Any = None
    seeded: bool = False
    verbose: bool = False
    lost: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """Keyword arguments `device` and `client` of estimators."""
        return {"device": self.device, "client": self.client}


@dataclass(frozen=True, eq=False)
class Call:
    """A function or method that is replaced.

    Attributes
    ----------
    home : str
        Public module that has the function. All code that uses the function imports this module.
    path : str
        Name in that module: ``function`` or ``Class.method``.
    shown : str
        Public name; its first part is the project.
    ours : callable
        ``ours(settings, *arguments)`` returns the same kind of result as the original. If it raises `Unsupported` or an
        error of mgclust, the original is called, so `ours` must not leave changes that the original could see.
    another : bool
        Whether mgclust uses a different algorithm, so that results differ from the original.
    alias : str
        Name of a function that calls this function, and therefore also runs on mgclust.
    beside : mapping of str to object
        Further attributes to set on the class, by name.
    """

    home: str
    path: str
    shown: str
    ours: Callable[..., Any]
    another: bool = False
    alias: str = ""
    beside: Mapping[str, Any] = field(default_factory=dict)

    @property
    def names(self) -> set[str]:
        """Names of the call in `only` and `exclude`: its own names, its alias, and its project."""
        project, _, rest = self.shown.partition(".")
        parts = rest.split(".")
        method = self.path.partition(".")[0] if "." in self.path else parts[-1]
        return {project, parts[-1], method, self.shown, self.alias} - {""}


@dataclass
class _Count:
    on_mgclust: int = 0
    seconds: float = 0.0
    fell_back: Counter[str] = field(default_factory=Counter)


_lock = threading.Lock()
_running = threading.RLock()  # one run at a time, because each run uses all cores or the GPU
_counts: dict[Call, _Count] = {}


def replacement(call: Call, original: Callable[..., Any], settings: AccelSettings) -> Callable[..., Any]:
    """Return the function that replaces the original.

    Parameters
    ----------
    call : Call
    original : callable
    settings : AccelSettings
    """
    signature, process = inspect.signature(call.ours), os.getpid()

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != process:  # a forked child does not have the threads and GPU memory of its parent
            return original(*args, **kwargs)
        started = time.perf_counter()
        try:
            signature.bind(settings, *args, **kwargs)
        except TypeError as error:
            reason = f"mgclust does not have these arguments: {error}"
        else:
            try:
                with _running:
                    if settings.lost:
                        raise Unsupported(settings.lost[0])
                    result = call.ours(settings, *args, **kwargs)
            except ClusterUnavailableError as error:
                settings.lost.append(reason := str(error))
            except (Unsupported, MgclustError) as error:
                reason = str(error)
            except Exception as error:  # the original runs, so that no error of mgclust ends the script
                reason = f"{type(error).__name__}: {error}"
            else:
                _took(call, time.perf_counter() - started, settings)
                return result
        _left(call, reason, settings)
        return original(*args, **kwargs)

    return dispatch


def _count_of(call: Call) -> _Count:
    return _counts.setdefault(call, _Count())


def _took(call: Call, seconds: float, settings: AccelSettings) -> None:
    with _lock:
        count = _count_of(call)
        count.on_mgclust += 1
        count.seconds += seconds
    if settings.verbose:
        _say(f"{call.shown} ran on mgclust in {seconds:.3f} s")


def _left(call: Call, reason: str, settings: AccelSettings) -> None:
    reason = " ".join(reason.split())
    with _lock:
        reasons = _count_of(call).fell_back
        reasons[reason if reason in reasons or len(reasons) < MAX_REASONS else "other reasons"] += 1
    if settings.verbose:
        _say(f"{call.shown} runs on the original: {reason}")


def _say(text: str) -> None:
    print(f"mgclust.accel: {printable(text)}", file=sys.stderr, flush=True)


def totals() -> list[dict[str, Any]]:
    """Count the calls of this process, on mgclust and on the original.

    Returns
    -------
    list of dict
        One entry per function that was called.

        - ``call``: str, the function's public name.
        - ``on_mgclust``: int, number of calls that ran on mgclust.
        - ``seconds``: float, time of these calls.
        - ``another_algorithm``: bool, whether mgclust uses a different algorithm from the original.
        - ``fell_back``: dict of str to int, number of calls that ran on the original, by reason.

    See Also
    --------
    summary : Returns the same counts as text.

    Examples
    --------
    >>> from mgclust import accel
    >>> accel.install(only=["silhouette_score"])
    >>> from sklearn.metrics import silhouette_samples
    >>> len(silhouette_samples([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1]))
    4
    >>> [each["on_mgclust"] > 0 for each in accel.totals() if each["call"] == "sklearn.metrics.silhouette_samples"]
    [True]
    >>> accel.uninstall()
    """
    with _lock:
        return [
            {
                "call": call.shown,
                "on_mgclust": count.on_mgclust,
                "seconds": count.seconds,
                "another_algorithm": call.another,
                "fell_back": dict(count.fell_back),
            }
            for call, count in sorted(_counts.items(), key=lambda item: item[0].shown)
        ]


def summary() -> str:
    """Describe which calls of this process ran on mgclust, and why others did not.

    Returns
    -------
    str
        One line per function and reason.

    See Also
    --------
    totals : Returns the same counts as numbers.
    """
    found = totals()
    if not found:
        return "mgclust.accel: the script made none of the calls that mgclust replaces"
    taken = sum(each["on_mgclust"] for each in found)
    left = sum(sum(each["fell_back"].values()) for each in found)
    lines = [f"mgclust.accel: {_calls(taken)} ran on mgclust, {left} on the original"]
    for each in found:
        if each["on_mgclust"]:
            what = "; a different algorithm from the original" if each["another_algorithm"] else ""
            lines.append(f"  {each['call']}: {each['on_mgclust']} on mgclust, {each['seconds']:.3g} s{what}")
        for reason, count in each["fell_back"].items():
            lines.append(f"  {each['call']}: {count} on the original: {printable(reason)}")
    return "\n".join(lines)


def _calls(count: int) -> str:
    return f"{count} call{'s' * (count != 1)}"
