"""Jobs that are watched: one look at the database for all of them, however many watch.

A look reads what lists tell, of all watched jobs in one query; who watches is told of a job that has changed. Their
tokens are looked up together as well.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from anyio import CapacityLimiter, to_thread
from sqlalchemy import Row

from mgclust.service.callers import Callers
from mgclust.service.jobs import Jobs
from mgclust.service.models import ENDED, OUTAGES

__all__ = ["Streams"]

POLL_SECONDS = 0.5  # seconds between two looks at the jobs that are watched
TOKEN_CHECK_SECONDS = 3.0  # seconds after which the tokens of those who watch are looked up again
KEEP_ALIVE_SECONDS = (
    15.0  # seconds after which a stream without news says so; or somewhat less, so that not all do at once
)
STREAMS_PER_TURN = 20  # streams that are told before other requests have their turn
JOBS_PER_QUERY = 500  # jobs of a query


class Streams:
    """All who watch jobs.

    Parameters
    ----------
    jobs : Jobs
    callers : Callers
    told : callable
        What is told of a job, as JSON.
    """

    def __init__(self, jobs: Jobs, callers: Callers, told: Callable[[Row[Any]], str]) -> None:
        self._jobs, self._callers, self._told = jobs, callers, told
        self._watched: dict[str, set[_Stream]] = {}
        self._task: asyncio.Task[None] | None = None
        self._thread = CapacityLimiter(1)

    async def events(self, job: Row[Any], token: str) -> AsyncIterator[str]:
        """Server-sent events of a job: what it is, and again whenever it changes, until it has ended or is deleted.

        Parameters
        ----------
        job : Row
            What lists tell of it, to who watches.
        token : str
            The hash of what they show: once it is not valid any more the events end.
        """
        stream, id_ = _Stream(token), job.id
        stream.tell(job, self._told(job))
        self._watched.setdefault(id_, set()).add(stream)
        try:
            if job.state in ENDED:
                stream.end()
            elif self._task is None:
                self._task = asyncio.create_task(self._watch())
            del job  # a row keeps its whole query, and a stream lives long
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS * random.uniform(0.7, 1.0)):
                        await stream.event.wait()
                except TimeoutError:
                    yield ": still there\n\n"
                    continue
                stream.event.clear()
                news, stream.news = stream.news, None
                if news is not None:
                    yield f"event: job\ndata: {news}\n\n"
                if stream.ended and stream.news is None:
                    return
        finally:
            self._leave(id_, stream)

    def _leave(self, id_: str, stream: _Stream) -> None:
        if (those := self._watched.get(id_)) is not None:
            those.discard(stream)
            if not those:
                del self._watched[id_]

    async def _watch(self) -> None:
        asked = 0.0
        try:
            while self._watched:
                await asyncio.sleep(POLL_SECONDS)
                asked += POLL_SECONDS
                try:
                    if asked >= TOKEN_CHECK_SECONDS:
                        asked = 0.0
                        await self._ask()
                    await self._look()
                except OUTAGES:
                    # Who watches asks again, and is told why.
                    self._end(stream for those in self._watched.values() for stream in those)
        finally:
            self._task = None

    async def _ask(self) -> None:
        streams = [stream for those in self._watched.values() for stream in those]
        refused = await self._callers.refused(stream.token for stream in streams)
        self._end(stream for stream in streams if stream.token in refused)

    async def _look(self) -> None:
        ids = [id_ for id_, those in self._watched.items() if not all(stream.ended for stream in those)]
        numbers = itertools.count(1)
        for start in range(0, len(ids), JOBS_PER_QUERY):
            part = ids[start : start + JOBS_PER_QUERY]
            rows = await to_thread.run_sync(self._jobs.summaries, part, limiter=self._thread)
            for id_ in part:
                if (row := rows.get(id_)) is None:
                    self._end(self._watched.get(id_, ()))
                else:
                    await self._tell(row, numbers)

    async def _tell(self, row: Row[Any], numbers: Iterator[int]) -> None:
        """Tell all who watch a job; `numbers` counts the streams of all jobs."""
        news = None
        for stream in list(self._watched.get(row.id, ())):
            if next(numbers) % STREAMS_PER_TURN == 0:
                await asyncio.sleep(0)
            if stream.told != tuple(row) and not stream.ended:
                news = news or self._told(row)
                stream.tell(row, news)
                if row.state in ENDED:
                    stream.end()

    def _end(self, streams: Iterable[_Stream]) -> None:
        for stream in streams:
            stream.end()


class _Stream:
    """One who watches: what they have been told, and what is to be told next."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.told: tuple[Any, ...] = ()
        self.news: str | None = None
        self.ended = False
        self.event = asyncio.Event()

    def tell(self, row: Row[Any], news: str) -> None:
        self.told, self.news = tuple(row), news  # what was not told yet is not told any more
        self.event.set()

    def end(self) -> None:
        self.ended = True
        self.event.set()
