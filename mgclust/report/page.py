"""The page itself."""

from __future__ import annotations

import base64
import html
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from mgclust.report.pictures import draw_pictures
from mgclust.report.tables import (
    canopies_table,
    clusters_table,
    communities_table,
    log_text,
    rounds_table,
    scan_table,
)
from mgclust.report.words import (
    EXACTNESS_NAMES,
    EXACTNESS_VALUES,
    METHOD_TITLES,
    OWN_SCORE_NAMES,
    PICTURE_CAPTIONS,
    SCORE_NAMES,
    STYLE,
    WIDE_PICTURES,
    escaped,
    figure_text,
    flat,
    value_text,
)
from mgclust.result import Result, seconds_text

__all__ = ["write_report"]

TOLD_ELSEWHERE = ("computed_in", "log", "rounds")  # diagnostics that have their own place on the page
IN_THE_LEAD = ("dc_error", "n_nodes", "n_edges")  # scores that are no figures of their own
TABLES = {"canopy": canopies_table, "fast-newman": communities_table}  # of other methods: `clusters_table`


def write_report(
    result: Result,
    path: str | os.PathLike[str],
    pictures: Mapping[str, bytes] | None = None,
    command: Sequence[str] | None = None,
) -> Path:
    """Write the page.

    Parameters
    ----------
    result : Result
        What to report.
    path : path
        The file to write, e.g. ``report.html``.
    pictures : mapping of str to bytes, optional
        PNG files by name, from `draw_pictures`; by default those that need no rows.
    command : sequence of str, optional
        The command line that made the result, to tell how to repeat it.

    Returns
    -------
    Path
        The file.
    """
    if pictures is None:
        pictures = draw_pictures(result)
    hardware = {name: fact for name, fact in result.hardware.items() if name != "versions"}
    body = "\n".join(
        [
            _heading(result),
            _warnings(result),
            _pictures(pictures),
            TABLES.get(result.method, clusters_table)(result),
            scan_table(result),
            rounds_table(result),
            log_text(result),
            '<div class="columns">',
            f"<section>{_time(result)}{_exactness(result)}</section>",
            f"<section>{_section('Data', _source(result))}"
            f"{_section('Parameters', result.parameters.items())}</section>",
            "</div>",
            '<div class="columns">',
            f"<section>{_section('Hardware', flat(hardware))}</section>",
            f"<section>{_section('Versions', result.versions.items())}</section>",
            "</div>",
            _reproduce(command),
        ]
    )
    title = html.escape(_title(result))
    page = (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n<title>{title}</title>\n'
        f"<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def _title(result: Result) -> str:
    method = METHOD_TITLES.get(result.method, result.method.replace("-", " ").capitalize())
    name = result.source.get("name")
    return f"{method}: {os.path.basename(str(name))}" if name else method


def _heading(result: Result) -> str:
    facts = _size(result)
    dtype = result.diagnostics.get("computed_in", result.parameters.get("dtype"))
    if dtype:
        facts.append(f"computed in {dtype}")
    devices = [str(name) for name in result.hardware.get("devices", ())]
    facts += [f"on {devices.count(name)} x {name}" for name in dict.fromkeys(devices)]
    scores = {name: value for name, value in result.scores.items() if name not in IN_THE_LEAD}
    names = {name: OWN_SCORE_NAMES.get((result.method, name), SCORE_NAMES.get(name, name)) for name in scores}
    figures = [(names[name], figure_text(name, value)) for name, value in scores.items()]
    if result.timings:
        figures.append(("time", seconds_text(result.seconds)))
    if result.parameters.get("resolution", 1.0) != 1.0:
        facts.append(f"resolution {result.parameters['resolution']:g}")
    items = "".join(f"<div><dt>{escaped(name)}</dt><dd>{escaped(value)}</dd></div>" for name, value in figures)
    return (
        f"<h1>{escaped(_title(result))}</h1>\n"
        f'<p class="lead">{escaped(", ".join(facts))}</p>\n'
        f'<dl class="figures">{items}</dl>'
    )


def _size(result: Result) -> list[str]:
    """How large the data are."""
    if "n_nodes" in result.source:
        weighted = "weighted" if result.source.get("weighted") else "unweighted"
        nodes, edges = result.source["n_nodes"], result.source["n_edges"]
        return [f"{nodes:,} nodes and {edges:,} {weighted} edges"]
    shape = result.source.get("shape")
    return [f"{shape[0]:,} rows x {shape[1]:,} features"] if shape and len(shape) == 2 else []


def _warnings(result: Result) -> str:
    if not result.warnings:
        return ""
    return f'<ul class="warnings">{"".join(f"<li>{escaped(line)}</li>" for line in result.warnings)}</ul>'


def _pictures(pictures: Mapping[str, bytes]) -> str:
    figures = []
    for name, data in pictures.items():
        code = base64.b64encode(data).decode("ascii")
        caption = PICTURE_CAPTIONS.get(name, name)
        wide = ' class="wide"' if name in WIDE_PICTURES else ""
        figures.append(
            f'<figure{wide}><img alt="{escaped(name.replace("_", " "))}" src="data:image/png;base64,{code}">'
            f"<figcaption>{escaped(caption)}</figcaption></figure>"
        )
    return f'<div class="columns pictures">{"".join(figures)}</div>' if figures else ""


def _time(result: Result) -> str:
    if not result.timings:
        return ""
    stages = {name: seconds for name, seconds in result.timings.items() if name != "total"}
    longest = max(stages.values(), default=0.0) or 1.0
    lines = [
        f'<tr><td>{escaped(name)}</td><td class="number">{seconds_text(seconds)}</td>'
        f'<td><span class="bar" style="width:{100 * seconds / longest:.1f}%"></span></td></tr>'
        for name, seconds in stages.items()
    ]
    total = seconds_text(result.seconds)
    lines.append(f'<tr><td><b>total</b></td><td class="number"><b>{total}</b></td><td></td></tr>')
    return f'<h2>Time by stage</h2><table class="time">{"".join(lines)}</table>'


def _exactness(result: Result) -> str:
    facts: list[tuple[str, Any]] = []
    if "dc" in result.scores:
        error = result.scores.get("dc_error", 0.0)
        how = "given" if result.parameters.get("dc") is not None else "exact: the same as sorting all distances"
        facts.append(("dc", f"sampled, within {error:.2g} of the exact value (95 %)" if error else how))
    told = {name: fact for name, fact in result.diagnostics.items() if name not in TOLD_ELSEWHERE}
    for name, value in flat(told):
        short = name.removeprefix("exactness.")
        shown = EXACTNESS_VALUES.get((short, value), value) if isinstance(value, (str, int, float)) else value
        facts.append((EXACTNESS_NAMES.get(short, short.replace("_", " ")), shown))
    return _section("Exactness", facts)


def _source(result: Result) -> list[tuple[str, Any]]:
    names = {
        "name": "source",
        "sha256": "SHA-256",
        "labels_sha256": "SHA-256 of the labels",
        "labels": "truth included",
        "n_nodes": "nodes",
        "n_edges": "edges",
        "named": "nodes have names",
    }
    return [(names.get(name, name), value) for name, value in result.source.items()]


def _section(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    rows = "".join(f"<tr><th>{escaped(name)}</th><td>{value_text(value)}</td></tr>" for name, value in facts)
    return f'<h2>{title}</h2><table class="facts">{rows}</table>' if rows else ""


def _reproduce(command: Sequence[str] | None) -> str:
    lines = "<h2>Again</h2>"
    if command:
        lines += f"<pre>{escaped(shlex.join(command))}</pre>"
    snippet = 'import mgclust\nresult = mgclust.load_result("DIRECTORY")  # labels, arrays, scores'
    return (
        f"<section>{lines}<pre>{escaped(snippet)}</pre></section>\n"
        "<footer>Everything above is in result.json beside this page; labels and other arrays are the files that it "
        "names.</footer>"
    )
