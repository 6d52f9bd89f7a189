"""Page of the runs of a cluster, on the HTTP server of its scheduler.

This module is sent with `mgclust.engine.dask.leases` to schedulers without mgclust, so nothing of mgclust is imported
here. No port is opened: the page is next to Dask's own pages about workers, with or without Bokeh. If somebody has
removed Dask's pages, there is no page. The page changes nothing, runs no script, and escapes all values, because
clients and workers choose the names.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import Any

from tornado.web import RequestHandler

__all__ = ["add_page", "page"]

PAGE = "mgclust"  # path of the page
BESIDE = "info/main/workers.html$"  # a page of Dask that reveals as much about the cluster as this page
LONGEST_TEXT = 200  # characters of a name or a value
SHOWN_WORKERS = 8  # number of shown workers per run; the table of workers lists the run of each worker
REFRESH_SECONDS = 2
STYLE = (
    "body{font:15px/1.5 sans-serif;margin:2em;color:#222;background:#fff}"
    "table{border-collapse:collapse;margin-bottom:2em}caption{text-align:left;font-size:1.2em;font-weight:bold}"
    "th,td{text-align:left;padding:.2em 1.2em .2em 0;border-bottom:1px solid #ddd;vertical-align:top}"
    "progress{width:8em;vertical-align:middle}"
)
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


class _Page(RequestHandler):
    def initialize(self, summary: Callable[[], Mapping[str, Any]]) -> None:
        self._summary = summary

    def set_default_headers(self) -> None:
        for name, value in HEADERS.items():
            self.set_header(name, value)

    def get(self) -> None:
        """Answer with the present state of the scheduler."""
        self.write(page(self._summary()))


def add_page(scheduler: Any, summary: Callable[[], Mapping[str, Any]]) -> bool:
    """Add the page to a scheduler if it has Dask's own pages; return whether it has them.

    Parameters
    ----------
    scheduler : distributed.Scheduler
        The scheduler.
    summary : callable
        Returns the summary that `page` shows.
    """
    application: Any = getattr(scheduler, "http_application", None)
    if application is None:
        return False
    rules = application.wildcard_router.rules
    patterns = [getattr(getattr(rule.matcher, "regex", None), "pattern", "") for rule in rules]
    prefix = next((each.removesuffix(BESIDE) for each in patterns if each.endswith(BESIDE)), None)
    if prefix is None:
        return False
    application.add_handlers(".*$", [(f"{prefix}{PAGE}", _Page, {"summary": summary})])
    dashboard = sys.modules.get("distributed.dashboard.scheduler")
    if dashboard is not None:  # add the page to the navigation bar, which exists only with Bokeh
        pages = dashboard.template_variables(scheduler)["pages"]
        if PAGE not in pages:
            pages.append(PAGE)
    return True


def page(summary: Mapping[str, Any]) -> str:
    """Write the page.

    Parameters
    ----------
    summary : mapping
        Return value of `mgclust.engine.dask.leases.Leases.runs`. The keys are ``running``, ``waiting``, ``ended`` and
        ``workers``, and each value is a sequence of mappings.

    Returns
    -------
    str
        HTML.
    """
    tables = [
        _table(
            "Running",
            ("run", "method", "client", "workers", "stage", "progress", "values", "seconds"),
            [
                (
                    _number(run),
                    _text(run["method"]),
                    _client(run),
                    _workers(run["workers"]),
                    _text(run["stage"]),
                    _bar(run["fraction"]),
                    _figures(run["figures"]),
                    _seconds(run["seconds"]),
                )
                for run in summary["running"]
            ],
        ),
        _table(
            "Waiting",
            ("run", "method", "client", "requested", "waits for", "seconds"),
            [
                (
                    _number(run),
                    _text(run["method"] or "looks for workers"),
                    _client(run),
                    _asked(run["least"], run["most"]),
                    _text(run["waits_for"]),
                    _seconds(run["seconds"]),
                )
                for run in summary["waiting"]
            ],
        ),
        _table(
            "Workers",
            ("worker", "name", "run", "memory", "GPU memory", "GPU busy"),
            [
                (
                    _text(worker["address"]),
                    _text(worker["name"]),
                    f"#{worker['run']}" if worker["run"] else "free",
                    _bytes(worker["memory"], worker["memory_limit"]),
                    _bytes(worker["gpu_memory"], worker["gpu_memory_total"]),
                    f"{worker['gpu_percent']:.0f}%" if _is_number(worker["gpu_percent"]) else "",
                )
                for worker in summary["workers"]
            ],
        ),
        _table(
            "Ended",
            ("run", "method", "client", "workers", "seconds"),
            [
                (
                    _number(run),
                    _text(run["method"]),
                    _client(run),
                    str(len(run["workers"])),
                    _seconds(run["seconds"]),
                )
                for run in summary["ended"]
            ],
        ),
    ]
    return (
        '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Runs of mgclust</title>'
        f'<meta http-equiv="refresh" content="{REFRESH_SECONDS}"><style>{STYLE}</style></head><body>'
        f"<h1>Runs of mgclust</h1>{''.join(tables)}</body></html>"
    )


def _table(title: str, names: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a table; the cells must be HTML already."""
    if not rows:
        return f"<p>{title}: none.</p>"
    head = "".join(f"<th>{name}</th>" for name in names)
    body = "".join(f"<tr>{''.join(f'<td>{cell}</td>' for cell in row)}</tr>" for row in rows)
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    try:
        text = str(value)
    except Exception:  # e.g. for integers of thousands of digits
        text = "?"
    return escape(text if len(text) <= LONGEST_TEXT else f"{text[: LONGEST_TEXT - 1]}…")


def _number(run: Mapping[str, Any]) -> str:
    return f"#{run['number']}"


def _client(run: Mapping[str, Any]) -> str:
    return _text(f"{run['client']} at {run['host']}" if run["host"] else run["client"])


def _workers(addresses: Sequence[str]) -> str:
    more = ["…"] if len(addresses) > SHOWN_WORKERS else []
    return f"{len(addresses)}: {', '.join([*map(_text, addresses[:SHOWN_WORKERS]), *more])}"


def _asked(least: int, most: int) -> str:
    workers = f"{least}" if least >= most else f"{least} to {most}"
    return f"{workers} worker{'s' if max(least, most) > 1 else ''}"


def _bar(fraction: Any) -> str:
    if not _is_number(fraction):
        return ""
    done = min(max(float(fraction), 0.0), 1.0)
    return f'<progress max="1" value="{done:.3f}"></progress> {done:.0%}'


def _figures(figures: Mapping[str, Any]) -> str:
    shown = (
        f"{_text(name)}={_text(f'{value:.4g}' if isinstance(value, float) else value)}"
        for name, value in figures.items()
    )
    return " ".join(shown)


def _seconds(seconds: float) -> str:
    return f"{seconds:,.1f}"


def _bytes(used: Any, most: Any) -> str:
    if not _is_number(used):
        return ""
    of = f" of {most / 2**30:,.1f}" if _is_number(most) and most > 0 else ""
    return f"{used / 2**30:,.1f}{of} GiB"


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and -1e300 < value < 1e300
