"""Progress and result of a run, in a few lines of text."""

from __future__ import annotations

import sys
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import printable
from mgclust.base.progress import LINE_SECONDS, is_first_compiled, pace_text, progress_text, reported_details

if TYPE_CHECKING:
    from mgclust.results.result import Result

__all__ = ["ShownProgress", "summary"]


class ShownProgress:
    """Progress of a run: a bar on a terminal, plain lines in a log file."""

    def __init__(self) -> None:
        self.stage, self.printed = "", 0.0
        self.bar: Any = None
        self._warnings = warnings.catch_warnings()

    def __enter__(self) -> ShownProgress:
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

            columns = (
                TextColumn("{task.description:8}", markup=False),
                BarColumn(),
                TaskProgressColumn(),
                TimeElapsedColumn(),
                TextColumn("{task.fields[details]}", markup=False),
                TextColumn("{task.fields[pace]}", style="dim"),
            )
            self.bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self.task = self.bar.add_task("open", total=None, details="", pace="")
            self.bar.start()
        self._warnings.__enter__()
        warnings.showwarning = lambda message, *_, **__: self._warn(str(message))  # such as a lost worker
        return self

    def __exit__(self, *exception: object) -> None:
        self._warnings.__exit__(None, None, None)
        if self.bar is not None:
            self.bar.stop()

    def __call__(self, event: dict[str, Any]) -> None:
        """Show the ``stage`` and ``fraction`` that a run reports, and the other values of the event."""
        if "warning" in event:
            self._warn(str(event["warning"]))
            return
        stage, fraction = str(event.get("stage", self.stage)), event.get("fraction")
        started = stage != self.stage
        self.stage = stage
        if self.bar is not None:
            if started:
                self.bar.remove_task(self.task)
                self.task = self.bar.add_task(stage, total=None, details="", pace="")
            self.bar.update(self.task, details=reported_details(event), pace=pace_text(event))
            if fraction is not None:
                self.bar.update(self.task, completed=100 * fraction, total=100)
        elif started or is_first_compiled(event) or time.monotonic() - self.printed > LINE_SECONDS:
            self.printed = time.monotonic()
            text = "" if started else progress_text(event)
            click.echo(f"{time.strftime('%H:%M:%S')} {stage}{': ' if text else ''}{text}", err=True)

    def _warn(self, text: str) -> None:
        """Print a line that the progress bar does not overwrite."""
        text = printable(text)
        if self.bar is not None:
            self.bar.console.print(f"warning: {text}", markup=False, highlight=False, soft_wrap=True)
        else:
            click.echo(f"{time.strftime('%H:%M:%S')} warning: {text}", err=True)


def summary(result: Result, path: Path, report: bool) -> str:
    """Summarize a result, one fact per line."""
    from mgclust.algorithms import presentation_of
    from mgclust.base.progress import seconds_text

    lines = []
    if "n_nodes" in result.source:
        lines.append(("graph", f"{result.source['n_nodes']:,} nodes, {result.source['n_edges']:,} edges"))
    lines += presentation_of(result.method).summary(result)
    if "ari" in result.scores:
        named = {"NMI": result.scores.get("nmi"), "purity": result.scores.get("purity")}
        others = "".join(f", {name} {value:.3f}" for name, value in named.items() if value is not None)
        lines.append(("truth", f"ARI {result.scores['ari']:.3f}{others} (1: the same clusters)"))
    if "atlas_rows" in result.scores:
        ari = result.scores.get("atlas_ari")
        agreement = "" if ari is None else f"ARI {ari:.3f} (1: the same clusters), "
        lines.append(("atlas", f"{agreement}{result.scores['atlas_rows']:,} rows have a cluster and a label"))
    lines.append(("time", seconds_text(result.seconds)))
    stages = [f"{name} {seconds_text(s)}" for name, s in result.timings.items() if name != "total"]
    lines.append(("stages", ", ".join(stages)))
    lines.append(("report" if report else "result", str(path / "report.html" if report else path)))
    return "\n".join(f"{name:9} {text}" for name, text in lines)
