"""``mgclust certs``: certificates of a cluster."""

from __future__ import annotations

import click

from mgclust.cli.options import CONTEXT
from mgclust.errors import InputError

__all__ = ["certs"]


@click.command("certs", context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A host's name or address; may be repeated.")
@click.option(
    "--days", type=click.IntRange(1), default=825, show_default=True, metavar="N", help="How long they are good."
)
@click.option("--authority", metavar="DIR", help="An authority made earlier, in place of a new one.")
def certs(folder: str, hosts: tuple[str, ...], days: int, authority: str | None) -> None:
    """Make certificates for a cluster's scheduler, workers and clients, in DIR.

    DIR/scheduler, DIR/worker and DIR/client go to those, DIR/authority stays where nobody else reads it.
    """
    from mgclust.engine.certificates import make_certificates

    try:
        until = make_certificates(folder, hosts, days, authority)
    except OSError as error:
        raise InputError(
            f"DIR={folder!r} should be a folder that can be written: {error.strerror}; give another."
        ) from error
    click.echo(f"certificates in {folder}, good until {until:%Y-%m-%d}")
