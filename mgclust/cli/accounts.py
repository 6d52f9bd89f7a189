"""Commands for the users and tokens of a service."""

from __future__ import annotations

import json
from typing import Any

import click

from mgclust.base.errors import printable
from mgclust.cli.options import CONTEXT, FiniteRange, as_json_option, connect_service, date

__all__ = ["commands"]


@click.group("user", context_settings=CONTEXT)
def user() -> None:
    """Create and list users, as an administrator."""


@user.command("create")
@click.argument("name")
@click.option(
    "--role", type=click.Choice(["user", "admin"]), default="user", show_default=True,
    help="An admin sees the jobs of all users, and creates users and tokens.",
)  # fmt: skip
@as_json_option
def create_user(name: str, role: str, as_json: bool) -> None:
    """Create a user. Create a token for the user with 'mgclust token create'."""
    made = connect_service().create_user(name, role)
    if as_json:
        click.echo(json.dumps(made))
    click.echo(f"created {name}; create a token with 'mgclust token create {name}'", err=True)


@user.command("list")
@as_json_option
def list_users(as_json: bool) -> None:
    """List all users with their roles and their numbers of valid tokens."""
    users = connect_service().users()
    if as_json:
        click.echo(json.dumps(users))
        return
    for each in users:
        disabled = "  disabled" if each["disabled"] else ""
        click.echo(printable(f"{each['name']}  {each['role']}  {each['tokens']} tokens{disabled}"))


@click.group("token", context_settings=CONTEXT)
def token() -> None:
    """Create, list and revoke your own tokens or, as an administrator, tokens of others."""


class _Days(click.ParamType):
    name = "days"

    def convert(self, value: Any, parameter: Any, context: Any) -> float | None:
        """Parse a number > 0, or the word "never"."""
        if value == "never":
            return None
        return FiniteRange(0, min_open=True).convert(value, parameter, context)


@token.command("create")
@click.argument("user", required=False)
@click.option(
    "--scope", "scopes", multiple=True, type=click.Choice(["read", "submit", "admin"]),
    help="What the token may be used for; may be repeated [default: all scopes of the user's role].",
)  # fmt: skip
@click.option("--days", type=_Days(), default="365", show_default=True, help="Lifetime in days, or 'never'.")
@as_json_option
def create_token(user: str | None, scopes: tuple[str, ...], days: float | None, as_json: bool) -> None:
    """Create a token and print it; it cannot be shown again."""
    made = connect_service().create_token(user, scopes or None, days)
    if as_json:
        click.echo(json.dumps(made))
        return
    ends = "does not expire" if days is None else f"expires in at most {days:g} days"
    click.echo(printable(f"token {made['id']} of {made['user']}; it {ends}:"), err=True)
    click.echo(printable(made["token"]))


@token.command("list")
@click.argument("user", required=False)
@as_json_option
def list_tokens(user: str | None, as_json: bool) -> None:
    """List a user's tokens, without their secrets."""
    tokens = connect_service().tokens(user)
    if as_json:
        click.echo(json.dumps(tokens))
        return
    for each in tokens:
        words = [each["id"], date(each["created"]), ",".join(each["scopes"]) or each["kind"]]
        if each["revoked"]:
            words.append(f"revoked {date(each['revoked'])}")
        words.append(f"expires {date(each['expires'])}" if each["expires"] else "does not expire")
        words.append(f"used {date(each['used'])}" if each["used"] else "not used")
        click.echo(printable("  ".join(words)))


@token.command("revoke")
@click.argument("id")
@as_json_option
def revoke_token(id: str, as_json: bool) -> None:
    """Revoke a token."""
    connect_service().revoke_token(id)
    if as_json:
        click.echo(json.dumps({"id": id, "revoked": True}))


@token.command("rotate")
@as_json_option
def rotate_token(as_json: bool) -> None:
    """Replace the token in the service's data folder by a new token, and revoke it.

    Use this on the service's machine if the token may have become known.
    """
    made = connect_service().rotate_local_token()
    click.echo(json.dumps(made) if as_json else f"token {made['id']} replaces {made['revoked']} in {made['path']}")


@click.group("webhook", context_settings=CONTEXT)
def webhook() -> None:
    """Add, list and delete addresses that receive a message at the end of each of your jobs."""


@webhook.command("add")
@click.argument("url")
@as_json_option
def add_webhook(url: str, as_json: bool) -> None:
    """Add an address, and print the secret with which the messages are signed."""
    made = connect_service().add_webhook(url)
    if not as_json:
        click.echo(f"webhook {made['id']}; the secret is shown only now:", err=True)
    click.echo(json.dumps(made) if as_json else printable(made["secret"]))


@webhook.command("list")
@as_json_option
def list_webhooks(as_json: bool) -> None:
    """List your webhooks and the outcomes of their last messages."""
    found = connect_service().webhooks()
    if as_json:
        click.echo(json.dumps(found))
        return
    for each in found:
        click.echo(printable("  ".join((each["id"], each["url"], each["last"] or "no message yet"))))


@webhook.command("delete")
@click.argument("id")
@as_json_option
def delete_webhook(id: str, as_json: bool) -> None:
    """Delete a webhook."""
    connect_service().delete_webhook(id)
    if as_json:
        click.echo(json.dumps({"id": id, "deleted": True}))


@click.command("sign-in", context_settings=CONTEXT)
@as_json_option
def sign_in(as_json: bool) -> None:
    """Print an address that signs a browser in, once and within 10 minutes."""
    url = connect_service().sign_in_url()
    click.echo(json.dumps({"url": url}) if as_json else url)


commands = (user, token, sign_in, webhook)
