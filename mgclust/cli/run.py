"""``mgclust run METHOD INPUT -o DIR``: one subcommand per method, built from the parameters of the method."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from mgclust.base.errors import InputError
from mgclust.cli.options import CONTEXT, debug_option, mlflow_option, place_options
from mgclust.cli.output import ShownProgress, summary

if TYPE_CHECKING:
    from mgclust.engine.checkpoint import CheckpointConfig

__all__ = ["job_command", "parcellate", "run"]

Act = Callable[..., None]


class _Methods(click.Group):
    """One subcommand per method, built from the parameters of the method when the subcommand is requested."""

    def __init__(self, own: list[click.Parameter], act: Act, **given: Any) -> None:
        super().__init__(**given)
        self._own, self._act = own, act

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(_declarations())

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        declared = _declarations().get(cmd_name)
        return None if declared is None else _method_command(cmd_name, declared, self._own, self._act)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from mgclust.data.formats import suffixes

        with formatter.section("Formats of INPUT"):
            formatter.write_dl([("rows", suffixes("rows")), ("a graph", suffixes("graph"))])

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        if self.get_command(ctx, args[0]) is None:
            known = ", ".join(map(repr, _declarations()))
            raise InputError(f"method={args[0]!r} should be one of {known}; 'mgclust methods' describes them.")
        return super().resolve_command(ctx, args)


def _declarations() -> Mapping[str, Any]:
    from mgclust.algorithms import declarations

    return declarations()


def job_command(name: str, metavar: str, help: str, own: list[click.Parameter], act: Act) -> click.Group:
    """Make a command whose arguments are a method, its input and its parameters.

    Parameters
    ----------
    name, metavar, help : str
        Name, usage line and help text of the command.
    own : list of click.Parameter
        Options of the command, in addition to the options of the method and of its input.
    act : callable
        Called as ``act(method, parameters, command line, sources=..., **options)``.
    """
    return _Methods(own, act, name=name, help=help, context_settings=CONTEXT, subcommand_metavar=metavar)


def _method_command(name: str, declared: Any, own: list[click.Parameter], act: Act) -> click.Command:
    options = declared.options()
    parameters: list[click.Parameter] = [
        click.Argument(["sources"], metavar="INPUT...", nargs=-1, required=True),
        *map(_click_option, options),
        *_source_options(declared),
        *own,
        debug_option(),
    ]

    @click.pass_obj
    def callback(command: list[str], /, **given: Any) -> None:
        from mgclust.algorithms import METHODS

        values = {option.name: given.pop(option.name) for option in options}
        parsed = {
            option.name: value if isinstance(value, bool) else option.constraint.parse(value, option.name)
            for option in options
            if (value := values[option.name]) is not None
        }
        act(METHODS[name], parsed, command, **given)

    return click.Command(name, params=parameters, callback=callback, help=declared.summary(), context_settings=CONTEXT)


def _click_option(option: Any) -> click.Option:
    flag = option.name.replace("_", "-")
    if option.constraint.type == "flag":
        return click.Option([f"--{flag}/--no-{flag}", option.name], default=None, help=_help(option))
    return click.Option([f"--{flag}", option.name], default=None, metavar=_metavar(option), help=_help(option))


def _help(option: Any) -> str:
    return f"{option.constraint.help}{'' if option.default is None else f' [default: {str(option.default).lower()}]'}"


def _metavar(option: Any) -> str:
    named: str = option.constraint.type
    return "|".join(option.constraint.choices) or (named if "|" in named else named.upper())


def _source_options(declared: Any) -> list[click.Parameter]:
    """Make the options for reading the input. They are passed on as text and checked when the input is opened."""
    from mgclust.data.options import GRAPH_OPTIONS, ROW_OPTIONS

    shown = {
        "mask": "FILE",
        "confounds": "FILE[,...]",
        "confound_names": "A,B,...",
        "surfaces": "FILE[,...]",
        "atlas": "FILE[,...]",
        "columns": "U,V[,W]" if declared.opens == "graph" else "A,B,...",
        "delimiter": "CHAR",
        **dict.fromkeys(("source", "target", "weight"), "COLUMN"),
    }
    options: list[click.Parameter] = []
    for option in GRAPH_OPTIONS if declared.opens == "graph" else ROW_OPTIONS:
        flag = [f"--{option.name.replace('_', '-')}"]
        if option.constraint.type == "flag" and option.default is None:
            both = f"{flag[0]}/--no-{option.name}"
            options.append(click.Option([both, option.name], default=None, help=option.constraint.help))
        elif option.constraint.type == "flag":
            options.append(click.Option(flag, is_flag=True, help=option.constraint.help))
        else:
            options.append(click.Option(flag, metavar=shown.get(option.name, _metavar(option)), help=_help(option)))
    return options


def _cluster(
    method: Any,
    parameters: dict[str, Any],
    command: list[str],
    *,
    sources: tuple[str, ...],
    output: str,
    columns: str | None,
    checkpoint: str | None,
    checkpoint_seconds: float | None,
    retries: int | None,
    overwrite: bool,
    as_json: bool,
    report: bool,
    mlflow: str | None,
    **how: Any,
) -> None:
    from mgclust.output.file_run import fit, open_sources, placed, save
    from mgclust.output.mlflow_log import check_mlflow, log_to_mlflow
    from mgclust.results.atomic_directory import check_target

    place = {option.name: how.pop(str(option.name)) for option in place_options()}
    if place["gpus"] and (place["cpu"] or place["workers"]):
        raise InputError("--gpus cannot be combined with --cpu or --workers; leave one out.")
    if place["workers"] and not (place["cpu"] or place["scheduler"]):
        raise InputError("--workers needs --cpu or --scheduler; add one of them.")
    if mlflow is not None:
        check_mlflow(mlflow)
    check_target(output, overwrite)  # reject the directory before hours of computing
    saved = _checkpoint(checkpoint, checkpoint_seconds)
    if retries is not None:
        parameters = {**parameters, "retries": retries}
    dataset = open_sources(method, sources, columns=columns, **how)
    with ShownProgress() as progress, placed(**place) as where:
        result = fit(method(**parameters, **where), dataset, progress, saved)
        save(result, dataset, Path(output), overwrite, report, command, progress)
        if saved is not None:
            saved.remove()  # before the cluster is closed, which takes time
    if as_json:
        click.echo(json.dumps({"output": os.path.abspath(output), **result.to_dict()}, allow_nan=False))
    else:
        click.echo(summary(result, Path(output), report))
    if mlflow is not None:
        log_to_mlflow(output, mlflow)


def _checkpoint(folder: str | None, seconds: float | None) -> CheckpointConfig | None:
    from mgclust.engine.checkpoint import CheckpointConfig

    if folder is None:
        if seconds is not None:
            raise click.UsageError("--checkpoint-seconds needs --checkpoint; add it")
        return None
    return CheckpointConfig(folder) if seconds is None else CheckpointConfig(folder, seconds)


run = job_command(
    "run",
    "METHOD INPUT... -o DIR [OPTIONS]",
    """Cluster a file and write a result directory.

    INPUT is a file of rows, or a BOLD series of one or several runs, which are joined in time. Methods that find
    communities take a graph instead. 'mgclust methods' lists the methods; 'mgclust run METHOD --help' lists the options
    of one method.
    """,
    [
        click.Option(["-o", "--output"], required=True, metavar="DIR", help="Result directory to create."),
        *place_options(),
        click.Option(["--checkpoint"], metavar="DIR",
                     help="Folder to which the state of the run is saved; the same command resumes from it."),
        click.Option(["--checkpoint-seconds"], type=float, metavar="S",
                     help="Shortest time between two checkpoints, in seconds. [default: 60]"),
        click.Option(["--retries"], type=click.IntRange(0), metavar="N",
                     help="How many times to retry if a worker is lost. [default: 1 or 0, depending on the method]"),
        click.Option(["--overwrite"], is_flag=True, help="Replace an earlier result."),
        mlflow_option(),
        click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of a summary."),
        click.Option(["--no-report", "report"], is_flag=True, flag_value=False, default=True,
                     help="Write no report.html and no pictures."),
    ],
    _cluster,
)  # fmt: skip


class _Parcellate(click.Command):
    """``mgclust run parcellation`` under a name of its own; its options are made when it is called."""

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> click.Context:
        command = run.get_command(click.Context(run), "parcellation")
        assert command is not None
        return command.make_context(info_name, args, parent, **extra)


parcellate = _Parcellate(
    "parcellate",
    help="Divide a BOLD series into connected parcels: INPUT... -o DIR [OPTIONS], as 'mgclust run parcellation'.",
)
