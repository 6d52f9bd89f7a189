"""Options that several commands share."""

from __future__ import annotations

import os

import click

__all__ = ["CONTEXT", "debug_option", "debugging", "place_options"]

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def debugging() -> bool:
    """Whether tracebacks are wanted."""
    return os.environ.get("MGCLUST_DEBUG", "0") not in ("", "0")


def _set_debugging(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["MGCLUST_DEBUG"] = "1"  # workers that this process starts inherit it


def debug_option() -> click.Option:
    """Make the option --debug."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=_set_debugging, help="Show tracebacks.")


def place_options() -> list[click.Parameter]:
    """Make the options that say where to run."""
    return [
        click.Option(["--scheduler"], metavar="ADDRESS", help="A running Dask cluster (tcp:// or tls://)."),
        click.Option(["--gpus"], type=click.IntRange(1), metavar="N", help="GPUs to use, here or of the cluster."),
        click.Option(["--cpu"], is_flag=True, help="Use no GPU."),
        click.Option(["--workers"], type=click.IntRange(1), metavar="N", help="With --cpu or --scheduler: how many."),
    ]
