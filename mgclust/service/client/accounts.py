"""Users, tokens and webhooks of the service, and the sessions of browsers."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from typing import Any

from mgclust.base.errors import InputError
from mgclust.service.client.connection import ServiceConnection, check_id, list_of

__all__ = ["Accounts"]


class Accounts(ServiceConnection):
    """Methods of `mgclust.Service` for users, tokens and webhooks."""

    def users(self) -> list[dict[str, Any]]:
        """List ``name``, ``role`` and the number of valid ``tokens`` of all users (administrators only)."""
        return list(self.call("GET", "/users"))

    def create_user(self, name: str, role: str = "user") -> dict[str, Any]:
        """Create a user (administrators only).

        Parameters
        ----------
        name : str
            Name of the user: up to 64 characters of a-z, 0-9 and ``. _ @ -``, beginning with a letter or digit.
        role : {"user", "admin"}
            Role of the user. An admin sees the jobs of all users, and creates users and tokens.

        Returns
        -------
        dict
            The new user, as in `users`.
        """
        return dict(self.call("POST", "/users", json={"name": name, "role": role}))

    def tokens(self, user: str | None = None) -> list[dict[str, Any]]:
        """List a user's tokens, without their secrets.

        Parameters
        ----------
        user : str, optional
            Name of the user; by default yourself. Administrators may give any user.

        Returns
        -------
        list of dict
            The tokens. The keys are ``id``, ``user``, ``scopes``, and the times ``created``, ``expires``, ``revoked``
            and ``used`` (seconds since 1970, or None).
        """
        if user is not None and not re.fullmatch("[a-z0-9._@-]+", user):
            raise InputError(f"user={user[:80]!r} should be a user's name; 'mgclust user list' lists all names.")
        return list(self.call("GET", "/tokens" if user is None else f"/tokens/{user}"))

    def create_token(
        self, user: str | None = None, scopes: Sequence[str] | None = None, days: float | None = 365.0
    ) -> dict[str, Any]:
        """Create a token. Keep it: it cannot be shown again.

        Parameters
        ----------
        user : str, optional
            Name of the user; by default yourself. Administrators may give any user.
        scopes : sequence of str, optional
            Scopes of the token: some of "read", "submit" and "admin". By default all scopes of the user's role.
        days : float or None
            Days until the token expires. With None (administrators only), it does not expire.

        Returns
        -------
        dict
            The new token, with the keys ``id``, ``user``, ``token`` (the secret) and ``expires`` (seconds since 1970,
            or None).
        """
        given = {"user": user, "days": days} | ({} if scopes is None else {"scopes": list_of("scopes", scopes)})
        return dict(self.call("POST", "/tokens", json=given))

    def revoke_token(self, id_: str) -> None:
        """Revoke a token.

        Parameters
        ----------
        id_ : str
            Id of the token, as `tokens` lists it.
        """
        self.call("DELETE", f"/tokens/{check_id(id_, 'mgclust token list', 16)}")

    def whoami(self) -> dict[str, Any]:
        """Return the ``user``, ``role`` and ``scopes`` of the token, its id (``token``) and when it ``expires``."""
        return dict(self.call("GET", "/session"))

    def sign_in_url(self) -> str:
        """Create an address that signs a browser in as the user of this token, once and within 10 minutes."""
        return f"{self.pages_url}{self.call('POST', '/session/codes')['path']}"

    def add_webhook(self, url: str) -> dict[str, Any]:
        """Add an address that receives a signed message at the end of each of your jobs.

        Parameters
        ----------
        url : str
            Public address, ``https://...``.

        Returns
        -------
        dict
            ``id``, ``url``, and ``secret``, the key of the signatures, which cannot be shown again.
        """
        return dict(self.call("POST", "/webhooks", json={"url": url}))

    def webhooks(self) -> list[dict[str, Any]]:
        """List your webhooks: ``id``, ``url``, ``created``, and the outcome of the ``last`` message."""
        return list(self.call("GET", "/webhooks"))

    def delete_webhook(self, id_: str) -> None:
        """Delete a webhook.

        Parameters
        ----------
        id_ : str
            Id of the webhook, as `webhooks` lists it.
        """
        self.call("DELETE", f"/webhooks/{check_id(id_, 'mgclust webhook list', 16)}")

    def rotate_local_token(self) -> dict[str, Any]:
        """Replace the token in the data folder of a service on this machine by a new token, and revoke it.

        Returns
        -------
        dict
            ``id`` of the new token, id of the ``revoked`` token, and ``path`` of the file.

        Raises
        ------
        InputError
            The token of this connection does not come from the data folder.
        """
        path = self._token_file
        if path is None or not path.exists():
            raise InputError(
                "only the token in the data folder of a service on this machine is replaced, and this connection uses "
                "another token; create a token with 'mgclust token create', then revoke the old one."
            )
        own = self.whoami()
        days = None if own["expires"] is None else 365.0
        made = self.create_token(scopes=own["scopes"], days=days)
        partial = path.with_name("token.partial")
        partial.unlink(missing_ok=True)
        with open(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(f"{made['token']}\n")
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        self.revoke_token(own["token"])
        self._http.headers["Authorization"] = f"Bearer {made['token']}"
        return {"id": made["id"], "revoked": own["token"], "path": str(path)}
