"""Rate limits: requests of a token, and requests of an address without a valid token.

For an address, requests for pages and rejected requests count separately: a flood of guesses from a shared address does
not keep others from signing in. The limits are token buckets in the memory of one web process. If there are too many
buckets, the oldest are discarded; a discarded bucket counts as full.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from mgclust.service.addresses import network

__all__ = ["RateLimited", "Rates"]

BURST_SECONDS = 20.0  # capacity of a bucket, as time at its rate
MAX_BUCKETS = 10_000


class RateLimited(Exception):
    """Too many requests of a token or an address.

    Parameters
    ----------
    sentence : str
        Message for the client.
    after : int
        Seconds after which to send the request again.
    """

    def __init__(self, sentence: str, after: int) -> None:
        super().__init__(sentence)
        self.after = after


class Rates:
    """The limits of tokens and addresses.

    Parameters
    ----------
    per_token, per_address : float
        Requests per second.
    """

    def __init__(self, per_token: float, per_address: float) -> None:
        self._tokens = _Buckets("rate_per_token", per_token)
        self._addresses = _Buckets("rate_per_address", per_address)
        self._pages = _Buckets("rate_per_address", per_address)

    def count(self, token: str | None, address: str) -> None:
        """Count a request; `token` is the hash of the token that it sends.

        Raises
        ------
        RateLimited
        """
        if token is not None and token in self._tokens:
            self._tokens.take(token)
        else:
            self._addresses.take(network(address))

    def count_page(self, address: str) -> None:
        """Count a request that needs no token.

        Raises
        ------
        RateLimited
        """
        self._pages.take(network(address))

    def add_token(self, token: str) -> None:
        """Count requests of a valid token by the token, whatever their address."""
        self._tokens.add(token)

    def remove_token(self, token: str) -> None:
        """Count requests of an invalid token by their address."""
        self._tokens.forget(token)


class _Buckets:
    def __init__(self, name: str, rate: float) -> None:
        self._name, self._rate = name, rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests left, and their time

    def __contains__(self, key: str) -> bool:
        return key in self._left

    def add(self, key: str) -> None:
        if key not in self._left:
            self._left[key] = (self._rate * BURST_SECONDS, time.monotonic())
            if len(self._left) > MAX_BUCKETS:
                self._left.popitem(last=False)

    def forget(self, key: str) -> None:
        self._left.pop(key, None)

    def take(self, key: str) -> None:
        now, full = time.monotonic(), max(1.0, self._rate * BURST_SECONDS)
        left, since = self._left.get(key, (full, now))
        left = min(full, left + (now - since) * self._rate)
        if left < 1:
            after = math.ceil((1 - left) / self._rate)
            raise RateLimited(
                f"more than {self._name}={self._rate:g} requests per second; try again in {after} s.", after
            )
        self._left[key] = (left - 1, now)
        self._left.move_to_end(key)
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
