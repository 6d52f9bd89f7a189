"""A result as one page: what was run, what came out, how exact it is, where the time went, how to repeat it.

The page is one self-contained HTML file (pictures embedded, no scripts, nothing fetched), so that it can be
mailed, printed and archived. Text from outside (file names, warnings) is escaped wherever it enters the page.
"""

from __future__ import annotations

import base64
import html
import math
import os
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mgclust import plots
from mgclust.result import Result, seconds_text

__all__ = ["Sample", "draw_pictures", "sample_rows", "write_report"]

READ_ROWS = 65_536
OPEN_TABLE = 20  # longer tables of clusters scroll in a box

# What the computation says about itself, in the reader's words; unknown facts keep their own name.
EXACTNESS_NAMES = {
    "algorithm": "algorithm",
    "dc_passes": "exact passes over the pairs to find dc",
    "norm": "squared distances by",
    "rho_recomputed_rows": "rows whose density was recomputed directly",
    "rho_relative_error": "relative error of the densities, at most",
}
EXACTNESS_VALUES: dict[tuple[str, Any], str] = {
    ("algorithm", "brute"): "brute force: every pair, never stored",
    ("algorithm", "grid"): "near-linear: grid cells and a non-uniform FFT",
    ("dc_passes", 0): "none: the sample held every pair",
    ("norm", "l2"): "direct differences",
    ("norm", "l2-dot"): "matrix products; pairs at a threshold again by direct differences",
    ("norm", "l1"): "absolute differences",
}
SCORE_NAMES = {
    "n_clusters": "clusters",
    "dc": "cut-off distance dc",
    "ari": "agreement with the known truth (ARI, 1 = the same)",
    "halo_rows": "rows in the halo",
}
PICTURE_CAPTIONS = {
    "decision_graph": "Each point is a row. Centres are dense and far from anything denser; the numbers are "
    "their labels. The dashed line is what set them apart.",
    "scatter": "The rows by cluster, marks at the centres. Where a halo was asked for, its rows are faint.",
}

STYLE = """
:root { color-scheme: light; }
* { box-sizing: border-box; }
body { margin: 0; background: #f4f5f7; color: #22262b; font: 15px/1.5 system-ui, "Segoe UI", Roboto,
  "Helvetica Neue", Arial, sans-serif; font-variant-numeric: tabular-nums; }
main { max-width: 1080px; margin: 0 auto; padding: 32px 40px 48px; background: #fff; }
h1 { margin: 0 0 2px; font-size: 26px; letter-spacing: -0.01em; overflow-wrap: anywhere; }
h2 { margin: 34px 0 10px; padding-bottom: 5px; font-size: 16px; border-bottom: 1px solid #dfe2e6; }
p.lead { margin: 0; color: #5b6470; }
dl.figures { display: flex; flex-wrap: wrap; gap: 12px 44px; margin: 24px 0 0; }
dl.figures dt { color: #5b6470; font-size: 13px; }
dl.figures dd { margin: 0; font-size: 25px; font-weight: 600; letter-spacing: -0.01em; }
.columns { display: grid; grid-template-columns: repeat(auto-fit, minmax(400px, 1fr)); gap: 0 40px; }
.pictures { align-items: start; gap: 8px 24px; margin-top: 22px; }
figure { margin: 0; }
figure img { width: 100%; display: block; }
figcaption { color: #5b6470; font-size: 13px; margin-top: 4px; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: 4px 14px 4px 0; border-bottom: 1px solid #eceef0; vertical-align: top;
  overflow-wrap: anywhere; }
th { color: #5b6470; font-weight: 500; }
.facts th { width: 46%; }
.clusters th, .clusters td, td.number { text-align: right; }
.clusters th:first-child, .clusters td:first-child { text-align: left; }
.clusters thead th { position: sticky; top: 0; background: #fff; }
.box { max-height: 470px; overflow-y: auto; border-bottom: 1px solid #dfe2e6; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 50%; margin-right: 9px; }
.bar { display: block; height: 9px; min-width: 1px; margin-top: 7px; background: #3566b0; border-radius: 2px;
  }
.time td:first-child { width: 22%; }
.time td.number { width: 18%; padding-right: 20px; white-space: nowrap; }
ul.warnings { margin: 22px 0 0; padding: 10px 16px 10px 32px; background: #fff6e0;
  border-left: 3px solid #d99a1c; }
pre { margin: 0 0 8px; padding: 10px 14px; background: #f4f5f7; border-radius: 4px; font-size: 13px;
  white-space: pre-wrap; overflow-wrap: anywhere; }
.hash { font-family: ui-monospace, "SF Mono", Menlo, Consolas, monospace; font-size: 13px; }
footer { margin-top: 34px; color: #5b6470; font-size: 13px; }
@media print { body { background: #fff; } main { max-width: none; padding: 0; } .box { max-height: none; } }
"""


@dataclass(frozen=True)
class Sample:
    """Rows of a data set that stand for all of them in a picture.

    Attributes
    ----------
    index : ndarray of shape (m,), int
        Their row numbers, ascending.
    rows : ndarray of shape (m, n_features)
    centers : ndarray of shape (n_clusters, n_features), or None
        The rows of the centres, in label order.
    """

    index: np.ndarray
    rows: np.ndarray
    centers: np.ndarray | None


def sample_rows(dataset: Any, result: Result, most: int = plots.MAX_POINTS) -> Sample:
    """Read the rows that a picture shows: all, or an unchanging random choice, and those of the centres.

    Parameters
    ----------
    dataset : Dataset
        What was clustered: ``shape`` and ``read(start, stop)``.
    result : Result
        Names the rows of the centres, if its method has such.
    most : int
        Rows to choose at most.

    Returns
    -------
    Sample
    """
    n, d = dataset.shape
    index = np.arange(n)
    if n > most:
        index = np.sort(np.random.default_rng(0).choice(n, size=most, replace=False))
    centers = np.asarray(result.arrays.get("centers", ()), dtype=np.int64)
    wanted = np.union1d(index, centers)
    rows = np.empty((len(wanted), d))
    for start in range(0, n, READ_ROWS):
        stop = min(start + READ_ROWS, n)
        low, high = np.searchsorted(wanted, (start, stop))
        if low < high:
            block = dataset.read(start, stop)[wanted[low:high] - start]
            rows[low:high] = block.get() if hasattr(block, "get") else block
    own = rows[np.searchsorted(wanted, centers)] if len(centers) else None
    return Sample(index, rows[np.searchsorted(wanted, index)], own)


def draw_pictures(result: Result, sample: Sample | None = None) -> dict[str, bytes]:
    """Draw what suits the method, as PNG files by name; `sample` is needed for the scatter."""
    pictures = {}
    if {"rho", "delta", "centers"} <= set(result.arrays):
        pictures["decision_graph"] = plots.png(plots.decision_graph(result))
    if sample is not None and result.labels is not None:
        halo = result.arrays.get("halo")
        ax = plots.scatter(
            sample.rows,
            np.asarray(result.labels)[sample.index],
            sample.centers,
            halo=None if halo is None else np.asarray(halo)[sample.index],
            total=len(result.labels),
        )
        pictures["scatter"] = plots.png(ax)
    return pictures


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
            _clusters(result),
            '<div class="columns">',
            f"<section>{_time(result)}{_exactness(result)}</section>",
            f"<section>{_section('Data', _source(result))}"
            f"{_section('Parameters', result.parameters.items())}</section>",
            "</div>",
            '<div class="columns">',
            f"<section>{_section('Hardware', _flat(hardware))}</section>",
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
    method = result.method.replace("-", " ").capitalize()
    name = result.source.get("name")
    return f"{method}: {os.path.basename(str(name))}" if name else method


def _heading(result: Result) -> str:
    shape = result.source.get("shape")
    facts = [f"{shape[0]:,} rows x {shape[1]:,} features"] if shape and len(shape) == 2 else []
    if "dtype" in result.parameters:
        facts.append(f"computed in {result.parameters['dtype']}")
    devices = [str(name) for name in result.hardware.get("devices", ())]
    facts += [f"on {devices.count(name)} x {name}" for name in dict.fromkeys(devices)]
    scores = {name: value for name, value in result.scores.items() if name != "dc_error"}
    figures = [(SCORE_NAMES.get(name, name), _figure(name, value)) for name, value in scores.items()]
    if result.timings:
        figures.append(("time", seconds_text(result.seconds)))
    items = "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(value)}</dd></div>" for name, value in figures)
    return (
        f"<h1>{_text(_title(result))}</h1>\n"
        f'<p class="lead">{_text(", ".join(facts))}</p>\n'
        f'<dl class="figures">{items}</dl>'
    )


def _warnings(result: Result) -> str:
    if not result.warnings:
        return ""
    return f'<ul class="warnings">{"".join(f"<li>{_text(line)}</li>" for line in result.warnings)}</ul>'


def _pictures(pictures: Mapping[str, bytes]) -> str:
    figures = []
    for name, data in pictures.items():
        code = base64.b64encode(data).decode("ascii")
        caption = PICTURE_CAPTIONS.get(name, name)
        figures.append(
            f'<figure><img alt="{_text(name.replace("_", " "))}" src="data:image/png;base64,{code}">'
            f"<figcaption>{_text(caption)}</figcaption></figure>"
        )
    return f'<div class="columns pictures">{"".join(figures)}</div>' if figures else ""


def _clusters(result: Result) -> str:
    sizes = result.cluster_sizes
    if not len(sizes):
        return ""
    centers = result.arrays.get("centers")
    names = ["cluster", "rows", "share"]
    columns: list[Iterable[Any]] = [sizes.tolist(), (f"{100 * s / sizes.sum():.1f} %" for s in sizes)]
    if centers is not None and len(centers) == len(sizes):
        names.append("centre (row)")
        columns.append(np.asarray(centers).tolist())
        for name in ("rho", "delta"):
            if name in result.arrays:
                names.append(name)
                columns.append(_number(value) for value in np.asarray(result.arrays[name])[centers].tolist())
    if "halo" in result.arrays:
        labels = np.asarray(result.labels)[np.asarray(result.arrays["halo"], dtype=bool)]
        names.append("in halo")
        columns.append(np.bincount(labels[labels >= 0], minlength=len(sizes)).tolist())
    lines = []
    for k, values in enumerate(zip(*columns, strict=True)):
        red, green, blue = (plots.cluster_colors(len(sizes))[k] * 255).round().astype(int)
        swatch = f'<span class="swatch" style="background:rgb({red},{green},{blue})"></span>'
        lines.append(f"<tr><td>{swatch}{k}</td>{''.join(f'<td>{_value(v)}</td>' for v in values)}</tr>")
    head = "".join(f"<th>{name}</th>" for name in names)
    table = f'<table class="clusters"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
    box = f'<div class="box">{table}</div>' if len(sizes) > OPEN_TABLE else table
    return f"<section><h2>{len(sizes):,} clusters</h2>{box}</section>"


def _time(result: Result) -> str:
    if not result.timings:
        return ""
    stages = {name: seconds for name, seconds in result.timings.items() if name != "total"}
    longest = max(stages.values(), default=0.0) or 1.0
    lines = [
        f'<tr><td>{_text(name)}</td><td class="number">{seconds_text(seconds)}</td>'
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
    for name, value in _flat(result.diagnostics):
        short = name.removeprefix("exactness.")
        shown = EXACTNESS_VALUES.get((short, value), value) if isinstance(value, (str, int)) else value
        facts.append((EXACTNESS_NAMES.get(short, short.replace("_", " ")), shown))
    return _section("Exactness", facts)


def _source(result: Result) -> list[tuple[str, Any]]:
    names = {"name": "source", "sha256": "SHA-256", "labels": "truth included"}
    return [(names.get(name, name), value) for name, value in result.source.items()]


def _section(title: str, facts: Iterable[tuple[str, Any]]) -> str:
    rows = "".join(f"<tr><th>{_text(name)}</th><td>{_value(value)}</td></tr>" for name, value in facts)
    return f'<h2>{title}</h2><table class="facts">{rows}</table>' if rows else ""


def _reproduce(command: Sequence[str] | None) -> str:
    lines = "<h2>Again</h2>"
    if command:
        lines += f"<pre>{_text(shlex.join(command))}</pre>"
    snippet = 'import mgclust\nresult = mgclust.load_result("DIRECTORY")  # labels, arrays, scores'
    return (
        f"<section>{lines}<pre>{_text(snippet)}</pre></section>\n"
        "<footer>Everything above is in result.json beside this page; labels and diagnostics are the .npy "
        "files.</footer>"
    )


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Nested facts as a list of pairs, with dotted names."""
    flat: list[tuple[str, Any]] = []
    for name, value in facts.items():
        if isinstance(value, Mapping):
            flat += _flat(value, f"{prefix}{name}.")
        else:
            flat.append((f"{prefix}{name}", value))
    return flat


def _text(value: Any) -> str:
    return html.escape(str(value))


def _value(value: Any) -> str:
    if value is None:
        return '<span style="color:#8a929c">none</span>'
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return _text(f"{value:,.6g}")
    if isinstance(value, (list, tuple)):
        return ", ".join(_value(item) for item in value)
    text = _text(value)
    return f'<span class="hash">{text}</span>' if len(str(value)) == 64 else text


def _figure(name: str, value: Any) -> str:
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3f}" if name == "ari" else _number(float(value))
    return str(value)


def _number(value: float) -> str:
    """Write with four significant digits, and all digits before the point while they are few."""
    if value == 0 or not 1e-3 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
