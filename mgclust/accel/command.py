"""The command ``python -m mgclust.accel [OPTIONS] (SCRIPT | -m MODULE) [ARGUMENTS]``."""

from __future__ import annotations

import atexit
import json
import os
import sys
from pathlib import Path
from typing import Any, NoReturn

import click

from mgclust.accel import install, summary, totals
from mgclust.accel.script import module_run, script_run
from mgclust.base.errors import InputError, printable

WRONG_USE = 2


def _names(context: click.Context, parameter: click.Parameter, value: tuple[str, ...]) -> list[str]:
    return [name.strip() for each in value for name in each.split(",") if name.strip()]


@click.command(
    "accel",
    context_settings={
        "help_option_names": ["-h", "--help"], "max_content_width": 100, "allow_interspersed_args": False
    },
    no_args_is_help=True,
)  # fmt: skip
@click.option("-m", "as_module", is_flag=True, help="SCRIPT is the name of a module.")
@click.option("--only", multiple=True, callback=_names, metavar="NAME", help="Replace only these calls or projects.")
@click.option(
    "--exclude", multiple=True, callback=_names, metavar="NAME", help="Do not replace these calls or projects."
)
@click.option("--seeded", is_flag=True, help="Also replace seeded calls whose communities then differ.")
@click.option("--cpu", is_flag=True, help="Do not use a GPU.")
@click.option("--scheduler", metavar="ADDRESS", help="Run on this Dask cluster (tcp:// or tls://).")
@click.option("-v", "--verbose", is_flag=True, help="Print a line for each call.")
@click.option("-q", "--quiet", is_flag=True, help="Print no summary.")
@click.option(
    "--json", "json_path", metavar="FILE", type=click.Path(dir_okay=False), help="Also write the counts to FILE."
)
@click.argument("script")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(**chosen: Any) -> dict[str, Any]:
    """Run a Python script, and compute its calls of scikit-learn, scikit-fuzzy, networkx and igraph on mgclust.

    Calls that mgclust cannot compute run on the originals; a summary on stderr lists the reasons. A NAME is a call,
    such as AffinityPropagation, silhouette_score, cmeans, louvain_communities or community_leiden, or a project:
    sklearn, skfuzzy, networkx or igraph.
    """
    return chosen


def main() -> None:
    """Run the command; its own errors are printed as one line, and errors of the script as Python prints them."""
    try:
        chosen = command.main(prog_name="python -m mgclust.accel", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        sys.exit(WRONG_USE)
    except click.UsageError as error:
        _fail(f"{error.format_message().rstrip('.')} (see 'python -m mgclust.accel --help').")
    if isinstance(chosen, int):  # --help
        sys.exit(chosen)
    script, arguments, json_path = chosen["script"], chosen["arguments"], chosen["json_path"]
    place = {"device": "cpu" if chosen["cpu"] else "auto", "client": chosen["scheduler"]}
    try:
        install(**{name: chosen[name] for name in ("only", "exclude", "seeded", "verbose")}, **place)
        run = (module_run if chosen["as_module"] else script_run)(script, arguments)
    except InputError as error:
        _fail(str(error))
    atexit.register(_report, os.getpid(), chosen["quiet"], json_path and os.path.abspath(json_path))
    run()


def _report(process: int, quiet: bool, json_path: str | None) -> None:
    if os.getpid() != process:
        return  # a forked child runs the same exit handler
    if not quiet:
        print(summary(), file=sys.stderr, flush=True)
    if json_path:
        try:
            Path(json_path).write_text(json.dumps(totals(), indent=1) + "\n", encoding="utf-8")
        except OSError as error:
            print(f"error: json={json_path!r} cannot be written: {error.strerror}.", file=sys.stderr)


def _fail(message: str) -> NoReturn:
    click.echo(f"error: {printable(' '.join(message.split()))}", err=True)
    sys.exit(WRONG_USE)
