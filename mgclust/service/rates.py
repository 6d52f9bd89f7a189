"""How often somebody may ask: a token so many requests a second, an address so many that show no valid token.

Of an address, requests for pages and refused ones are counted apart: where a flood of guesses comes from an address
that others share, they can still sign in. A bucket holds what may be asked at once and fills again at the rate. Buckets
are those of one web process; the oldest of too many are forgotten, which means full again.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict

from mgclust.service.addresses import network

__all__ = ["RateLimited", "Rates"]

BURST_SECONDS = 20.0  # seconds' worth of requests that may come at once
MAX_BUCKETS = 10_000  # buckets


class RateLimited(Exception):
    """More requests than the service takes from one token or address.

    Parameters
    ----------
    sentence : str
    after : int
        Seconds until it takes another.
    """

    def __init__(self, sentence: str, after: int) -> None:
        super().__init__(sentence)
        self.after = after


class Rates:
    """Both limits.

    Parameters
    ----------
    per_token, per_address : float
        Requests a second.
    """

    def __init__(self, per_token: float, per_address: float) -> None:
        self._tokens = _Buckets("rate_per_token", per_token)
        self._addresses = _Buckets("rate_per_address", per_address)
        self._pages = _Buckets("rate_per_address", per_address)

    def count(self, token: str | None, address: str) -> None:
        """Count a request before anybody looks at what it shows.

        Raises
        ------
        RateLimited
        """
        if token is not None and token in self._tokens:
            self._tokens.take(token)
        else:
            self._addresses.take(network(address))

    def count_page(self, address: str) -> None:
        """Count a request for what needs no token.

        Raises
        ------
        RateLimited
        """
        self._pages.take(network(address))

    def add_token(self, token: str) -> None:
        """The token is valid: its requests count for itself from now on, wherever they come from."""
        self._tokens.add(token)

    def remove_token(self, token: str) -> None:
        """The token is worth nothing (any more)."""
        self._tokens.forget(token)


class _Buckets:
    def __init__(self, name: str, rate: float) -> None:
        self._name, self._rate = name, rate
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()  # requests, and when there were so many

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
                f"more than {self._name}={self._rate:g} requests a second; ask again in {after} s.", after
            )
        self._left[key] = (left - 1, now)
        self._left.move_to_end(key)
        if len(self._left) > MAX_BUCKETS:
            self._left.popitem(last=False)
