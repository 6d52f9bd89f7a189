"""``mgclust certs``: certificates of a cluster."""

from __future__ import annotations

import click

from mgclust.cli.options import CONTEXT
from mgclust.errors import InputError, MgclustError

__all__ = ["certs"]

NEAR = 30  # days


@click.command("certs", context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A host's name or address; may be repeated.")
@click.option(
    "--days",
    type=click.IntRange(1),
    metavar="N",
    help="How long they are good [default: 90]; with --check, how long they should still be [default: 30].",
)
@click.option("--authority", metavar="DIR", help="An authority made earlier, in place of a new one.")
@click.option(
    "--check", is_flag=True, help="Make none: say until when those in DIR are good; code 1 if one ends too soon."
)
def certs(folder: str, hosts: tuple[str, ...], days: int | None, authority: str | None, check: bool) -> None:
    """Make certificates for a cluster's scheduler, workers and clients, in DIR.

    DIR/scheduler, DIR/worker and DIR/client go to those, DIR/authority stays where no other account reads it.

    To renew them, make new ones with --authority, and restart one process after the other; old and new trust each
    other. To revoke one, make a new authority: certificates of the old one are then good for nothing.
    """
    from mgclust.engine.certificates import DAYS, make_certificates

    if check:
        if hosts or authority:
            raise click.UsageError("--check goes neither with --host nor with --authority")
        _check(folder, NEAR if days is None else days)
        return
    try:
        until = make_certificates(folder, hosts, DAYS if days is None else days, authority)
    except OSError as error:
        raise InputError(
            f"DIR={folder!r} should be a folder that can be written: {error.strerror}; give another."
        ) from error
    click.echo(f"certificates in {folder}, good until {until:%Y-%m-%d}")


def _check(folder: str, days: int) -> None:
    from mgclust.engine.certificates import read_expiries

    expiries = read_expiries(folder)
    for each in expiries:
        left = f"{each.days} days left" if each.days >= 0 else "expired"
        click.echo(f"{each.path}  good until {each.until:%Y-%m-%d}, {left}")
    if expiries[0].days < days:
        raise MgclustError(
            f"{expiries[0].path} is good for less than days={days}; make new ones with mgclust certs --authority, and "
            "restart one process after the other."
        )
