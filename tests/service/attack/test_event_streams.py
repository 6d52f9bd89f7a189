"""Many watchers of jobs cost hardly more than one: one query for all of them."""

from __future__ import annotations

import asyncio
import contextlib
import time

import pytest
from sqlalchemy import event, update
from sqlalchemy.exc import OperationalError

from mgclust.service.queue import access
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.models import Job, migrate, open_database, writing
from mgclust.service.settings import Settings
from mgclust.service.web import streams
from mgclust.service.web.perimeter.callers import Callers
from mgclust.service.web.views import job_summary

WATCHERS, JOBS, LOOKS = 300, 50, 20
IDS = [f"{i:032x}" for i in range(JOBS)]


@pytest.fixture
def served(tmp_path, monkeypatch):
    """The streams of a service with some jobs that wait, the hash of a token, and all statements that are sent."""
    monkeypatch.setattr(streams, "POLL_SECONDS", 0.02)
    monkeypatch.setattr(streams, "TOKEN_CHECK_SECONDS", 0.1)
    monkeypatch.setattr("mgclust.service.web.perimeter.callers.VALID_SECONDS", 0.0)
    settings = Settings(data=tmp_path, cpu=True)
    engine = open_database(settings.database)
    migrate(engine)
    token = access.first_token(engine, tmp_path).read_text().strip()
    with writing(engine) as session:
        for id_ in IDS:
            session.add(
                Job(
                    id=id_, owner="admin", method="silhouette", request={}, priority=0, state="PENDING", created=1.0,
                    attempt=0, begun_before=0, cancel=False,
                )
            )  # fmt: skip
    jobs = JobLists(engine)
    watched = streams.Streams(jobs, Callers(engine), lambda row: job_summary(row).model_dump_json())
    return engine, jobs, watched, access.hash_of(token)


def change(engine, id_, **values):
    with writing(engine) as session:
        job = session.get(Job, id_)
        for name, value in values.items():
            setattr(job, name, value)


async def until(condition):
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def watching(served, ids):
    """What each watcher has received; all disconnect at the end."""
    _, jobs, watched, token = served
    heard = [[] for _ in ids]
    caller = access.Caller("admin", "admin")

    async def watch(id_, parts):
        async for part in watched.events(jobs.summary(caller, id_), token):
            parts.append(part)
        parts.append("end")

    tasks = [asyncio.create_task(watch(id_, parts)) for id_, parts in zip(ids, heard, strict=True)]
    try:
        await until(lambda: all(heard))
        yield heard
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def test_one_query_for_all(served):
    engine, *_ = served
    sent = []
    event.listen(engine, "before_cursor_execute", lambda *given: sent.append(given[2]))

    async def main():
        async with watching(served, [IDS[i % JOBS] for i in range(WATCHERS)]) as heard:
            sent.clear()
            begun = time.monotonic()
            await until(lambda: sum("FROM jobs" in each for each in sent) >= LOOKS)
            tokens = [each for each in sent if "FROM tokens" in each]
            assert time.monotonic() - begun >= 0.02 * (LOOKS - 1)
            assert len(tokens) <= LOOKS / 5 + 1
            assert all(len(parts) == 1 for parts in heard)  # nothing has changed
            change(engine, IDS[3], state="RUNNING", attempt=1)
            await until(lambda: all("RUNNING" in parts[-1] for parts in heard[3::JOBS]))
            change(engine, IDS[3], state="CANCELLED")
            await until(lambda: all(parts[-1] == "end" for parts in heard[3::JOBS]))
            assert all("CANCELLED" in parts[-2] for parts in heard[3::JOBS])
            assert all(len(parts) == 1 for i, parts in enumerate(heard) if i % JOBS != 3)

    asyncio.run(main())
    assert not served[2]._watched  # nothing is left of watchers that disconnected


@pytest.mark.parametrize("ids", [IDS[:1] * WATCHERS, IDS], ids=["one job", "many jobs"])
def test_other_requests_have_their_turn_while_many_are_told(served, monkeypatch, ids):
    engine, *_ = served
    told, tell = [], streams._Stream.publish

    def count(stream, row, news):
        told.append(row.id)
        tell(stream, row, news)

    async def main():
        async with watching(served, ids):
            monkeypatch.setattr(streams._Stream, "publish", count)
            with writing(engine) as session:
                session.execute(update(Job).values(state="RUNNING"))
            before, most = 0, 0
            async with asyncio.timeout(60):
                while len(told) < len(ids):
                    await asyncio.sleep(0)  # the turn of another request
                    most, before = max(most, len(told) - before), len(told)
            assert most <= streams.STREAMS_PER_TURN

    asyncio.run(main())
    assert sorted(told) == sorted(ids)


def test_a_job_that_is_deleted_or_a_database_that_is_gone_ends_the_stream(served, monkeypatch):
    engine, jobs, *_ = served

    async def main():
        async with watching(served, IDS[:2]) as heard:
            with writing(engine) as session:
                session.delete(session.get(Job, IDS[0]))
            await until(lambda: heard[0][-1] == "end")
            assert len(heard[1]) == 1

            def fail(ids):
                raise OperationalError("SELECT", {}, Exception("gone"))

            monkeypatch.setattr(jobs, "summaries", fail)
            await until(lambda: heard[1][-1] == "end")

    asyncio.run(main())


def test_a_job_that_has_ended_is_told_once(served):
    engine, *_ = served
    change(engine, IDS[0], state="FAILED", error="\x1b[2J")

    async def main():
        async with watching(served, IDS[:1]) as heard:
            await until(lambda: heard[0][-1] == "end")
            assert len(heard[0]) == 2
            assert "\\\\x1b[2J" in heard[0][0]  # nothing that a terminal obeys

    asyncio.run(main())


def test_an_internal_error_ends_streams_and_is_logged_and_later_ones_go_on(served, monkeypatch, capsys):
    """One of a job, such as a text that no answer can hold, ends the streams of this job alone."""
    engine, jobs, watched, _ = served
    monkeypatch.setattr(streams, "ERROR_PAUSE_SECONDS", 0.01)
    render, summaries, failed = watched._render, jobs.summaries, []

    def fails(row):
        if row.method == "odd":
            raise ValueError("it cannot be rendered")
        return render(row)

    def fails_once(ids):
        if not failed:
            failed.append(ids)
            raise TypeError("it cannot be read")
        return summaries(ids)

    async def main():
        monkeypatch.setattr(watched, "_render", fails)
        async with watching(served, IDS[:2]) as heard:
            change(engine, IDS[0], method="odd")
            await until(lambda: heard[0][-1] == "end")
            change(engine, IDS[1], state="RUNNING", attempt=1)
            await until(lambda: "RUNNING" in heard[1][-1])
            monkeypatch.setattr(jobs, "summaries", fails_once)
            await until(lambda: heard[1][-1] == "end")
            async with watching(served, IDS[2:3]) as later:
                change(engine, IDS[2], state="RUNNING", attempt=1)
                await until(lambda: "RUNNING" in later[0][-1])

    asyncio.run(main())
    logged = capsys.readouterr().err
    assert logged.count("\nValueError: it cannot be rendered") == logged.count("\nTypeError: it cannot be read") == 1
