"""Event streams of jobs, with one poll of the database for all streams.

A poll reads the summaries of all watched jobs in one query, and publishes the summaries that have changed. The tokens
of the streams are also checked together.
"""

from __future__ import annotations

import asyncio
import itertools
import random
import traceback
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from typing import Any

from anyio import CapacityLimiter, to_thread
from sqlalchemy import Row

from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.models import OUTAGES
from mgclust.service.states import ENDED
from mgclust.service.web.perimeter.callers import Callers

__all__ = ["Streams"]

POLL_SECONDS = 0.5  # time between two polls of the watched jobs
ERROR_PAUSE_SECONDS = 5.0  # pause after an internal error
TOKEN_CHECK_SECONDS = 3.0  # time between two checks of the tokens of streams
KEEP_ALIVE_SECONDS = 15.0  # time until an idle stream sends a comment, shortened at random so that not all send at once
STREAMS_PER_TURN = 20  # streams that receive an event before other requests get their turn
JOBS_PER_QUERY = 500


class Streams:
    """All event streams of a web process.

    Parameters
    ----------
    jobs : JobLists
        The queue.
    callers : Callers
        Finds the caller of a token.
    render : callable
        Converts the summary of a job to JSON.
    """

    def __init__(self, jobs: JobLists, callers: Callers, render: Callable[[Row[Any]], str]) -> None:
        self._jobs, self._callers, self._render = jobs, callers, render
        self._watched: dict[str, set[_Stream]] = {}
        self._task: asyncio.Task[None] | None = None
        self._thread = CapacityLimiter(1)

    async def events(self, job: Row[Any], token: str) -> AsyncIterator[str]:
        """Send the summary of a job, first at once and then at each change, until the job has ended or is deleted.

        Parameters
        ----------
        job : Row
            Summary of the job, which the caller may see.
        token : str
            Hash of the token. The events end when the token becomes invalid.
        """
        stream, id_ = _Stream(token), job.id
        stream.publish(job, self._render(job))
        self._watched.setdefault(id_, set()).add(stream)
        try:
            if job.state in ENDED:
                stream.end()
            elif self._task is None:
                self._task = asyncio.create_task(self._watch())
            del job  # a row holds its whole query, and a stream lives long
            while True:
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS * random.uniform(0.7, 1.0)):
                        await stream.event.wait()
                except TimeoutError:
                    yield ": still there\n\n"
                    continue
                stream.event.clear()
                pending, stream.pending = stream.pending, None
                if pending is not None:
                    yield f"event: job\ndata: {pending}\n\n"
                if stream.ended and stream.pending is None:
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
                        await self._check_tokens()
                    await self._poll()
                except Exception as error:
                    # End the streams: the clients reconnect, and receive the error.
                    self._end(stream for those in self._watched.values() for stream in those)
                    if not isinstance(error, OUTAGES):
                        traceback.print_exc()
                        await asyncio.sleep(ERROR_PAUSE_SECONDS)
        finally:
            self._task = None

    async def _check_tokens(self) -> None:
        streams = [stream for those in self._watched.values() for stream in those]
        refused = await self._callers.refused(stream.token for stream in streams)
        self._end(stream for stream in streams if stream.token in refused)

    async def _poll(self) -> None:
        ids = [id_ for id_, those in self._watched.items() if not all(stream.ended for stream in those)]
        numbers = itertools.count(1)
        for start in range(0, len(ids), JOBS_PER_QUERY):
            part = ids[start : start + JOBS_PER_QUERY]
            rows = await to_thread.run_sync(self._jobs.summaries, part, limiter=self._thread)
            for id_ in part:
                if (row := rows.get(id_)) is None:
                    self._end(self._watched.get(id_, ()))
                    continue
                try:
                    await self._publish(row, numbers)
                except Exception:  # an error of this job must not affect others
                    traceback.print_exc()
                    self._end(self._watched.get(id_, ()))

    async def _publish(self, row: Row[Any], numbers: Iterator[int]) -> None:
        """Publish the summary of a job to its streams; `numbers` counts the streams of all jobs."""
        pending = None
        for stream in list(self._watched.get(row.id, ())):
            if next(numbers) % STREAMS_PER_TURN == 0:
                await asyncio.sleep(0)
            if stream.summary != tuple(row) and not stream.ended:
                pending = pending or self._render(row)
                stream.publish(row, pending)
                if row.state in ENDED:
                    stream.end()

    def _end(self, streams: Iterable[_Stream]) -> None:
        for stream in streams:
            stream.end()


class _Stream:
    """A stream: the last summary, and the event that is to be sent."""

    def __init__(self, token: str) -> None:
        self.token = token
        self.summary: tuple[Any, ...] = ()
        self.pending: str | None = None
        self.ended = False
        self.event = asyncio.Event()

    def publish(self, row: Row[Any], event: str) -> None:
        self.summary, self.pending = tuple(row), event  # replaces an event that has not been sent yet
        self.event.set()

    def end(self) -> None:
        self.ended = True
        self.event.set()
