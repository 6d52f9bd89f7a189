"""Content of the report; templates define its layout."""

from __future__ import annotations

import base64
import os
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined

from mgclust import plots
from mgclust.algorithms import presentation_of
from mgclust.algorithms.presentation import EdgeSample, Fact, Presentation, Sample, Score, number_text
from mgclust.base.progress import seconds_text
from mgclust.data import Dataset
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.output.label_output import label_colors, pieces_of
from mgclust.output.report.views import SliceViews, slice_views
from mgclust.results.result import Result

__all__ = ["draw_pictures", "draw_views", "draw_volume", "sample_rows", "write_report"]

_VIEWS = (
    "Clusters over the mean of the series. {} The arrow keys also move it. Lines show where the other two slices are."
)
VIEWS = _VIEWS.format(
    "The slider moves all three slices, from left, back and bottom to right, front and top (R, A, S)."
)
VIEWS_WITHOUT_SIDES = _VIEWS.format(
    "The file does not say which side is left. The slider moves all three slices along the axes of the volume."
)
WIDE_PICTURES = ("label_slices",)  # pictures that take the whole width of the page
SOURCE = {
    "name": "source",
    "sha256": "SHA-256",
    "labels_sha256": "SHA-256 of the labels",
    "labels": "truth included",
    "n_nodes": "nodes",
    "n_edges": "edges",
    "named": "nodes have names",
    "atlas_sha256": "SHA-256 of the atlas",
}


def sample_rows(dataset: Dataset, result: Result, most: int = plots.MAX_POINTS) -> Sample | EdgeSample | None:
    """Read a sample of a data set for the pictures of a result.

    Parameters
    ----------
    dataset : Dataset or Graph
        The data that were clustered.
    result : Result
        The result of clustering them.
    most : int
        Maximum number of rows, which are drawn at random. It has no effect on a graph: all of its edges are read, or
        evenly spread parts of them.

    Returns
    -------
    Sample, EdgeSample or None
        A sample of rows, or of the edges of a graph. None if the rows are similarities instead of points.
    """
    return presentation_of(result.method).sample(dataset, result, most)


def draw_pictures(result: Result, sample: Sample | EdgeSample | None = None) -> dict[str, bytes]:
    """Draw the pictures that suit the method.

    Parameters
    ----------
    result : Result
        The result to draw.
    sample : Sample or EdgeSample, optional
        Rows or edges from `sample_rows`. Without a sample, there is no scatter plot and no adjacency matrix.

    Returns
    -------
    dict of str to bytes
        PNG files by name, for `write_report`.

    Examples
    --------
    >>> from mgclust import FastNewman
    >>> from mgclust.output.report import draw_pictures
    >>> model = FastNewman().fit([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])
    >>> sorted(draw_pictures(model.result_))
    ['dendrogram', 'modularity']
    """
    drawn = presentation_of(result.method).draw(result.compute(), sample)
    return {name: plots.png(ax) for name, ax in drawn.items()}


def draw_volume(result: Result, dataset: Dataset) -> dict[str, bytes]:
    """Draw the clusters at their place in the brain, if the rows are voxels.

    Parameters
    ----------
    result : Result
        The result to draw.
    dataset : Dataset
        The data that were clustered.

    Returns
    -------
    dict of str to bytes
        PNG files by name; empty if the rows are not voxels.
    """
    grid = _colored_volume(result, dataset)
    return {} if grid is None else {"label_slices": plots.png(plots.label_slices(**grid))}


def draw_views(result: Result, dataset: Dataset) -> SliceViews | None:
    """Draw sagittal, coronal and axial slices of the clusters, if the rows are voxels.

    Parameters
    ----------
    result : Result
        The result to draw.
    dataset : Dataset
        The data that were clustered.

    Returns
    -------
    SliceViews or None
        Slices for `write_report`, which adds a slider to them. None if the rows are not voxels.
    """
    grid = _colored_volume(result, dataset)
    if grid is None or not isinstance(dataset, VolumeDataset):
        return None
    pieces = int(pieces_of(dataset, np.asarray(result.labels)).sum())
    clusters = int(grid["volume"].max(initial=0))
    note = f"{clusters:,} cluster{'s' * (clusters != 1)} in {pieces:,} connected piece{'s' * (pieces != 1)}."
    return slice_views(**grid)._replace(note=note)


def _colored_volume(result: Result, dataset: Dataset) -> dict[str, Any] | None:
    """Return the arguments of `plots.label_slices` and `slice_views`; None if the rows are not voxels."""
    grid = None if result.labels is None else dataset.label_volume(result.labels)
    if grid is None:
        return None
    volume = grid["volume"]
    return {**grid, "colors": label_colors(result.method, int(volume.max(initial=0)), volume, grid["affine"])}


def write_report(
    result: Result,
    path: str | os.PathLike[str],
    pictures: Mapping[str, bytes] | None = None,
    command: Sequence[str] | None = None,
    views: SliceViews | None = None,
    colors: np.ndarray | None = None,
) -> Path:
    """Write the report of a result as one HTML file.

    Parameters
    ----------
    result : Result
        The result to report.
    path : path
        The file to write, e.g. ``report.html``.
    pictures : mapping of str to bytes, optional
        PNG files by name, as `draw_pictures` returns them. By default, the pictures that need no rows are drawn.
    command : sequence of str, optional
        The command line that made the result, so that the report can state how to repeat it.
    views : SliceViews, optional
        Slices in three views, from `draw_views`. The report adds a slider to them.
    colors : ndarray of shape (n_clusters, 3), float, optional
        Colours of the clusters in the label volume, from `mgclust.output.label_output.label_colors`. By default, the
        colours of the labels.

    Returns
    -------
    Path
        The file.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from mgclust import FastNewman
    >>> from mgclust.output.report import write_report
    >>> model = FastNewman().fit([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(model.result_, Path(folder) / "report.html").name
    'report.html'
    """
    result, presentation = result.compute(), presentation_of(result.method)
    stages = {name: seconds for name, seconds in result.timings.items() if name != "total"}
    page = PAGE.render(
        title=_title(presentation, result),
        lead=_lead(presentation, result),
        figures=_figures(presentation, result),
        result=result,
        views=_views(views),
        pictures=_pictures(presentation, draw_pictures(result) if pictures is None else pictures),
        tables=presentation.all_tables(result, colors),
        log=_log(result),
        stages=stages,
        longest=max(stages.values(), default=0.0) or 1.0,
        facts={
            "Exactness": _exactness(presentation, result),
            "Data": [(SOURCE.get(name, name), value) for name, value in result.source.items()],
            "Parameters": list(result.parameters.items()),
            "Hardware": _flat({name: fact for name, fact in result.hardware.items() if name != "versions"}),
            "Versions": list(result.versions.items()),
        },
        command=shlex.join(command or ()),
    )
    path = Path(path)
    path.write_text(page, encoding="utf-8")
    return path


def _title(shown: Presentation, result: Result) -> str:
    method, name = shown.title_of(result.method), result.source.get("name")
    return f"{method}: {os.path.basename(str(name))}" if name else method


def _lead(shown: Presentation, result: Result) -> list[str]:
    """Return the facts below the title: the size of the data, the number type and the devices."""
    facts = []
    shape = result.source.get("shape")
    if "n_nodes" in result.source:
        weighted = "weighted" if result.source.get("weighted") else "unweighted"
        facts.append(f"{result.source['n_nodes']:,} nodes and {result.source['n_edges']:,} {weighted} edges")
    elif shape and len(shape) == 2:
        facts.append(f"{shape[0]:,} rows x {shape[1]:,} features")
    dtype = result.diagnostics.get("computed_in", result.parameters.get("dtype"))
    if dtype:
        facts.append(f"computed in {dtype}")
    devices = [str(name) for name in result.hardware.get("devices", ())]
    facts += [f"on {devices.count(name)} x {name}" for name in dict.fromkeys(devices)]
    return facts + shown.lead(result)


def _figures(shown: Presentation, result: Result) -> list[tuple[str, str]]:
    """Return the large numbers at the head of the page, with their names."""
    scores = shown.all_scores()
    figures = {}  # by displayed name, so that a score with two names is shown once
    for name, value in result.scores.items():
        score = scores.get(name, Score(name))
        if score is not None:
            figures[score.name] = _figure_text(value, score.form)
    if result.timings:
        figures["time"] = seconds_text(result.seconds)
    return list(figures.items())


def _views(views: SliceViews | None) -> dict[str, Any] | None:
    if views is None:
        return None
    known = all(view.ends for view in views.views)
    return {
        **views._asdict(),
        "axes": [view.axes[0] for view in views.views],
        "caption": " ".join(filter(None, [views.note, VIEWS if known else VIEWS_WITHOUT_SIDES])),
    }


def _pictures(shown: Presentation, pictures: Mapping[str, bytes]) -> list[dict[str, Any]]:
    captions = shown.all_captions()
    return [
        {
            "name": name.replace("_", " "),
            "code": _base64(data),
            "caption": captions.get(name, name),
            "wide": name in (*WIDE_PICTURES, *shown.wide),
        }
        for name, data in pictures.items()
    ]


def _log(result: Result) -> str:
    """Return the log of the method as one text; empty if there is no log."""
    lines = result.diagnostics.get("log") or ()
    return lines if isinstance(lines, str) else "\n".join(map(str, lines))


def _exactness(shown: Presentation, result: Result) -> list[tuple[str, Any]]:
    # The page shows the log and the number type elsewhere.
    known: dict[str, Fact | None] = {"computed_in": None, "log": None, **shown.facts}
    pairs = shown.exactness(result)
    for name, value in _flat({name: fact for name, fact in result.diagnostics.items() if known.get(name, name)}):
        short = name.removeprefix("exactness.")
        fact = known.get(short) or Fact(short.replace("_", " "))
        pairs.append((fact.name, fact.values.get(value, value) if isinstance(value, (str, int, float)) else value))
    return pairs


def _flat(facts: Mapping[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    """Flatten nested facts to a list of pairs with dotted names."""
    pairs: list[tuple[str, Any]] = []
    for name, value in facts.items():
        pairs += _flat(value, f"{prefix}{name}.") if isinstance(value, Mapping) else [(f"{prefix}{name}", value)]
    return pairs


def _fact_text(value: Any) -> str:
    """Format a fact for a table."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    return f"{value:,.6g}" if isinstance(value, (float, np.floating)) else str(value)


def _figure_text(value: Any, form: str) -> str:
    if isinstance(value, (float, np.floating)):
        return format(value, form) if form else number_text(float(value))
    return _fact_text(bool(value) if isinstance(value, np.bool_) else value)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _template() -> Any:
    environment = Environment(
        loader=PackageLoader("mgclust.output.report"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=StrictUndefined,
    )
    environment.filters |= {"fact": _fact_text, "seconds": seconds_text, "base64": _base64}
    environment.tests["listed"] = lambda value: isinstance(value, (list, tuple))
    return environment.get_template("report.html")


PAGE = _template()  # loaded on import: a confined process cannot open files later
