"""A database that is older than its data folder, a clock that is wrong, and files that a loss of power has cut."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import sqlite3
import time
from collections import Counter

import pytest
from starlette.testclient import TestClient

from mgclust.base.errors import InputError, RunFailed
from mgclust.service.queue import access, administration, clock, orphans, removal, revocations, sessions, webhooks
from mgclust.service.queue.access import Caller, Unauthorized
from mgclust.service.queue.fair_share import add_usage
from mgclust.service.queue.identities import NoAccess, caller_of
from mgclust.service.queue.identity import DAMAGES, Identity
from mgclust.service.queue.jobs.submission import NewJob
from mgclust.service.queue.models import Job, Token, User, check_data_folder, migrate, open_database, reading, writing
from mgclust.service.queue.removal import sweep
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.time_of_day import set_time
from support.whole_queue import WholeQueue

ANN, BOB = Caller("ann", "user"), Caller("bob", "user")
DAY = 86_400.0


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path, cpu=True, keep_days=30.0)


@pytest.fixture
def engine(settings):
    engine = open_database(settings.database)
    migrate(engine)
    for caller in (ANN, BOB):
        access.add_user(engine, caller.name, caller.role)
    return engine


def add_ended(engine, id_, finished):
    with writing(engine) as session:
        session.add(Job(id=id_, owner="ann", method="silhouette", request={}, state="SUCCEEDED", created=1.0,
                        finished=finished, attempt=1))  # fmt: skip


def test_a_retry_after_a_restore(engine, settings):
    """The folder of an attempt that the database does not know is set aside, and the job computes its own result."""
    jobs = WholeQueue(engine, settings)
    jobs.submit([NewJob("1" * 32, ANN, "silhouette", {"sources": [], "parameters": {}}, 0)])
    job = jobs.claim()
    jobs.fail(job.id, 1, "no", "input")
    later = settings.attempt_folder(job.id, 2)
    (later / "result").mkdir(parents=True)
    jobs.retry(ANN, job.id)
    job = jobs.claim()
    assert job.attempt == 2
    runner = Runner(settings)
    runner._server.start = lambda: pytest.fail("no process is needed for this test")
    with pytest.raises(pytest.fail.Exception):
        runner._start(job)
    assert not later.exists()


def test_folders_without_rows(engine, settings, monkeypatch):
    """They are removed a week after a sweep has found them, unless their rows come back with another backup."""
    add_ended(engine, "a" * 32, time.time())
    names = ("jobs/" + "a" * 32, "jobs/" + "b" * 32, "uploads/" + "c" * 32, "uploads/" + "d" * 32, "jobs/other")
    for name in names:
        (settings.data / name / "attempt-1").mkdir(parents=True)
        os.utime(settings.data / name, (time.time() - 2 * DAY,) * 2)
    os.utime(settings.data / "uploads" / ("d" * 32))  # new: its row may be about to be written
    monkeypatch.setattr(clock, "is_trusted", lambda data: True)
    sweep(engine, settings)
    assert all((settings.data / name).exists() for name in names)
    for mark in settings.data.glob(f"*/*/{orphans.MARK}"):
        os.utime(mark, (time.time() - 8 * DAY,) * 2)
    sweep(engine, settings)
    assert [name for name in names if (settings.data / name).exists()] == [names[0], names[3], names[4]]


def test_a_revoked_token_stays_revoked(engine, settings):
    id_, token = access.new_token(engine, "ann")
    access.new_token(engine, "bob")
    engine.dispose()
    backup = settings.data / "backup.db"
    shutil.copy(settings.data / "service.db", backup)
    engine = open_database(settings.database)
    access.revoke(engine, id_)
    revocations.keep(settings.data, token=id_, expires=None)
    with open(settings.data / revocations.FILE, "a") as file:
        file.write('{"token": "torn')
    engine.dispose()
    for end in ("-wal", "-shm"):
        (settings.data / f"service.db{end}").unlink(missing_ok=True)
    shutil.copy(backup, settings.data / "service.db")
    engine = open_database(settings.database)
    assert access.find_callers(engine, [access.hash_of(token)])[0].name == "ann"
    revocations.reapply(engine, settings.data)
    assert isinstance(access.find_callers(engine, [access.hash_of(token)])[0], Unauthorized)
    assert access.tokens_of(engine, "bob")[0]["revoked"] is None


def test_a_deleted_webhook_stays_deleted(engine, settings, monkeypatch):
    """The line of the webhook is kept for a year; other webhooks are not deleted."""
    gone, kept = (webhooks.add(engine, settings, ANN, f"https://host.example/{k}")["id"] for k in range(2))
    backup = settings.data / "backup.db"
    with contextlib.closing(sqlite3.connect(settings.data / "service.db")) as source, sqlite3.connect(backup) as copy:
        source.backup(copy)
    copy.close()
    assert webhooks.remove(engine, settings.data, "ann", gone)
    engine.dispose()
    engine = open_database(f"sqlite:///{backup}")
    assert len(webhooks.webhooks_of(engine, "ann")) == 2
    revocations.reapply(engine, settings.data)
    assert [each["id"] for each in webhooks.webhooks_of(engine, "ann")] == [kept]
    monkeypatch.setattr(revocations, "is_trusted", lambda data: True)
    now = time.time()
    for days, lines in ((360, 1), (370, 0)):
        set_time(monkeypatch, lambda days=days: now + days * DAY)
        revocations.reapply(engine, settings.data)
        assert len((settings.data / revocations.FILE).read_text().splitlines()) == lines


def test_webhooks_that_a_user_adds_in_a_day_are_limited(engine, settings, monkeypatch):
    monkeypatch.setattr(webhooks, "MAX_ADDED_PER_DAY", 2)
    monkeypatch.setattr(webhooks, "_added", Counter())
    for k in range(2):
        webhooks.remove(
            engine, settings.data, "bob", webhooks.add(engine, settings, BOB, f"https://host.example/{k}")["id"]
        )
    with pytest.raises(InputError, match="bob has added 2 webhooks today, the maximum; wait a day"):
        webhooks.add(engine, settings, BOB, "https://host.example/3")
    webhooks.add(engine, settings, ANN, "https://host.example/3")


def test_a_user_who_is_not_in_the_backup_stays_disabled(engine, settings):
    """A sign-in at the provider must not create the user again; only an administrator may create or enable the user."""
    claims = {"iss": "https://login.example", "sub": "7", "preferred_username": "eve"}
    revocations.keep(settings.data, user="eve", disabled=True)
    for _ in range(2):
        with pytest.raises(NoAccess, match="this user is disabled"):
            caller_of(engine, settings, claims)
    assert caller_of(engine, settings, claims | {"sub": "8", "preferred_username": "joe"}).name == "joe"
    administration.change_user(engine, settings.data, "eve", {"disabled": False})
    assert caller_of(engine, settings, claims).name == "eve"
    revocations.keep(settings.data, user="new", disabled=True)
    with TestClient(create_app(settings)) as http:
        token = access.first_token(engine, settings.data).read_text().strip()
        http.headers["Authorization"] = f"Bearer {token}"
        assert http.post("/api/v1/users", json={"name": "new"}).status_code == 201
    revocations.reapply(engine, settings.data)
    with reading(engine) as session:
        assert session.get(User, "new").disabled is None


@pytest.mark.parametrize("how", ["delete", "delete_sweep", "expire"])
def test_links_of_deleted_jobs_are_recorded_also_on_a_full_disk(engine, settings, monkeypatch, how):
    """The space of the reserve is used for the lines about the links, as it is for the deletion."""
    now = time.time()
    with writing(engine) as session:
        session.add(Job(id="a" * 32, owner="ann", method="silhouette", request={}, state="SUCCEEDED", created=1.0,
                        finished=now - 31 * DAY, attempt=1, sweep="b" * 32))  # fmt: skip
    link = sessions.new_link(engine, ANN, "a" * 32, 7.0)[0]
    failures, append = [], revocations.append_durably

    def full_once(*given):
        if not failures and how != "expire":
            failures.append(given)
            raise OSError(errno.ENOSPC, "No space left on device")
        append(*given)

    monkeypatch.setattr(revocations, "append_durably", full_once)
    monkeypatch.setattr(clock, "is_trusted", lambda data: True)
    monkeypatch.setattr(removal, "is_trusted", lambda data: True)
    jobs = WholeQueue(engine, settings)
    if how == "expire":
        sweep(engine, settings)
    else:
        assert getattr(jobs, how)(ANN, ("b" if how == "delete_sweep" else "a") * 32)
    with reading(engine) as session:
        assert session.get(Job, "a" * 32) is None and session.get(Token, link).revoked is not None
    assert [json.loads(line)["session"] for line in (settings.data / revocations.FILE).read_text().splitlines()] == [
        link
    ]


def test_a_lock_of_revocations_that_stays_is_not_waited_for_without_a_limit(settings, monkeypatch):
    """Such as the lock of a process that is suspended."""
    monkeypatch.setattr(revocations, "LOCK_SECONDS", 0.05)
    revocations.keep(settings.data, user="ann", disabled=False)
    with open(settings.data / revocations.LOCK, "w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(RunFailed, match="another process of the service has locked the file 'revocations'"):
            revocations.keep(settings.data, user="ann", disabled=True)
    revocations.keep(settings.data, user="ann", disabled=True)
    assert (settings.data / revocations.FILE).read_text().count("\n") == 2


def test_lines_of_revocations_are_dropped_when_they_have_passed(engine, settings, monkeypatch):
    """The rest is applied, whatever the order, and a torn line spoils no line after it."""
    now = time.time()
    tokens = [access.new_token(engine, "ann", days=days)[0] for days in (1.0, None)]
    for k in range(2000):
        revocations.keep(settings.data, session=f"{k:016x}", expires=now + (-3 * DAY if k % 2 else DAY))
    with open(settings.data / revocations.FILE, "a") as file:
        file.write('{"token": "without end"}\n{"token": "torn')
    revocations.keep(settings.data, token=tokens[0], expires=now + DAY)
    revocations.keep(settings.data, token=tokens[1], expires=None)
    for name, disabled in (("ann", True), ("ann", False), ("bob", False), ("bob", True)):
        revocations.keep(settings.data, user=name, disabled=disabled)
    monkeypatch.setattr(revocations, "is_trusted", lambda data: False)
    revocations.reapply(engine, settings.data)
    path = settings.data / revocations.FILE
    assert len(path.read_text().splitlines()) == 2004  # a clock that may be wrong drops nothing
    monkeypatch.setattr(revocations, "is_trusted", lambda data: True)
    revocations.reapply(engine, settings.data)
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(lines) == 1004 and path.stat().st_mode & 0o777 == 0o600
    assert all(token["revoked"] for token in access.tokens_of(engine, "ann"))
    with reading(engine) as session:
        assert session.get(User, "ann").disabled is None and session.get(User, "bob").disabled is not None
    set_time(monkeypatch, lambda: now + 300 * DAY)  # a link that was made with the token may still be valid
    revocations.reapply(engine, settings.data)
    kinds = [next(iter(json.loads(line))) for line in path.read_text().splitlines()]
    assert kinds == ["token", "token", "token", "user"]
    set_time(monkeypatch, lambda: now + 370 * DAY)
    revocations.reapply(engine, settings.data)
    assert [json.loads(line).get("token") for line in path.read_text().splitlines()] == ["without end", tokens[1], None]


@pytest.mark.parametrize("jump", [365 * DAY, -365 * DAY])
def test_nothing_expires_after_a_jump_of_the_clock(engine, settings, monkeypatch, jump):
    now = time.time()
    set_time(monkeypatch, lambda: now)
    add_ended(engine, "a" * 32, now)
    sweep(engine, settings)
    now += jump
    sweep(engine, settings)
    now += DAY / 2
    sweep(engine, settings)
    with reading(engine) as session:
        assert session.get(Job, "a" * 32) is not None
    now += DAY / 2 - jump  # the clock is right again, which is another jump
    sweep(engine, settings)
    for _ in range(31):
        now += DAY
        sweep(engine, settings)
    with reading(engine) as session:
        assert session.get(Job, "a" * 32) is None


def test_a_user_whose_job_ran_while_the_clock_was_ahead(engine, settings, monkeypatch):
    """The user waits for hours while others use the only slot, and not for the ten days."""
    now = time.time()
    set_time(monkeypatch, lambda: now)
    jobs = WholeQueue(engine, settings)
    with writing(engine) as session:
        session.get_one(User, "ann").used = add_usage(0.0, 60.0, now + 10 * DAY)
    for number in range(20):
        jobs.submit([NewJob(f"{number:032x}", BOB, "silhouette", {"sources": [], "parameters": {}}, 0)])
    jobs.submit([NewJob("a" * 32, ANN, "silhouette", {"sources": [], "parameters": {}}, 0)])
    owners = []
    for _ in range(12):
        job = jobs.claim()
        owners.append(job.owner)
        now += 3000.0
        jobs.succeed(job.id, 1, {})
    assert owners[0] == "bob" and "ann" in owners


@pytest.mark.parametrize("left", ["", "\n"])
def test_a_folder_id_that_a_loss_of_power_has_emptied(engine, settings, left):
    check_data_folder(engine, settings.data)
    path = settings.data / "folder-id"
    known = path.read_text()
    path.write_text(left)
    check_data_folder(engine, settings.data)
    assert path.read_text() == known
    path.write_text("0" * 32)
    with pytest.raises(InputError, match="is not the data folder"):
        check_data_folder(engine, settings.data)


def test_small_files_are_on_the_disk_before_they_count(engine, settings, monkeypatch):
    """The file before its name, and its name before the call returns."""
    happened = []
    fsync, rename = os.fsync, os.rename
    monkeypatch.setattr(
        os, "fsync", lambda number: (happened.append(os.readlink(f"/proc/self/fd/{number}")), fsync(number))
    )
    monkeypatch.setattr(os, "rename", lambda *names, **how: (happened.append("rename"), rename(*names, **how)))
    check_data_folder(engine, settings.data)
    assert [each.rpartition("/")[2] for each in happened] == ["folder-id.partial", "rename", settings.data.name]


def test_damage_is_answered_with_a_restart_first():
    class Error(Exception):
        sqlite_errorcode = DAMAGES[0]

    text = str(Identity().damaged(Error("database disk image is malformed")))
    assert text.index("restart the service first") < text.index("restore the last backup")


def test_the_record_of_the_clock(tmp_path):
    assert clock.is_trusted(tmp_path)
    assert set(json.loads((tmp_path / clock.FILE).read_text())) == {"seen", "since"}
    (tmp_path / clock.FILE).write_text("torn")
    assert clock.is_trusted(tmp_path)
