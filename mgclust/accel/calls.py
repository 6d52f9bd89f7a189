"""A call of another project: computed by mgclust, or else by the project, and counted either way."""

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

MAX_REASONS = 100  # different ones that are kept of a call; data may be in them


class Unsupported(Exception):
    """A call that mgclust does not compute as the project does; the text is the reason."""


@dataclass(frozen=True)
class AccelSettings:
    """Choices of the user.

    Attributes
    ----------
    device : {"auto", "cpu", "cuda"}
    client : None, address or distributed.Client
        As of estimators.
    seeded : bool
        Take calls of another algorithm that have a seed, too.
    verbose : bool
        Print a line for each call.
    lost : list of str
        Why the cluster cannot be had, once a call has found out: no other waits for it.
    """

    device: str = "auto"
    client: Any = None
    seeded: bool = False
    verbose: bool = False
    lost: list[str] = field(default_factory=list, compare=False, repr=False)

    @property
    def place(self) -> dict[str, Any]:
        """Keyword arguments of estimators that say where to run."""
        return {"device": self.device, "client": self.client}


@dataclass(frozen=True, eq=False)
class Call:
    """A function or method that is replaced.

    Attributes
    ----------
    home : str
        A public module that has it, and is imported by whoever uses it.
    path : str
        Its name there: ``function`` or ``Class.method``.
    shown : str
        Its public name, whose first part is the project.
    ours : callable
        ``ours(settings, *arguments)`` returns what the original would, or raises `Unsupported` or an error of mgclust:
        then the original is called. It changes nothing that the original could see.
    another : bool
        Another algorithm: results differ from the original's.
    alias : str
        A function that calls this one, and is replaced with it.
    beside : mapping of str to object
        What the class gets beside the method.
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
        """Names of it in `only` and `exclude`: its own, its alias, and that of its project."""
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
_running = threading.RLock()  # each run has all cores or the GPU to itself
_counts: dict[Call, _Count] = {}


def replacement(call: Call, original: Callable[..., Any], settings: AccelSettings) -> Callable[..., Any]:
    """Make the function that stands in the original's place.

    Parameters
    ----------
    call : Call
    original : callable
    settings : AccelSettings
    """
    signature, process = inspect.signature(call.ours), os.getpid()

    @functools.wraps(original)
    def dispatch(*args: Any, **kwargs: Any) -> Any:
        if os.getpid() != process:  # threads, and what a GPU has, do not survive a fork
            return original(*args, **kwargs)
        started = time.perf_counter()
        try:
            signature.bind(settings, *args, **kwargs)
        except TypeError as error:
            reason = f"mgclust does not know these arguments: {error}"
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
            except Exception as error:  # the script goes on, whatever it is
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
    """Count what became of the calls of this process.

    Returns
    -------
    list of dict
        Of each function that was called: ``call``, its name; ``on_mgclust``, how often it ran there, and ``seconds``
        of these runs; ``another_algorithm``; ``fell_back``, how often the original ran for which reason.
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
    """Say in a few lines which calls of this process ran on mgclust, and why others did not."""
    found = totals()
    if not found:
        return "mgclust.accel: none of the calls that it replaces was made"
    taken = sum(each["on_mgclust"] for each in found)
    left = sum(sum(each["fell_back"].values()) for each in found)
    lines = [f"mgclust.accel: {_calls(taken)} ran on mgclust, {left} on the original"]
    for each in found:
        if each["on_mgclust"]:
            what = "; another algorithm than the original's" if each["another_algorithm"] else ""
            lines.append(f"  {each['call']}: {each['on_mgclust']} on mgclust, {each['seconds']:.3g} s{what}")
        for reason, count in each["fell_back"].items():
            lines.append(f"  {each['call']}: {count} on the original: {printable(reason)}")
    return "\n".join(lines)


def _calls(count: int) -> str:
    return f"{count} call{'s' * (count != 1)}"
