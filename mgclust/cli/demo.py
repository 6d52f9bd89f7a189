"""``mgclust demo``: two real data sets through density peaks."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import click

from mgclust.cli.options import CONTEXT
from mgclust.cli.output import ShownProgress, summary

__all__ = ["demo"]

# What is run, the parameters, and a title. In birch1 one pair in a hundred lies within a cluster at all, so dc
# has to be smaller than the customary 2 % of the pairs.
DEMO: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("r15", {}, "600 points, 15 true clusters (Veenman et al. 2002)"),
    ("birch1", {"dc_fraction": 0.002}, "100,000 points, 100 true clusters (Zhang et al. 1997)"),
)


@click.command("demo", context_settings=CONTEXT)
@click.option("-o", "--output", metavar="DIR", help="Directory to make; default mgclust-demo, or the next free.")
@click.pass_obj
def demo(command: list[str], output: str | None) -> None:
    """Cluster two real data sets whose truth is known, with pictures and reports."""
    from mgclust.algorithms import METHODS
    from mgclust.data import samples
    from mgclust.file_run import fit, save
    from mgclust.result import whole_directory

    target = Path(output) if output else _free_name("mgclust-demo")
    started = time.monotonic()
    with whole_directory(target) as directory:
        for name, parameters, title in DEMO:
            dataset = samples.load(name)
            with ShownProgress() as progress:
                result = fit(METHODS["density-peaks"](client=None, **parameters), dataset, progress)
                save(result, dataset, directory / name, False, True, command, progress)
            click.echo(f"{name}: {title}\n{summary(result, target / name, True)}\n")
    pictures = " and ".join(f"{target / name / '*.png'}" for name, *_ in DEMO)
    click.echo(f"pictures  {pictures}\ndone in   {time.monotonic() - started:.1f} s")


def _free_name(name: str) -> Path:
    path, number = Path(name), 1
    while os.path.lexists(path):
        number += 1
        path = Path(f"{name}-{number}")
    return path
