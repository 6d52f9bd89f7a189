"""Questions that are answered together."""

from __future__ import annotations

import asyncio
import threading

import pytest

from mgclust.service.web.perimeter.batches import Batched


def test_those_that_come_meanwhile_share_the_next_answer():
    asked, first = [], threading.Event()

    def double(numbers):
        asked.append(list(numbers))
        assert first.wait(60)
        return [2 * number for number in numbers]

    async def ask():
        batched = Batched(double, most=4)
        early = asyncio.create_task(batched(1))
        while not asked:
            await asyncio.sleep(0.01)
        late = [asyncio.create_task(batched(number)) for number in range(2, 8)]
        gone = late.pop(0)
        await asyncio.sleep(0.01)
        gone.cancel()
        first.set()
        return [await early, *[await each for each in late], await batched(8)]

    assert asyncio.run(ask()) == [2, 6, 8, 10, 12, 14, 16]
    assert asked == [[1], [2, 3, 4, 5], [6, 7], [8]]


def test_an_error_is_that_of_its_question():
    def answer(questions):
        if "all" in questions:
            raise OSError("the disk is gone")
        return [KeyError(question) if question == "bad" else question for question in questions]

    async def ask():
        batched = Batched(answer)
        with pytest.raises(OSError, match="the disk is gone"):
            await batched("all")
        return await asyncio.gather(*(batched(each) for each in ("good", "bad", "fine")), return_exceptions=True)

    good, bad, fine = asyncio.run(ask())
    assert (good, fine) == ("good", "fine")
    assert isinstance(bad, KeyError)
