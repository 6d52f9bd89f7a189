"""The command line ``mgclust``.

Commands that run on this machine: ``run``, ``parcellate``, ``compare``, ``demo``, ``methods`` and ``info`` (in
`show`), ``warmup`` and ``certs``. Commands of the job service are in `submission`, `jobs`, `accounts`,
`administration` and `serve`. `options` and `output` are shared.

Exit codes: 0 done, 1 failed, 2 wrong use (data, parameters, devices, memory), 130 cancelled, 143 ended by SIGTERM. An
error is one line on standard error; ``--debug`` or ``MGCLUST_DEBUG=1`` adds the traceback. Standard output has the
summary, or with ``--json`` one JSON object and nothing else.

Each command imports its heavy modules itself, so that ``--help`` is quick.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from mgclust import __version__
from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError, RunCancelled, printable
from mgclust.cli import accounts, administration, certs, compare, demo, jobs, run, serve, show, submission, warmup
from mgclust.cli.options import CONTEXT, debug_option, debugging

__all__ = ["main", "run_command"]

FAILED, WRONG_USE, CANCELLED, TERMINATED = 1, 2, 130, 143


def main(args: Sequence[str] | None = None) -> NoReturn:
    """Run the command line and exit with its code.

    Parameters
    ----------
    args : sequence of str, optional
        Arguments without the program's name. By default, the arguments of this process.
    """
    # A run that a scheduler or a shell ends by SIGTERM cleans up as it does after Ctrl-C.
    signal.signal(signal.SIGTERM, _stop)
    sys.exit(run_command(list(sys.argv[1:] if args is None else args)))


class _Terminated(KeyboardInterrupt):
    """Exception that SIGTERM raises."""


def _stop(number: int, frame: Any) -> NoReturn:
    raise _Terminated


def run_command(args: list[str]) -> int:
    """Run the command line and return its exit code."""
    try:
        commands.main(args, prog_name="mgclust", standalone_mode=False, obj=["mgclust", *args])
        return 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return WRONG_USE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "mgclust"
        return _fail(f"{error.format_message().rstrip('.')} (see '{where} --help').", WRONG_USE)
    except click.ClickException as error:
        return _fail(error.format_message(), WRONG_USE)
    except (KeyboardInterrupt, click.Abort, RunCancelled) as error:
        click.echo((isinstance(error, click.Abort) and str(error)) or "cancelled", err=True)
        return TERMINATED if isinstance(error.__cause__, _Terminated) else CANCELLED
    except BrokenPipeError:
        # The program that reads our output has ended (``mgclust methods | head``): write no more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except (InputError, InsufficientMemoryError) as error:
        return _fail(str(error), WRONG_USE)
    except MgclustError as error:
        return _fail(str(error), FAILED)
    except Exception as error:
        if _is_interrupted(error):
            click.echo("cancelled", err=True)
            return CANCELLED
        hint = "" if debugging() else " (use --debug to see where)"
        return _fail(f"{type(error).__name__}: {error}{hint}", FAILED)


def _is_interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C led to an error: a library that is being imported may report it as an ImportError."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _fail(message: str, code: int) -> int:
    if debugging():
        traceback.print_exc()
    click.echo(f"error: {printable(' '.join(message.split()))}", err=True)
    return code


def _print_version(context: click.Context, parameter: click.Parameter, value: bool) -> None:
    if value:
        click.echo(f"mgclust {__version__}")
        context.exit()


@click.group(context_settings=CONTEXT)
@click.option(
    "--version", is_flag=True, is_eager=True, expose_value=False, callback=_print_version, help="Show the version."
)
def commands() -> None:
    """Exact clustering on several GPUs, or on the CPU.

    Start with: mgclust demo
    """


commands.params.append(debug_option())
for _command in (
    run.run, run.parcellate, compare.compare, demo.demo, show.methods, show.info, warmup.warmup, certs.certs,
    *accounts.commands, *administration.commands, *serve.commands, submission.submit, *jobs.commands,
):  # fmt: skip
    commands.add_command(_command)
