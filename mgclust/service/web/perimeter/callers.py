"""Lookup of the caller of each request by its token: first in a cache of short duration, then in the database.

Lookups in the database are batched: a flood of invented tokens costs one lookup per hundred tokens, and text that does
not have the form of a token costs none. If this process revokes a token or disables a user, it rejects the tokens at
once. If another process does, this process rejects the tokens within `VALID_SECONDS`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import time
from collections import OrderedDict
from collections.abc import Iterable

from anyio import CapacityLimiter, to_thread
from sqlalchemy import Engine

from mgclust.service.queue.access import TOKEN_PATTERN, Caller, Unauthorized, find_callers, hash_of, record_use
from mgclust.service.queue.models import OUTAGES
from mgclust.service.web.perimeter.batches import Batched

__all__ = ["Callers"]

VALID_SECONDS = 2.0  # time for which a valid token is cached
MAX_REMEMBERED = 10_000
USE_WRITE_SECONDS = 60.0  # time between two records of used tokens


class Callers:
    """Lookup of the callers of tokens.

    Parameters
    ----------
    engine : Engine
        Database, from `open_database`.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._batched = Batched[str, Caller](functools.partial(find_callers, engine))
        self._known: OrderedDict[str, tuple[Caller, float]] = OrderedDict()
        self._forgotten = 0  # number of calls of `forget`; a lookup that began before a call is not cached
        self._used: set[str] = set()
        self._use_recorded = time.monotonic()
        self._writing: asyncio.Task[None] | None = None

    async def __call__(self, token: str) -> Caller:
        """Find the caller of a token.

        Raises
        ------
        Unauthorized
            The token is unknown, revoked or expired.
        """
        if not TOKEN_PATTERN.fullmatch(token):
            raise Unauthorized("this token is unknown or revoked; ask the service's administrator for one.")
        hash_, now = hash_of(token), time.monotonic()
        if (known := self._known.get(hash_)) is not None and now < known[1]:
            caller = known[0]
            if caller.expires is None or time.time() < caller.expires:
                return caller
        caller = await self._find(hash_)
        self._used.add(caller.token)
        if self._writing is None and now > self._use_recorded + USE_WRITE_SECONDS:
            self._writing = asyncio.create_task(self._record_use())
        return caller

    def forget(self, token: str) -> None:
        """Remove a token and its sessions from the cache, so that the next request looks them up in the database."""
        self._forgotten += 1
        for hash_ in [hash_ for hash_, (each, _) in self._known.items() if token in (each.token, each.origin)]:
            del self._known[hash_]

    def forget_user(self, name: str) -> None:
        """Remove all tokens and links of a user from the cache."""
        self._forgotten += 1
        for hash_ in [hash_ for hash_, (each, _) in list(self._known.items()) if name in (each.name, each.maker_name)]:
            self._known.pop(hash_, None)

    async def refused(self, hashes: Iterable[str]) -> set[str]:
        """Return the hashes whose tokens are invalid."""
        wanted = sorted(set(hashes))
        answers = await asyncio.gather(*(self._find(hash_) for hash_ in wanted), return_exceptions=True)
        for answer in answers:
            if isinstance(answer, BaseException) and not isinstance(answer, Unauthorized):
                raise answer
        return {hash_ for hash_, answer in zip(wanted, answers, strict=True) if isinstance(answer, Unauthorized)}

    async def _find(self, hash_: str) -> Caller:
        forgotten = self._forgotten
        try:
            caller = await self._batched(hash_)
        except Unauthorized:
            self._known.pop(hash_, None)
            raise
        if forgotten == self._forgotten:
            self._known[hash_] = (caller, time.monotonic() + VALID_SECONDS)
            self._known.move_to_end(hash_)
            if len(self._known) > MAX_REMEMBERED:
                self._known.popitem(last=False)
        return caller

    async def _record_use(self) -> None:
        used, self._used, self._use_recorded = self._used, set(), time.monotonic()
        try:
            # If the database cannot be written now, the next record has to suffice.
            with contextlib.suppress(*OUTAGES):
                await to_thread.run_sync(record_use, self._engine, used, limiter=CapacityLimiter(1))
        finally:
            self._writing = None
