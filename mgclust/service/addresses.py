"""Client address of a request: the address of its connection, or the address that a trusted proxy reports.

The client is the last address in the header ``X-Forwarded-For`` that is not a trusted proxy: each proxy appends the
address that it saw, and a client can write anything before these addresses.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from typing import TYPE_CHECKING

from mgclust.base.errors import InputError

if TYPE_CHECKING:
    from starlette.types import Scope

__all__ = ["Proxies", "network"]

Network = ipaddress.IPv4Network | ipaddress.IPv6Network
Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class Proxies:
    """The proxies whose ``X-Forwarded-For`` headers are trusted.

    Parameters
    ----------
    names : str
        Addresses and networks, separated by commas, e.g. ``10.0.0.0/8, fd00::1``.
    setting : str
        Name of the setting, for messages.

    Raises
    ------
    InputError
        An address or network is invalid.
    """

    def __init__(self, names: str, setting: str = "trusted_proxies") -> None:
        self._networks: list[Network] = []
        for name in filter(None, re.split(r"[\s,]+", names)):
            try:
                self._networks.append(ipaddress.ip_network(name))
            except ValueError as error:
                raise InputError(f"{setting}={name!r} should be an address or a network: {error}.") from None
        self.trusts = functools.lru_cache(4096)(self._trusts)

    def _trusts(self, address: str) -> bool:
        known = _parsed(address)
        return known is not None and any(known in each for each in self._networks)

    def client_of(self, scope: Scope) -> str:
        """Return the client address of a request; "local" if it came through the socket in the data folder."""
        peer = scope["client"][0] if scope.get("client") else "local"
        if not self._networks or not self.trusts(peer):
            return peer
        values = [value.decode("latin-1") for name, value in scope["headers"] if name == b"x-forwarded-for"]
        return self._last([hop.strip() for value in values for hop in value.split(",")]) or peer

    def _last(self, hops: list[str]) -> str | None:
        for hop in reversed(hops):
            known = _parsed(hop)
            if known is None:
                return None
            if not self.trusts(str(known)):
                return str(known)
        return None


def _parsed(text: str) -> Address | None:
    if text.startswith("["):
        text = text[1:].split("]")[0]
    elif text.count(":") == 1:  # an IPv4 address with a port
        text = text.split(":")[0]
    try:
        known = ipaddress.ip_address(text)
    except ValueError:
        return None
    return known.ipv4_mapped or known if known.version == 6 else known


def network(address: str, bits: int = 64) -> str:
    """Return the key by which limits count an address: for IPv6, the network with a prefix of `bits` bits.

    One machine can use all addresses of a /64, and one customer often all addresses of a /48.
    """
    known = _parsed(address)
    if known is None:
        return address
    return str(ipaddress.ip_network((known, bits), strict=False)) if known.version == 6 else str(known)
