"""Uploads: what is left of those whose web process was killed, lists, deletion, and how much one user may keep."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from mgclust.base.errors import InputError
from mgclust.service.queue import access, removal, sources
from mgclust.service.queue.access import Caller
from mgclust.service.queue.jobs.lists import JobFilter
from mgclust.service.queue.jobs.submission import NewJob, job_id
from mgclust.service.queue.models import Job, migrate, open_database, writing
from mgclust.service.queue.quotas import QuotaExceeded
from mgclust.service.queue.removal import InUse, sweep
from mgclust.service.queue.sources import delete_upload, latest_uploads, receive
from mgclust.service.settings import Settings
from support.whole_queue import WholeQueue

KB = 1024
ANN, BOB, ROOT = Caller("ann", "user"), Caller("bob", "user"), Caller("root", "admin")


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path, disk_per_user=100 * KB)


@pytest.fixture
def engine(settings):
    engine = open_database(settings.database)
    migrate(engine)
    for caller in (ANN, BOB, ROOT):
        access.add_user(engine, caller.name, caller.role)
    return engine


async def parts(count, size=10 * KB):
    for _ in range(count):
        yield os.urandom(size)  # equal files of a user would be one
        await asyncio.sleep(0.001)


def send(engine, settings, caller=ANN, *counts):
    """Send files at the same time, of so many times ten KiB each; what came of them."""

    async def all_of_them():
        sending = (receive(engine, settings, caller, "x.npy", parts(count)) for count in counts)
        return await asyncio.gather(*sending, return_exceptions=True)

    told = asyncio.run(all_of_them())
    assert all(each.pop("new") for each in told if isinstance(each, dict))
    return told


def kept(settings):
    return sorted(os.listdir(settings.data / "uploads"))


def test_what_was_left_goes(engine, settings):
    """What no living process receives, after minutes; what may be of one that saves a result, after a day."""
    sweep(engine, settings)  # there are no uploads yet
    for name, file, hours in (
        ("uploads/cut", ".partial", 0.1),
        ("uploads/new", ".partial", 0.05),
        ("uploads/arriving", ".partial", 100),
        ("uploads/whole", "points.npy", 1000),
        ("uploads/killed.0.deleted", "points.npy", 0),
        ("jobs/whole", "log.txt", 1000),
        ("jobs/saved.0", "log.txt", 25),
        ("jobs/saving.0", "log.txt", 23),
    ):
        folder = settings.data / name
        folder.mkdir(parents=True)
        (folder / file).write_bytes(b"0")
        past = time.time() - 3600 * hours
        os.utime(folder / file, (past, past))
        os.utime(folder, (past, past))
    with open(settings.data / "uploads" / "arriving" / ".partial", "ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        sweep(engine, settings)
    assert kept(settings) == ["arriving", "new", "whole"]
    assert sorted(os.listdir(settings.data / "jobs")) == ["saving.0", "whole"]
    sweep(engine, settings)
    assert kept(settings) == ["new", "whole"]


def test_an_upload_that_arrives_is_locked(engine, settings, monkeypatch):
    """However slowly it comes, a sweep leaves it alone; without its process, nothing of it is left."""
    monkeypatch.setattr(removal, "RECEIVING_GRACE_SECONDS", -1.0)

    async def slow():
        yield bytes(10)
        sweep(engine, settings)
        yield bytes(10)

    told = asyncio.run(receive(engine, settings, ANN, "x.npy", slow()))
    assert told["size"] == 20
    killed = """
import asyncio, os, sys
from pathlib import Path
from mgclust.service.queue.access import Caller
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.queue.sources import receive

async def parts():
    yield bytes(10)
    os._exit(9)

settings = Settings(data=Path(sys.argv[1]))
asyncio.run(receive(open_database(settings.database), settings, Caller("ann", "user"), "x.npy", parts()))
"""
    done = subprocess.run([sys.executable, "-c", killed, str(settings.data)], check=False)
    assert done.returncode == 9 and len(kept(settings)) == 2
    sweep(engine, settings)
    assert kept(settings) == [told["id"]]


def test_jobs_are_kept_for_some_days(engine, settings):
    """From their end on, however long ago they were submitted."""
    jobs = WholeQueue(engine, settings)
    orders = [NewJob(job_id(ANN, None), ANN, "silhouette", {"sources": []}, 0) for _ in range(4)]
    old, new, running, waiting = (job.id for job in jobs.submit(orders))
    for id_ in (old, new):
        jobs.cancel(ANN, id_)
        settings.job_folder(id_).mkdir(parents=True)
    jobs.claim()
    with writing(engine) as session:
        for id_ in (old, new, running, waiting):
            job = session.get(Job, id_)
            job.created = job.queued = time.time() - 9 * removal.DAY_SECONDS
        session.get(Job, old).finished = time.time() - 8 * removal.DAY_SECONDS
    sweep(engine, settings)
    assert {row.id for row in jobs.latest(ROOT, JobFilter(), 10)} == {old, new, running, waiting}
    sweep(engine, replace(settings, keep_days=7.5))
    assert {row.id for row in jobs.latest(ROOT, JobFilter(), 10)} == {new, running, waiting}
    assert sorted(os.listdir(settings.data / "jobs")) == [new]


@pytest.mark.parametrize(
    ("running", "size", "kept"), [(False, 12_000, False), (False, 6_000, True), (True, 12_000, True)]
)
def test_what_jobs_have_compiled_is_bounded(engine, settings, monkeypatch, running, size, kept):
    """A job can leave anything there, which counts for no quota."""
    monkeypatch.setattr(removal, "MAX_CACHE_BYTES", 10_000)
    folder = settings.cache_folder("ann") / "numba"
    folder.mkdir(parents=True)
    (folder / "kernels.nbi").write_bytes(b"x" * size)
    jobs = WholeQueue(engine, settings)
    (job,) = jobs.submit([NewJob(job_id(ANN, None), ANN, "silhouette", {"sources": []}, 0)])
    settings.job_folder(job.id).mkdir(parents=True)
    if running:
        jobs.claim()
    sweep(engine, settings)
    assert folder.exists() == kept and os.listdir(settings.data / "jobs") == [job.id]


def test_lists(engine, settings):
    first, second, third = (send(engine, settings, ANN, 1)[0] for _ in range(3))
    (bobs,) = send(engine, settings, BOB, 2)
    assert latest_uploads(engine, ANN, 10, None) == [third, second, first]
    assert latest_uploads(engine, ANN, 1, (third["created"], third["id"])) == [second]
    assert latest_uploads(engine, ROOT, 10, None) == [bobs, third, second, first]
    assert (first["size"], first["name"], set(first)) == (
        10 * KB, "x.npy", {"id", "owner", "name", "size", "sha256", "created"},
    )  # fmt: skip


@pytest.mark.parametrize(
    "request_of",
    [
        lambda id_: {"sources": [{"path": "/x"}, {"upload": id_, "name": "x"}]},
        lambda id_: {"sources": [], "mask": {"upload": id_}},
        lambda id_: {"sources": [], "parameters": {"labels": {"upload": id_}}},
    ],
)
def test_deleted_once_no_job_needs_it(engine, settings, request_of):
    (upload,), (other,) = send(engine, settings, ANN, 1), send(engine, settings, ANN, 1)
    jobs = WholeQueue(engine, settings)
    order = NewJob(job_id(ANN, None), ANN, "silhouette", request_of(upload["id"]), 0)
    (job,) = jobs.submit([order])
    for _ in ("PENDING", "RUNNING"):
        with pytest.raises(InUse, match=rf"upload {upload['id']} is needed by waiting or running jobs \({job.id}\)"):
            delete_upload(engine, settings, ANN, upload["id"])
        jobs.claim()
    assert delete_upload(engine, settings, ANN, other["id"]) == other
    jobs.succeed(job.id, 1, {})
    for caller, id_ in ((BOB, upload["id"]), (ANN, other["id"]), (ANN, "../jobs"), (ANN, "a\0"), (ANN, "")):
        assert delete_upload(engine, settings, caller, id_) is None
    assert kept(settings) == [upload["id"]]
    assert delete_upload(engine, settings, ANN, upload["id"]) == upload
    assert (kept(settings), latest_uploads(engine, ROOT, 10, None)) == ([], [])


def test_no_more_than_a_user_may_keep(engine, settings):
    (upload,) = send(engine, settings, ANN, 10)
    (refusal,) = send(engine, settings, ANN, 1)
    assert isinstance(refusal, QuotaExceeded)
    assert str(refusal).startswith(
        f"ann keeps {100 * KB} bytes of uploads and jobs, and this would exceed disk_per_user={100 * KB}"
    )
    assert isinstance(send(engine, settings, BOB, 3)[0], dict)
    assert kept(settings) == sorted(each["id"] for each in latest_uploads(engine, ROOT, 10, None))
    delete_upload(engine, settings, ANN, upload["id"])
    assert isinstance(send(engine, settings, ANN, 10)[0], dict)
    assert isinstance(send(engine, replace(settings, disk_per_user=0), ANN, 20)[0], dict)


def test_several_uploads_at_the_same_time(engine, settings, monkeypatch):
    """No more is on the disk, even for a moment; those of another process count when they are whole."""
    sent = send(engine, settings, ANN, 6, 6, 6)
    assert sorted(isinstance(each, QuotaExceeded) for each in sent) in ([False, True, True], [True, True, True])
    (whole,) = send(engine, settings, BOB, 6)
    monkeypatch.setattr(
        sources, "_kept_now", lambda *given: (0, settings.disk_per_user)
    )  # asked before the other was whole
    (refusal,) = send(engine, settings, BOB, 6)
    assert isinstance(refusal, QuotaExceeded)
    assert [each["id"] for each in latest_uploads(engine, BOB, 10, None)] == [whole["id"]]
    assert kept(settings) == sorted(each["id"] for each in latest_uploads(engine, ROOT, 10, None))
    assert not any(sources._receiving.values())


def test_an_upload_that_is_deleted_while_a_job_is_submitted(engine, settings):
    """Either the job is accepted, and the upload is in use; or the upload is gone, and the job is rejected."""
    settings = replace(settings, disk_per_user=0)
    jobs = WholeQueue(engine, settings)
    for turn in range(20):
        upload = asyncio.run(receive(engine, settings, ANN, "x.npy", parts(1)))["id"]
        request = {"sources": [{"upload": upload}], "parameters": {}}
        start = threading.Barrier(2)

        def delete(upload=upload, start=start):
            start.wait()
            with contextlib.suppress(InUse):
                return delete_upload(engine, settings, ANN, upload)

        with ThreadPoolExecutor(1) as pool:
            deleted = pool.submit(delete)
            start.wait()
            (job,) = jobs.submit([NewJob(f"{turn:032x}", ANN, "silhouette", request, 0)])
            assert isinstance(job, InputError) == (deleted.result() is not None), (turn, job)
    (job,) = jobs.submit([NewJob("f" * 32, BOB, "silhouette", {"sources": [{"upload": upload}]}, 0)])
    assert "is not one of your uploads" in str(job)


def test_a_retry_needs_the_uploads(engine, settings):
    jobs = WholeQueue(engine, settings)
    upload = asyncio.run(receive(engine, settings, ANN, "x.npy", parts(1)))["id"]
    jobs.submit([NewJob("1" * 32, ANN, "silhouette", {"sources": [{"upload": upload}]}, 0)])
    jobs.cancel(ANN, "1" * 32)
    assert delete_upload(engine, settings, ANN, upload)
    with pytest.raises(InputError, match="is not one of your uploads"):
        jobs.retry(ANN, "1" * 32)


def test_an_upload_may_be_called_partial(engine, settings, monkeypatch):
    monkeypatch.setattr(removal, "RECEIVING_GRACE_SECONDS", -1.0)
    upload = asyncio.run(receive(engine, settings, ANN, "partial", parts(1)))["id"]
    sweep(engine, settings)
    assert (settings.data / "uploads" / upload / "partial").is_file()
