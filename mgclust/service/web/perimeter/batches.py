"""Batching of concurrent calls: calls that arrive while others are being answered are answered together.

Under load, a database answers fifty questions in hardly more time than one: one round trip, one transaction, one wait
for the disk. No call is delayed to fill a batch: a single call is answered at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

from anyio import CapacityLimiter, to_thread

__all__ = ["Batched"]

Question = TypeVar("Question")
Answer = TypeVar("Answer")


class Batched(Generic[Question, Answer]):
    """Wrapper of a function of many questions, so that callers can await the answer to one question.

    Parameters
    ----------
    function : callable
        Function that returns the answers in the order of the questions. An exception among the answers is raised for
        its question. The function runs in a separate thread, one call at a time, so requests that occupy all other
        threads do not delay it.
    most : int
        Maximum number of questions per call.
    """

    def __init__(self, function: Callable[[Sequence[Question]], Sequence[Answer | Exception]], most: int = 100) -> None:
        self._function, self._most = function, most
        self._waiting: list[tuple[Question, asyncio.Future[Answer]]] = []
        self._task: asyncio.Task[None] | None = None
        self._thread = CapacityLimiter(1)

    async def __call__(self, question: Question) -> Answer:
        """Answer one question."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        self._waiting.append((question, future))
        if self._task is None:
            self._task = loop.create_task(self._answer())
        return await future

    async def _answer(self) -> None:
        try:
            while self._waiting:
                batch, self._waiting = self._waiting[: self._most], self._waiting[self._most :]
                answers: Sequence[Answer | Exception]
                try:
                    asked = [question for question, _ in batch]
                    answers = await to_thread.run_sync(self._function, asked, limiter=self._thread)
                except Exception as error:
                    answers = [error] * len(batch)
                for (_, future), answer in zip(batch, answers, strict=True):
                    if future.done():  # the caller was cancelled
                        continue
                    if isinstance(answer, Exception):
                        future.set_exception(answer)
                    else:
                        future.set_result(answer)
        finally:
            self._task = None
