"""An OpenID Connect provider: where to send a browser, and the verified claims for a code that comes back."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import Any, NamedTuple

import httpx
from authlib.common.security import generate_token
from authlib.common.urls import add_params_to_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from mgclust.outside.json_text import parse_json
from mgclust.service.settings import Settings

__all__ = ["Attempt", "Provider", "SignInFailed"]

# Only public keys: an algorithm with a shared key would let a public key sign.
ALGORITHMS = [
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]  # no shared keys
METADATA_SECONDS = 3600.0
LEEWAY_SECONDS = 30  # tolerated difference of clocks
MAX_ANSWER_BYTES = 1 << 20
SCOPE = "openid profile email"


class SignInFailed(Exception):
    """A sign-in at the provider failed; the message is for the user."""


class Attempt(NamedTuple):
    """Secrets of one sign-in, which the browser that began it keeps in a cookie."""

    state: str
    nonce: str
    verifier: str

    @classmethod
    def new(cls) -> Attempt:
        """Draw the secrets."""
        return cls(*(generate_token(48) for _ in range(3)))


class Provider:
    """The provider of the settings.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._http = httpx.Client(timeout=10.0, follow_redirects=False)
        self._metadata: dict[str, Any] = {}
        self._read = -METADATA_SECONDS
        self._lock = threading.Lock()

    @property
    def redirect_uri(self) -> str:
        """Address to which the provider sends the browser back."""
        return f"{self._settings.public_url.rstrip('/')}/sign-in/openid/callback"

    def address(self, attempt: Attempt) -> str:
        """Return the address at the provider where the user signs in.

        Raises
        ------
        SignInFailed
            The provider does not answer.
        """
        parameters = {
            "response_type": "code", "client_id": self._settings.oidc_client_id, "redirect_uri": self.redirect_uri,
            "scope": SCOPE, "state": attempt.state, "nonce": attempt.nonce, "code_challenge_method": "S256",
            "code_challenge": create_s256_code_challenge(attempt.verifier),
        }  # fmt: skip
        return str(add_params_to_uri(self._described()["authorization_endpoint"], list(parameters.items())))

    def claims(self, code: str, attempt: Attempt) -> dict[str, Any]:
        """Exchange a code for an ID token; return its verified claims.

        Raises
        ------
        SignInFailed
            The provider rejects the code, or the token is not valid.
        """
        sent = {
            "grant_type": "authorization_code", "code": code, "redirect_uri": self.redirect_uri,
            "code_verifier": attempt.verifier,
        }  # fmt: skip
        own = (self._settings.oidc_client_id, self._settings.oidc_client_secret)
        answer = self._json("POST", self._described()["token_endpoint"], data=sent, auth=own)
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise SignInFailed("the provider sent no ID token.")
        keys = self._json("GET", self._described()["jwks_uri"])
        try:
            claims = jwt.decode(token, KeySet.import_key_set(keys), algorithms=ALGORITHMS).claims  # type: ignore[arg-type]
            jwt.JWTClaimsRegistry(
                leeway=LEEWAY_SECONDS,
                iss={"essential": True, "value": self._settings.oidc_issuer},
                aud={"essential": True, "value": own[0]},
                exp={"essential": True},
                iat={"essential": True},
                sub={"essential": True},
                nonce={"essential": True, "value": attempt.nonce},
            ).validate(claims)
        except (JoseError, ValueError, KeyError, TypeError) as error:
            raise SignInFailed(f"the provider's ID token is not valid ({type(error).__name__}).") from error
        audience = claims["aud"]
        if isinstance(audience, list) and len(audience) > 1 and claims.get("azp") != own[0]:
            raise SignInFailed("the provider's ID token is for another application.")
        return dict(claims)

    @property
    def is_described(self) -> bool:
        """True if `address` needs no request to the provider."""
        return time.monotonic() - self._read <= METADATA_SECONDS

    def _described(self) -> dict[str, Any]:
        """Return the metadata of the provider, read once per hour."""
        with self._lock:
            if not self.is_described:
                issuer = self._settings.oidc_issuer
                read = self._json("GET", f"{issuer.rstrip('/')}/.well-known/openid-configuration")
                if read.get("issuer") != issuer:
                    raise SignInFailed("the provider has another issuer than the setting oidc_issuer.")
                for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
                    if not str(read.get(name)).startswith(("https://", "http://")):
                        raise SignInFailed(f"the provider's description has no {name}.")
                self._metadata, self._read = read, time.monotonic()
            return self._metadata

    def _json(self, method: str, url: str, **how: Any) -> dict[str, Any]:
        try:
            with self._http.stream(method, url, **how) as answer:
                content = b""
                for part in answer.iter_bytes():
                    content += part
                    if len(content) > MAX_ANSWER_BYTES:
                        raise SignInFailed("the provider's answer is too long.")
            if answer.status_code == 200:
                with contextlib.suppress(ValueError):
                    if isinstance(found := parse_json(content), dict):
                        return found
        except httpx.HTTPError as error:
            raise SignInFailed("the provider does not answer; try again later.") from error
        raise SignInFailed(f"the provider rejected the sign-in (status {answer.status_code}); sign in again.")
