"""Runs from input files to a result directory, for ``mgclust run`` and for jobs of the service."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.algorithms.base import Progress
from mgclust.algorithms.common.atlas_comparison import with_atlas
from mgclust.base.errors import InputError
from mgclust.data import Dataset, open_dataset, open_graph
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.dask.cluster import connect
from mgclust.output.label_output import label_colors, write_labels
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import Integer
from mgclust.results.candidates import candidate_results
from mgclust.results.label_agreement import compare_labels
from mgclust.results.result import Result

__all__ = ["compared", "fit", "open_sources", "placed", "save"]

INDIVIDUAL = "individual"  # subfolder of a result directory with one folder of label files per subject of a group
CANDIDATES = "candidates"  # subfolder of a result directory with one result directory per candidate
AGREEMENT = ("ari", "nmi", "fowlkes_mallows", "purity", "error_rate")  # scores of the agreement with true labels


def open_sources(
    method: Any, sources: Sequence[str | RootedFile], *, columns: str | None = None, **how: Any
) -> Dataset:
    """Open the input of a method.

    Parameters
    ----------
    method : type
        Class of the estimator, which determines whether the input is rows or a graph.
    sources : sequence of str or RootedFile
        Paths or URLs: one data set or graph, or several runs, which are joined in time.
    columns : str, optional
        Names or positions of columns, separated by commas.
    **how
        Other options of `open_dataset`; for a graph, ``n_nodes`` (as text or number) and other options of `open_graph`.

    Returns
    -------
    Dataset
    """
    chosen = None if columns is None else [_name_or_number(column) for column in columns.split(",")]
    if method.opens != "graph":
        return open_dataset(sources[0] if len(sources) == 1 else tuple(sources), columns=chosen, **how)
    if len(sources) > 1:
        raise InputError(f"INPUT names {len(sources)} files, but the method takes one graph; give one file.")
    n_nodes = how.get("n_nodes")
    count = None if n_nodes is None else Integer(at_least=1).parse(str(n_nodes), "n_nodes")
    given = {role: how[role] for role in ("source", "target", "weight") if how.get(role) is not None}
    roles: dict[str, Any] = {role: _name_or_number(value) for role, value in given.items()}
    return open_graph(sources[0], count, chosen, header=how.get("header"), index=how.get("index"), **roles)


def _name_or_number(column: str) -> str | int:
    # isdigit() also accepts superscripts, which int() does not; a position has fewer than 19 digits.
    return int(column) if column.isdecimal() and len(column) < 19 else column


@contextlib.contextmanager
def placed(
    scheduler: str | None = None, gpus: int | None = None, cpu: bool = False, workers: int | None = None
) -> Iterator[dict[str, Any]]:
    """Yield the estimator parameters that determine where to run. Workers started here stop when the block ends."""
    device = "cpu" if cpu else "cuda" if gpus else "auto"
    count = gpus or workers
    if not scheduler and count in (None, 1):
        yield {"client": None, "device": device}
        return
    with connect(scheduler or "local", device, n_workers=count) as cluster:
        yield {"client": cluster, "device": device}


def fit(estimator: Any, dataset: Dataset, progress: Progress, checkpoint: CheckpointConfig | None = None) -> Result:
    """Cluster the data, compare the labels with true labels and an atlas (if any), and pass warnings to `progress`."""
    result = estimator.fit_dataset(dataset, on_progress=progress, checkpoint=checkpoint)
    for text in result.warnings:
        progress({"warning": text})
    return compared(result, dataset)


def compared(result: Result, dataset: Dataset) -> Result:
    """Return the result, with its agreement with the true labels and with the atlas if the data have them."""
    result = with_atlas(result, dataset)
    if dataset.labels is None or result.labels is None:
        return result
    truth, labels = dataset.labels, result.labels
    if "n_nodes" in result.source and truth.dtype.kind == "i":
        truth, labels = truth[truth >= 0], labels[truth >= 0]  # the true label -1 means that the community is unknown
    figures = compare_labels(truth, labels)
    scores = {name: figures[name] for name in AGREEMENT if figures[name] is not None}
    return replace(result, scores={**result.scores, **scores})


def save(
    result: Result,
    dataset: Dataset,
    path: Path,
    overwrite: bool,
    report: bool,
    command: list[str],
    progress: Progress,
) -> None:
    """Write the result directory with the report, the pictures, and the files of candidates and subjects."""
    progress({"stage": "write"})

    def add_labels(directory: Path, found: Result) -> None:
        if found.labels is not None:
            write_labels(
                dataset,
                found.labels,
                directory,
                method=found.method,
                centers=found.arrays.get("centers"),
                parameters=found.parameters,
            )

    def add(directory: Path) -> None:
        add_labels(directory, result)
        for k, found in candidate_results(result).items():
            (directory / CANDIDATES).mkdir(exist_ok=True)
            candidate = with_atlas(found, dataset)
            candidate.save(directory / CANDIDATES / str(k), add=partial(add_labels, found=candidate))
        subjects = result.diagnostics["subjects"] if "individual_labels" in result.arrays else ()
        colors = None if result.labels is None else _colors_in_volume(result, dataset)
        for at, subject in enumerate(subjects):
            folder = directory / INDIVIDUAL / subject
            folder.mkdir(parents=True)
            write_labels(
                dataset,
                result.arrays["individual_labels"][:, at],
                folder,
                method=result.method,
                parameters=result.parameters,
                subject=subject,
                colors=colors,  # the colours of the group's parcels
            )
        if not report:
            return
        from mgclust.output.report import (  # imported here, because matplotlib takes a second to load
            draw_pictures,
            draw_views,
            draw_volume,
            sample_rows,
            write_report,
        )

        pictures = draw_volume(result, dataset) | draw_pictures(result, sample_rows(dataset, result))
        for name, data in pictures.items():
            (directory / f"{name}.png").write_bytes(data)
        write_report(result, directory / "report.html", pictures, command, draw_views(result, dataset), colors)

    result.save(path, overwrite, add=add)


def _colors_in_volume(result: Result, dataset: Dataset) -> Any:
    """Return the colours of a result's clusters in its label volume; None for a CIFTI file, which has fixed colours."""
    if not isinstance(dataset, VolumeDataset) or dataset.kind != "nifti":
        return None
    volume = dataset.to_grid(np.asarray(result.labels) + 1).astype(np.int32)
    return label_colors(result.method, int(volume.max(initial=0)), volume, dataset.runs[0].grid.affine)
