"""``mgclust demo``: cluster points, voxels and a graph, and write a report on each."""

from __future__ import annotations

import importlib.util
import os
import time
from pathlib import Path
from typing import Any

import click

from mgclust.cli.options import CONTEXT
from mgclust.cli.output import ShownProgress, summary

__all__ = ["demo"]

# Name, method, parameters and title of each part. The points have 100 clusters, so only one pair of points in a hundred
# lies within a cluster: dc_fraction has to be smaller than the customary 2 %.
DEMO: tuple[tuple[str, str, dict[str, Any], str], ...] = (
    ("points", "density-peaks", {"dc_fraction": 0.002}, "100,000 generated points, 100 true clusters on a grid"),
    (
        "voxels",
        "fuzzy-c-means",
        {"n_clusters": 6, "m": 1.1, "metric": "correlation", "random_state": 0},
        "1,983 voxels of the studyforrest visual localizer (BOLD), compared by the correlation of their series",
    ),
    ("graph", "communities", {}, "the 77 characters of Les Misérables"),
)


@click.command("demo", context_settings=CONTEXT)
@click.option("-o", "--output", metavar="DIR", help="Directory to create; default mgclust-demo, or the next free name.")
@click.pass_obj
def demo(command: list[str], output: str | None) -> None:
    """Cluster points, voxels of a BOLD series and a graph; write results, pictures and reports.

    The voxels need nibabel (pip install 'mgclust[fmri]') and are skipped without it.
    """
    from mgclust.algorithms import METHODS
    from mgclust.output.file_run import fit, save
    from mgclust.results.atomic_directory import atomic_directory

    target = Path(output) if output else _free_name("mgclust-demo")
    started = time.monotonic()
    reports = []
    with atomic_directory(target) as directory:
        for name, method, parameters, title in DEMO:
            if name == "voxels" and importlib.util.find_spec("nibabel") is None:
                click.echo("voxels: skipped, because nibabel is not installed (pip install 'mgclust[fmri]')\n")
                continue
            dataset = _open(name, directory)
            with ShownProgress() as progress:
                result = fit(METHODS[method](client=None, **parameters), dataset, progress)
                save(result, dataset, directory / name, False, True, command, progress)
            click.echo(f"{name}: {title}\n{summary(result, target / name, True)}\n")
            reports.append(str(target / name / "report.html"))
    click.echo(f"reports   {' '.join(reports)}\ndone in   {time.monotonic() - started:.1f} s")


def _open(name: str, directory: Path) -> Any:
    """Open the data of a part. Generated points are also saved next to the results, for runs of other methods."""
    from mgclust.data import open_dataset, samples
    from mgclust.datasets import make_gaussian_grid

    if name != "points":
        return samples.load({"voxels": "localizer", "graph": "lesmis"}[name])
    dataset = open_dataset(make_gaussian_grid().save(directory / "points.npz"))
    dataset.name = "points.npz"
    return dataset


def _free_name(name: str) -> Path:
    path, number = Path(name), 1
    while os.path.lexists(path):
        number += 1
        path = Path(f"{name}-{number}")
    return path
