"""Communities that a run has found so far, from which it resumes after an interruption.

A run makes one or more searches (see `parallel.communities`): for several resolutions, for the seeds of a consensus,
and for random graphs. A search makes several starts, each of several cycles. A checkpoint holds the labels of finished
searches, and of each start of the current search its latest labels. All other state is computed again with the same
bits: the graphs, and the graph of the nodes on which starts agree.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mgclust.engine.spmd import Context

__all__ = ["Found", "SearchMemory", "StartState"]

Array = Any
Report = list[dict[str, Any]]


class Found(NamedTuple):
    """Communities, numbered without gaps."""

    labels: Array
    n_clusters: int
    modularity: float


class StartState(NamedTuple):
    """State of a start."""

    found: Found
    cycle: int  # the last cycle
    done: bool  # whether no cycle follows


class SearchMemory:
    """Results of the searches of a run. Without checkpoints, they are only kept until the search ends.

    Parameters
    ----------
    context : Context
        Its checkpoints are used.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._ended: list[tuple[Array, Report]] = []  # labels and report of finished searches
        self._starts: list[StartState] = []
        self._report: Report = []
        self._next = 0  # number of the next search
        saved = context.checkpoint.load()
        if saved is None:
            return
        to_device, control = context.kernels.memory.to_device, saved.control
        for number, report in enumerate(control["reports"]):
            self._ended.append((to_device(saved.arrays[f"search_{number}"]), report))
        for number, (n_clusters, modularity, cycle, done) in enumerate(control["starts"]):
            labels = to_device(saved.arrays[f"start_{number}"])
            self._starts.append(StartState(Found(labels, n_clusters, modularity), cycle, done))
        self._report = control["report"]

    def next_search(self) -> tuple[Array, Report] | None:
        """Return the labels and the report of the next search if it has ended before an interruption, else None."""
        self._next += 1
        return self._ended[self._next - 1] if self._next <= len(self._ended) else None

    def resumed_report(self) -> Report:
        """Return the report of the current search up to an interruption."""
        return self._report

    def resumed(self, start: int) -> StartState | None:
        """Return the state of a start of the current search before an interruption, or None if it had not begun."""
        return self._starts[start] if start < len(self._starts) else None

    def keep(self, start: int, state: StartState, report: Report) -> None:
        """Keep the latest state of a start of the current search, and save all if a checkpoint is due."""
        self._starts[start:] = [state]
        self._report = report
        if self._context.checkpoint.due(seldom=True):
            self._save()

    def end(self, labels: Array, report: Report) -> None:
        """Keep the result of the current search, and forget its starts."""
        self._starts, self._report = [], []
        if self._context.checkpoint.active:
            self._ended.append((labels, report))

    def _save(self) -> None:
        to_host = self._context.kernels.memory.to_host
        arrays = {f"search_{number}": to_host(labels) for number, (labels, _) in enumerate(self._ended)}
        arrays |= {f"start_{number}": to_host(each.found.labels) for number, each in enumerate(self._starts)}
        control = {
            "reports": [report for _, report in self._ended],
            "starts": [[*each.found[1:], each.cycle, each.done] for each in self._starts],
            "report": self._report,
        }
        self._context.checkpoint.save(control, arrays)
