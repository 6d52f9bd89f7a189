"""``mgclust certs``: certificates for a Dask cluster."""

from __future__ import annotations

import click

from mgclust.base.errors import InputError
from mgclust.cli.options import CONTEXT

__all__ = ["certs"]


@click.command("certs", context_settings=CONTEXT)
@click.argument("folder", metavar="DIR")
@click.option("--host", "hosts", multiple=True, metavar="NAME", help="A host's name or address; may be repeated.")
@click.option(
    "--days",
    type=click.IntRange(1),
    default=90,
    show_default=True,
    metavar="N",
    help="Days for which the certificates are valid.",
)
def certs(folder: str, hosts: tuple[str, ...], days: int) -> None:
    """Make certificates for a cluster's scheduler, workers and clients, in DIR.

    Give each machine only the folder of its role: DIR/scheduler, DIR/worker or DIR/client.

    To renew certificates, or to revoke a lost certificate, make new certificates and restart all processes with them.
    """
    from mgclust.engine.certificates import make_certificates

    try:
        until = make_certificates(folder, hosts, days)
    except OSError as error:
        raise InputError(
            f"DIR={folder!r} should be a folder that can be written: {error.strerror}; give another."
        ) from error
    click.echo(f"certificates in {folder}, valid until {until:%Y-%m-%d}")
