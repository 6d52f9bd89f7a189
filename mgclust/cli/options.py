"""Options that several commands share, and the connection to the service."""

from __future__ import annotations

import datetime
import math
import os
from typing import Any

import click

from mgclust.base.errors import InputError, printable

__all__ = [
    "CONTEXT", "FiniteRange", "as_json_option", "connect_service", "date", "debug_option", "debugging", "mlflow_option",
    "not_installed", "place_options",
]  # fmt: skip

CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


def debugging() -> bool:
    """Return whether the user requested tracebacks."""
    return os.environ.get("MGCLUST_DEBUG", "0") not in ("", "0")


def _set_debugging(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        os.environ["MGCLUST_DEBUG"] = "1"  # workers that this process starts inherit it


def debug_option() -> click.Option:
    """Make the option --debug."""
    return click.Option(["--debug"], is_flag=True, expose_value=False, callback=_set_debugging, help="Show tracebacks.")


def place_options() -> list[click.Parameter]:
    """Make the options that select where to run."""
    return [
        click.Option(["--scheduler"], metavar="ADDRESS", help="Address of a running Dask cluster (tcp:// or tls://)."),
        click.Option(
            ["--gpus"],
            type=click.IntRange(1),
            metavar="N",
            help="How many GPUs to use, of this machine or of the cluster.",
        ),
        click.Option(["--cpu"], is_flag=True, help="Use no GPU."),
        click.Option(
            ["--workers"],
            type=click.IntRange(1),
            metavar="N",
            help="How many workers to use; needs --cpu or --scheduler.",
        ),
    ]


def mlflow_option() -> click.Option:
    """Make the option --mlflow."""
    return click.Option(
        ["--mlflow"], metavar="URI", help="Also log the result to this tracking server of MLflow, from this machine."
    )


as_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


class FiniteRange(click.FloatRange):
    """A range without NaN and infinity: JSON has neither, and NaN would pass the comparisons of a range."""

    def convert(self, value: Any, parameter: Any, context: Any) -> float:
        """Parse a finite number."""
        number = float(super().convert(value, parameter, context))
        if not math.isfinite(number):
            self.fail(f"{value!r} should be a finite number", parameter, context)
        return number


def connect_service() -> Any:
    """Connect to the service that the environment variables name."""
    try:
        from mgclust.service.client.service import Service
    except ModuleNotFoundError as error:
        raise not_installed(error) from error
    service = Service()
    service.on_wait = lambda text: click.echo(printable(text), err=True)
    return service


def not_installed(error: ModuleNotFoundError) -> InputError:
    """Make the error for missing packages of the service."""
    return InputError(f"{error.name} is not installed, and the service needs it; run pip install 'mgclust[service]'.")


def date(seconds: float) -> str:
    """Format a time of the service as local time, to the minute."""
    return datetime.datetime.fromtimestamp(seconds).strftime("%Y-%m-%d %H:%M")
