"""The queue of the service: order, fencing, lost attempts, and many requests at once."""

from __future__ import annotations

import json
import os
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as settings_of
from hypothesis import strategies as st

from mgclust.base.errors import InputError
from mgclust.engine import heartbeat
from mgclust.service.queue import access, removal
from mgclust.service.queue.access import Caller, LastToken, Unauthorized
from mgclust.service.queue.fair_share import add_usage
from mgclust.service.queue.jobs import changes, lists
from mgclust.service.queue.jobs.lists import JobFilter
from mgclust.service.queue.jobs.submission import NewJob, TooManyJobs, job_id
from mgclust.service.queue.models import Job, Removal, Upload, migrate, open_database, reading, writing
from mgclust.service.queue.quotas import BLOCK_BYTES, QuotaExceeded, row_size
from mgclust.service.queue.removal import InUse, sweep
from mgclust.service.queue.sources import find_uploads
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from support.time_of_day import set_time
from support.waiting import wait_for
from support.whole_queue import WholeQueue

ANN, BOB, ROOT = Caller("ann", "user"), Caller("bob", "user"), Caller("root", "admin")


POSTGRES = os.environ.get("MGCLUST_TEST_POSTGRES", "")  # URL of a database whose tables may be dropped


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.slow)])
def engine(request, tmp_path):
    if request.param == "sqlite":
        engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    elif POSTGRES:
        engine = open_database(POSTGRES)
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    else:
        pytest.skip("needs PostgreSQL: MGCLUST_TEST_POSTGRES=postgresql+psycopg://...")
    migrate(engine)
    migrate(engine)  # once more changes nothing
    for caller in (ANN, BOB, ROOT):
        access.add_user(engine, caller.name, caller.role)
    yield engine
    engine.dispose()


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path, cpu=True, jobs_per_user=50, attempts=2)


@pytest.fixture
def jobs(engine, settings):
    return WholeQueue(engine, settings)


ROW = row_size({"sources": []}, {}, [])  # of a job that has succeeded


def order(caller=ANN, priority=0, key=None):
    return NewJob(job_id(caller, key), caller, "density-peaks", {"sources": []}, priority)


def submit(jobs, caller=ANN, priority=0, key=None):
    (job,) = jobs.submit([order(caller, priority, key)])
    if isinstance(job, Exception):
        raise job
    return job


def test_priority_then_age_within_a_users_jobs(jobs):
    first, second, urgent = submit(jobs), submit(jobs), submit(jobs, priority=5)
    assert [jobs.claim().id for _ in range(3)] == [urgent.id, first.id, second.id]
    assert jobs.claim() is None
    assert jobs.counts() == {"PENDING": 0, "RUNNING": 3, "SUCCEEDED": 0, "FAILED": 0, "CANCELLED": 0}


def test_a_request_sent_twice_is_one_job(jobs):
    assert submit(jobs, key="k").id == submit(jobs, key="k").id != submit(jobs, BOB, key="k").id
    assert len(jobs.latest(ROOT, JobFilter(), 10, None)) == 2


def test_orders_that_share_a_transaction(jobs):
    for _ in range(47):
        submit(jobs)
    orders = [order(key="a"), order(BOB), order(key="a"), order(key="b"), order(), order(), order(key="b")]
    answers = jobs.submit(orders)
    assert [isinstance(answer, TooManyJobs) for answer in answers] == [False] * 5 + [True, False]
    assert answers[0].id == answers[2].id
    assert answers[3].id == answers[6].id
    assert answers[1].owner == "bob"
    assert jobs.counts()["PENDING"] == 47 + 4
    again = jobs.submit([orders[3], orders[0]])
    assert [answer.id for answer in again] == [answers[3].id, answers[0].id]


class Time:
    """In place of `time.monotonic` where lives are judged."""

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr(heartbeat, "time", SimpleNamespace(monotonic=lambda: self.now))

    def pass_(self, seconds, look):
        """Look once a second, as a judge does that runs."""
        for _ in range(seconds):
            self.now += 1.0
            look()


def test_an_attempt_that_was_given_up_is_not_heard(engine, settings, monkeypatch):
    clock = Time(monkeypatch)
    jobs = WholeQueue(engine, settings)
    id_ = submit(jobs).id
    jobs.claim()
    clock.pass_(30, lambda: jobs.requeue_lost(30))
    clock.now += 1.0
    assert jobs.requeue_lost(30) == []
    clock.now += 1.0
    assert jobs.requeue_lost(30) == [id_]
    again = jobs.claim()
    assert (again.id, again.attempt) == (id_, 2)
    assert jobs.heartbeat(id_, 1, None) is None
    assert not jobs.succeed(id_, 1, {})
    jobs.fail(id_, 1, "late", "cluster")
    assert jobs.get(ANN, id_).state == "RUNNING"
    assert jobs.heartbeat(id_, 2, {"stage": "rho"}) is False
    assert jobs.succeed(id_, 2, {"n_clusters": 3})
    job = jobs.get(ANN, id_)
    assert (job.state, job.scores, job.progress) == ("SUCCEEDED", {"n_clusters": 3}, None)


def test_a_judge_that_was_stopped_counts_nothing_of_that(engine, settings, monkeypatch):
    """Nor does it look at clocks: they are set by an hour, and back, wherever they are read."""
    clock = Time(monkeypatch)
    jobs = WholeQueue(engine, settings)
    id_ = submit(jobs).id
    jobs.claim()
    for step in (3600.0, -3600.0, -3600.0, 3600.0) * 3:
        now = time.time() + step
        set_time(monkeypatch, lambda now=now: now)
        clock.now += 40.0
        assert jobs.requeue_lost(10) == []
        clock.pass_(4, lambda: jobs.requeue_lost(10))
        assert jobs.heartbeat(id_, 1, None) is False
        assert jobs.requeue_lost(10) == []
    assert (jobs.get(ANN, id_).state, jobs.get(ANN, id_).attempt) == ("RUNNING", 1)


def test_an_attempt_that_was_taken_for_lost_and_lives(engine, settings, monkeypatch):
    """It continues where no other has begun; where one has, the mistake costs the job no attempt."""
    clock = Time(monkeypatch)
    jobs, judge = WholeQueue(engine, settings), WholeQueue(engine, settings)
    id_ = submit(jobs).id
    jobs.claim()
    for attempt in range(1, 6):
        clock.pass_(12, lambda: judge.requeue_lost(10))
        assert jobs.get(ANN, id_).state == "PENDING"
        assert jobs.heartbeat(id_, attempt, None) is False
        job = jobs.get(ANN, id_)
        assert (job.state, job.attempt, job.error) == ("RUNNING", attempt, None)
        clock.pass_(12, lambda: judge.requeue_lost(10))
        assert judge.claim().attempt == attempt + 1
        assert jobs.heartbeat(id_, attempt, None) is None
    jobs.cancel(ANN, id_)
    assert jobs.heartbeat(id_, 6, None) is True


def test_jobs_of_a_runner_that_hung(engine, settings):
    hung, other = WholeQueue(engine, settings, "hung"), WholeQueue(engine, settings, "other")
    ids = [submit(hung).id for _ in range(3)]
    cancelled, kept = hung.claim(), other.claim()
    hung.cancel(ANN, cancelled.id)
    for _ in range(5):
        hung.claim()
        other.requeue_all(["hung", "unknown"])
    states = {id_: hung.get(ANN, id_).state for id_ in ids}
    assert states == {cancelled.id: "CANCELLED", kept.id: "RUNNING", ids[2]: "PENDING"}
    hung.fail(ids[2], hung.claim().attempt, "a worker died.", "cluster")
    assert hung.get(ANN, ids[2]).state == "PENDING"  # the first attempt that counts


def test_a_job_whose_runners_hang_again_and_again(jobs):
    """After some time the job is at fault, and these starts count as well; so does one that continued elsewhere."""
    hung = WholeQueue(jobs.engine, jobs.settings, "hung")
    ids = [submit(jobs, key=name).id for name in "ab"]
    for id_, fault in zip(ids, ("hangs", "mistaken"), strict=True):
        for beginning in range(1, 100):
            attempt = hung.claim().attempt
            assert attempt == beginning
            if fault == "hangs":
                jobs.requeue_all(["hung"])
            else:
                hung.fail(id_, attempt, "attempt was lost.", "cluster")
                hung.heartbeat(id_, attempt - 1, None)  # the one before lives
            if jobs.get(ANN, id_).state != "PENDING":
                break
        assert (jobs.get(ANN, id_).state, jobs.get(ANN, id_).fault) == ("FAILED", "cluster")
        assert beginning <= 10
    assert jobs.get(ANN, ids[0]).error == "attempt 8 was ended with its runner, which hung."


def test_faults(jobs):
    id_ = submit(jobs).id
    jobs.fail(id_, jobs.claim().attempt, "a worker died.", "cluster")
    assert jobs.get(ANN, id_).state == "PENDING"
    jobs.fail(id_, jobs.claim().attempt, "a worker died.", "cluster")
    job = jobs.get(ANN, id_)
    assert (job.state, job.error, job.fault) == ("FAILED", "a worker died.", "cluster")
    assert jobs.retry(ANN, id_).state == "PENDING"
    jobs.fail(id_, jobs.claim().attempt, "a worker died.", "cluster")
    assert jobs.get(ANN, id_).state == "PENDING"  # begun once since it was retried
    jobs.fail(id_, jobs.claim().attempt, "NaN in row 3.", "input")
    assert jobs.get(ANN, id_).state == "FAILED"
    with pytest.raises(InputError, match="only a failed or cancelled job can be retried"):
        jobs.retry(ANN, submit(jobs).id)


def test_attempts_that_a_stopping_runner_ends_do_not_count(jobs):
    id_ = submit(jobs).id
    for _ in range(5):
        job = jobs.claim()
        jobs.requeue(id_, job.attempt)
    jobs.requeue(id_, 1)  # not the current one
    job = jobs.claim()
    assert job.attempt == 6 and job.error is None
    for left in (1, 0):
        jobs.fail(id_, job.attempt, "a worker died", "cluster")
        job = jobs.claim()
        assert (job is not None) == bool(left)
    id_ = submit(jobs).id
    job = jobs.claim()
    jobs.cancel(ANN, id_)
    jobs.requeue(id_, job.attempt)
    assert jobs.get(ANN, id_).state == "CANCELLED"


def test_cancel(jobs):
    waiting = submit(jobs)
    assert jobs.cancel(ANN, waiting.id).state == "CANCELLED"
    running = submit(jobs)
    jobs.claim()
    assert jobs.cancel(ANN, running.id).state == "RUNNING"
    assert jobs.heartbeat(running.id, 1, None) is True
    jobs.fail(running.id, 1, "the attempt was told to stop.", "cluster")
    assert jobs.get(ANN, running.id).state == "CANCELLED"


def test_others_see_nothing(jobs):
    id_ = submit(jobs).id
    assert jobs.get(BOB, id_) is jobs.cancel(BOB, id_) is jobs.retry(BOB, id_) is None
    assert jobs.latest(BOB, JobFilter(), 10, None) == []
    assert jobs.get(ROOT, id_).id == id_
    assert jobs.get(ANN, id_).state == "PENDING"


def test_limit_per_user(jobs):
    last = submit(jobs, key="k")
    for _ in range(49):
        submit(jobs)
    assert submit(jobs, key="k").id == last.id
    with pytest.raises(TooManyJobs, match="jobs_per_user=50"):
        submit(jobs)
    submit(jobs, BOB)


def test_a_retry_counts(jobs):
    cancelled = [submit(jobs) for _ in range(2)]
    for job in cancelled:
        jobs.cancel(ANN, job.id)
    for _ in range(49):
        submit(jobs)
    jobs.retry(ANN, cancelled[0].id)
    for caller in (ANN, ROOT):
        with pytest.raises(TooManyJobs, match="jobs_per_user=50"):
            jobs.retry(caller, cancelled[1].id)
    assert jobs.get(ANN, cancelled[1].id).state == "CANCELLED"


def test_the_last_place_is_for_one(engine, settings):
    """Of several web processes, which have connections of their own."""
    one = replace(settings, jobs_per_user=1)
    engines = [open_database(engine.url.render_as_string(hide_password=False)) for _ in range(6)]
    together = threading.Barrier(len(engines), timeout=60)
    for caller in (ANN, BOB, ROOT):
        answers = []

        def ask(own, caller=caller, answers=answers):
            with reading(own):  # connected
                together.wait()
            answers.extend(WholeQueue(own, one).submit([order(caller)]))

        threads = [threading.Thread(target=ask, args=(own,)) for own in engines]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(isinstance(answer, TooManyJobs) for answer in answers) == [False] + [True] * 5
    for own in engines:
        own.dispose()


def leave(settings, id_, size=1000):
    """Files as an attempt leaves them."""
    folder = settings.attempt_folder(id_, 1)
    (folder / "result").mkdir(parents=True)
    (folder / "result" / "labels.npy").write_bytes(bytes(size - 10))
    (folder / "log.txt").write_bytes(bytes(10))


def names(settings):
    return sorted(path.name for path in (settings.data / "jobs").glob("*"))


def test_delete(jobs, engine, settings):
    id_, other = submit(jobs).id, submit(jobs, BOB).id
    for _ in range(2):
        with pytest.raises(InUse, match="cancel it, and delete it once it has ended"):
            jobs.delete(ANN, id_)
        jobs.claim()
    for each in (id_, other):
        leave(settings, each)
        assert jobs.succeed(each, 1, {})
    assert jobs.get(ANN, id_).size == 1000 + ROW
    for nobodys in (other, "0" * 32, "../x", "", "a\0", f"{id_}/../{id_}"):
        assert jobs.delete(ANN, nobodys) is None
    assert names(settings) == sorted([id_, other])
    assert jobs.delete(ANN, id_).state == "SUCCEEDED"
    assert jobs.get(ANN, id_) is jobs.delete(ANN, id_) is jobs.retry(ANN, id_) is jobs.cancel(ANN, id_) is None
    assert names(settings) == [other]
    assert jobs.delete(ROOT, other).owner == "bob"
    assert (jobs.latest(ROOT, JobFilter(), 10), names(settings)) == ([], [])
    with reading(engine) as session:
        assert session.query(Removal).all() == []


def test_deleted_twice_at_once(jobs, engine, settings):
    id_ = submit(jobs).id
    jobs.cancel(ANN, id_)
    leave(settings, id_)
    answers, together = [], threading.Barrier(4, timeout=60)

    def ask():
        together.wait()
        answers.append(jobs.delete(ANN, id_))

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(answers), answers.count(None)) == (4, 3)
    assert names(settings) == []


@pytest.mark.parametrize(
    "where", ["mgclust.service.queue.jobs.changes.remove_deleted", "mgclust.service.confined.folders._thin_out"]
)
def test_killed_while_it_deletes(jobs, engine, settings, monkeypatch, where):
    """Nothing of the job can be asked for from then on, and the next process that starts removes the rest."""
    id_ = submit(jobs, key="k").id
    jobs.cancel(ANN, id_)
    leave(settings, id_)
    with monkeypatch.context() as patch, pytest.raises(SystemExit):
        patch.setattr(where, lambda *given, **how: exit())
        jobs.delete(ANN, id_)
    assert jobs.get(ANN, id_) is None
    assert len(names(settings)) == 1
    sweep(engine, settings)
    assert names(settings) == []


def test_a_job_whose_key_was_a_deleted_jobs(jobs, engine, settings, monkeypatch):
    """It has the same id, and nothing of the other's: neither does it find the folder, nor is its own removed."""
    id_ = submit(jobs, key="k").id
    jobs.cancel(ANN, id_)
    leave(settings, id_)
    with monkeypatch.context() as patch:
        patch.setattr(changes, "remove_deleted", lambda *given: None)
        jobs.delete(ANN, id_)
    assert submit(jobs, key="k").id == id_
    sweep(engine, settings)
    assert names(settings) == [id_]
    begun = []
    start = "mgclust.service.confined.fork_server.ForkServer.start"
    monkeypatch.setattr(start, lambda self: begun.append(names(settings)) or exit())
    with pytest.raises(SystemExit):
        Runner(replace(settings, database=engine.url.render_as_string(hide_password=False))).step()
    assert len(begun) == 1 and all(name.endswith(".deleted") for name in begun[0])  # which is on its way out
    wait_for(lambda: not names(settings))


def test_no_job_of_a_deleted_jobs_key_starts_while_the_folder_is_renamed(jobs, engine, settings, monkeypatch):
    id_ = submit(jobs, key="k").id
    jobs.cancel(ANN, id_)
    leave(settings, id_)
    started, early, exists_again = threading.Event(), [], removal._exists_again

    def start():
        submit(jobs, key="k")
        assert jobs.claim().id == id_
        started.set()

    def ask(session, id_):
        answer = exists_again(session, id_)
        another.start()
        early.append(started.wait(0.5))
        return answer

    another = threading.Thread(target=start, daemon=True)
    monkeypatch.setattr(removal, "_exists_again", ask)
    jobs.delete(ANN, id_)
    assert started.wait(60) and early == [False]
    another.join()


def test_what_a_user_may_keep(engine, settings):
    limit = 4 * ROW + 2100
    jobs = WholeQueue(engine, replace(settings, disk_per_user=limit))
    first, failed = submit(jobs), submit(jobs)
    with writing(engine) as session:
        session.add(Upload(id="b", owner="ann", name="x.npy", size=ROW + 500, sha256="", created=0.0))
        session.add(Upload(id="c", owner="bob", name="x.npy", size=1 << 40, sha256="", created=0.0))
    jobs.claim(), jobs.claim()
    leave(settings, first.id, 1499)
    jobs.succeed(first.id, 1, {})
    submit(jobs)
    (settings.job_folder(failed.id)).mkdir()
    error = "NaN in row 3."
    kept = 4 * ROW - 2 * len("{}[]") + 500 + 1499 + len(json.dumps(error))  # two jobs have no scores
    (settings.job_folder(failed.id) / "checkpoint").write_bytes(bytes(limit - kept))
    jobs.fail(failed.id, 1, error, "input")
    says = f"ann keeps {limit} bytes of uploads and jobs, and this would exceed disk_per_user={limit}; delete some jobs"
    with pytest.raises(QuotaExceeded, match=says):
        submit(jobs)
    with pytest.raises(QuotaExceeded, match=says):
        jobs.retry(ANN, failed.id)
    with pytest.raises(QuotaExceeded, match=says):
        jobs.add_finished(first, "d", {}, {}, 0, lambda: pytest.fail("files were put there"))
    with pytest.raises(QuotaExceeded, match="bob keeps"):
        submit(jobs, BOB)
    submit(jobs, ROOT)
    jobs.delete(ANN, first.id)
    assert jobs.retry(ANN, failed.id).state == "PENDING"
    saved = jobs.add_finished(first, "e", {}, {}, 70, lambda: leave(settings, "e", 70))
    assert saved.size == row_size({}, {}, []) + 70


def test_checkpoints_elsewhere_count_and_go_with_their_job(engine, settings, tmp_path, monkeypatch):
    settings = replace(
        settings, checkpoints=str(tmp_path / "checkpoints"), database=engine.url.render_as_string(hide_password=False)
    )
    jobs = WholeQueue(engine, settings)
    job = submit(jobs)
    folder = settings.checkpoint_folder(job.id)
    folder.mkdir(parents=True)
    (folder / "of-a-deleted-job").write_bytes(b"123")
    begun = []
    monkeypatch.setattr(
        "mgclust.service.confined.child_process.ChildProcess.send", lambda self, order: begun.append(order)
    )
    runner = Runner(settings)
    runner.step()
    assert [order["checkpoint"] for order in begun] == [str(folder / "1")]
    assert os.listdir(folder) == ["1"] and not os.listdir(folder / "1")
    assert [each.stat().st_mode & 0o777 for each in (folder, folder / "1")] == [0o700, 0o700]
    (folder / "rows.npy").write_bytes(b"12345")
    jobs.fail(job.id, 1, "no worker is left.", "input")
    assert jobs.get(ANN, job.id).size == row_size(job.request, "no worker is left.") + 5
    jobs.delete(ANN, job.id)
    assert not folder.exists()
    for attempt in runner._running:
        attempt.process.close(at_once=True)


def test_an_attempt_takes_the_checkpoints_of_the_one_before(engine, settings, monkeypatch):
    """Which may have been suspended, and neither prunes nor writes what the next one reads."""
    settings = replace(settings, database=engine.url.render_as_string(hide_password=False))
    jobs = WholeQueue(engine, settings)
    job = submit(jobs)
    begun = []
    monkeypatch.setattr(
        "mgclust.service.confined.child_process.ChildProcess.send", lambda self, order: begun.append(order)
    )
    runner = Runner(settings)
    try:
        runner.step()
        first = Path(begun[0]["checkpoint"])
        (first / "checkpoint-1").mkdir()
        jobs.fail(job.id, 1, "a worker died.", "cluster")
        runner._running[0].process.close(at_once=True)
        wait_for(lambda: runner.step() or len(begun) == 2)
        second = Path(begun[1]["checkpoint"])
        assert second != first and not first.exists() and os.listdir(second) == ["checkpoint-1"]
    finally:
        for attempt in runner._running:
            attempt.process.close(at_once=True)


def test_what_cannot_be_an_id(jobs, engine, tmp_path):
    """PostgreSQL takes no NUL: a name with one is not found, and other requests are answered."""
    nul = "a\0"
    assert jobs.get(ANN, nul) is jobs.cancel(ANN, nul) is jobs.retry(ANN, nul) is None
    assert access.tokens_of(engine, nul) == []
    assert not access.revoke(engine, nul)
    with pytest.raises(InputError, match="does not exist"):
        access.new_token(engine, nul)
    with writing(engine) as session:
        session.add(Upload(id="b", owner="ann", name="x.npy", size=1, sha256="", created=0.0))
    bad, good = find_uploads(engine, Settings(data=tmp_path), [(ANN, nul), (ANN, "b")])
    assert "not one of your uploads" in str(bad)
    assert good.name == "x.npy"


def test_one_administrator_remains(engine):
    access.new_token(engine, "ann")
    first, _ = access.new_token(engine, "root")
    with pytest.raises(LastToken, match="create another"):
        access.revoke(engine, first)
    second, token = access.new_token(engine, "root")
    assert access.revoke(engine, first)
    assert access.revoke(engine, first)  # once more changes nothing
    with pytest.raises(LastToken):
        access.revoke(engine, second)
    assert access.find_callers(engine, [access.hash_of(token)]) == [ROOT]


def test_pages(jobs):
    ids = [submit(jobs).id for _ in range(7)]
    found, last = [], None
    while page := jobs.latest(ANN, JobFilter(), 3, last):
        found += [job.id for job in page]
        last = (page[-1].created, page[-1].id)
    assert sorted(found) == sorted(ids)


@pytest.mark.slow
def test_every_job_is_claimed_once(jobs):
    ids = [submit(jobs).id for _ in range(40)]
    claimed, errors = [], []

    def take():
        try:
            while (job := jobs.claim()) is not None:
                claimed.append(job.id)
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors
    assert sorted(claimed) == sorted(ids)


def test_tokens(engine, tmp_path):
    id_, token = access.new_token(engine, "ann")
    hashes = [access.hash_of(each) for each in (token, "mgc_guess", token)]
    known, guess, again = access.find_callers(engine, hashes)
    assert known == again == Caller("ann", "user", frozenset(access.ROLES["user"]))
    assert isinstance(guess, Unauthorized)
    if engine.dialect.name == "sqlite":
        assert token not in (tmp_path / "service.db").read_bytes().decode("latin1")
    assert access.revoke(engine, id_)
    assert "unknown or revoked" in str(access.find_callers(engine, hashes)[0])
    assert not access.revoke(engine, "nothing")
    for name, role in (("Ann", "user"), ("", "user"), ("x", "boss"), ("ann", "user")):
        with pytest.raises(InputError, match=r"name=|role="):
            access.add_user(engine, name, role)
    with pytest.raises(InputError, match="does not exist"):
        access.new_token(engine, "nobody")


class Lingering:
    """In place of a process that computes: it answers at once, for the last time, and takes its time to end."""

    pid, answer = -1, b'{"scores": {}}\n'

    def __init__(self, server):
        self.left = self.closed = False
        self.unread = b""
        self.jobs = 0
        self.made.append(self)

    def send(self, order):
        self.jobs += 1
        self.unread = self.answer

    def exchange(self):
        unread, self.unread = self.unread, b""
        return unread

    def ended(self):
        return self.left

    def enforce_exit(self):
        pass

    def close(self, at_once=False):
        self.closed = True


def test_a_process_that_is_about_to_end_gets_no_job_and_delays_no_other(engine, settings, jobs, monkeypatch):
    """Both heartbeats arrive, and no job is handed to a process that will not take it."""
    monkeypatch.setattr("mgclust.service.confined.fork_server.ForkServer.start", lambda self: Lingering(self))
    monkeypatch.setattr("mgclust.service.runner.runner.HEARTBEAT_SECONDS", -1.0)
    monkeypatch.setattr(Lingering, "made", [], raising=False)
    first, second, third = jobs.submit([order(), order(), order()])
    database = engine.url.render_as_string(hide_password=False)
    runner = Runner(replace(settings, slots=2, database=database))
    for _ in range(3):
        before = time.time()
        runner.step()
    assert [jobs.get(ANN, job.id).state for job in (first, second, third)] == ["RUNNING", "RUNNING", "PENDING"]
    assert all(jobs.get(ANN, job.id).heartbeat >= before for job in (first, second))
    Lingering.made[0].left = True
    runner.step()
    assert jobs.get(ANN, first.id).state == "SUCCEEDED" and Lingering.made[0].closed
    assert jobs.get(ANN, third.id).state == "RUNNING"
    assert [process.jobs for process in Lingering.made] == [1, 1, 1]
    assert jobs.get(ANN, second.id).attempt == 1


class Answering(Lingering):
    """It answers while it is being told to end."""

    def send(self, order):
        self.jobs += 1

    def interrupt(self):
        self.unread, self.answer = self.answer, b""


def test_a_process_that_was_told_to_end_gets_no_other_job(engine, settings, jobs, monkeypatch):
    monkeypatch.setattr("mgclust.service.confined.fork_server.ForkServer.start", lambda self: Answering(self))
    monkeypatch.setattr(Lingering, "made", [], raising=False)
    first, second = jobs.submit([order(), order()])
    runner = Runner(replace(settings, slots=1, database=engine.url.render_as_string(hide_password=False)))
    runner.step()
    jobs.cancel(ANN, first.id)
    for _ in range(3):
        runner.step()
    assert jobs.get(ANN, second.id).state == "PENDING"
    Lingering.made[0].left = True
    runner.step()
    assert jobs.get(ANN, first.id).state == "SUCCEEDED" and Lingering.made[0].closed
    assert jobs.get(ANN, second.id).state == "RUNNING"
    assert [process.jobs for process in Lingering.made] == [1, 1]


@pytest.mark.parametrize(
    ("given", "resources", "devices", "place"),
    [
        ({}, {}, 0, {"cpu": False}),
        ({}, {}, 2, {"workers": 2, "cpu": False}),
        ({}, {"gpus": 2}, 2, {"gpus": 2, "cpu": False}),
        ({}, {"workers": 3}, 0, {"workers": 3, "cpu": True}),
        ({"cpu": True}, {"workers": 3}, 0, {"workers": 3, "cpu": True}),
        (
            {"scheduler": "tls://s:1"}, {"gpus": 2, "workers": None}, 0,
            {"gpus": 2, "cpu": False, "scheduler": "tls://s:1"},
        ),
        # Processes on CPUs also where the cluster's workers have GPUs.
        ({"scheduler": "tls://s:1"}, {"workers": 2}, 0, {"workers": 2, "cpu": True, "scheduler": "tls://s:1"}),
    ],
)  # fmt: skip
def test_where_a_job_runs(given, resources, devices, place, settings):
    assert Runner(replace(settings, **({"cpu": False} | given)))._placement(resources, devices) == place


def finish(jobs, job):
    jobs.fail(job.id, job.attempt, "NaN in row 3.", "input")


@pytest.mark.slow
def test_shares_of_one_slot(jobs):
    """Neither many jobs, nor later ones of a high priority, keep a user's only job waiting."""
    for _ in range(50):
        submit(jobs)
    finish(jobs, jobs.claim())
    one = submit(jobs, BOB)
    job = jobs.claim()
    assert job.id == one.id
    finish(jobs, job)
    turns = []
    for k in range(30):
        submit(jobs, BOB, priority=-100 + k)
    for _ in range(20):
        job = jobs.claim()
        turns.append(job.owner)
        finish(jobs, job)
    assert {turns.count("ann"), turns.count("bob")} == {10}


def test_shares_of_slots(jobs):
    """A user who came later has half of what becomes free, whatever the priorities."""
    for caller, priority in ((ANN, 0), (BOB, -100)):
        for _ in range(10):
            submit(jobs, caller, priority=priority)
    assert sorted(jobs.claim().owner for _ in range(6)) == ["ann"] * 3 + ["bob"] * 3


@pytest.mark.slow
def test_what_was_used_long_ago(jobs, engine, monkeypatch):
    """After an hour it counts half: a user of yesterday waits no longer than one of today."""
    now = 1e9
    set_time(monkeypatch, lambda: now)
    ids = []
    for caller, seconds in ((ANN, 36_000.0), (BOB, 60.0)):
        submit(jobs, caller)
        job = jobs.claim()
        now += seconds
        finish(jobs, job)
    for caller in (ANN, BOB):
        ids += [submit(jobs, caller).id, submit(jobs, caller).id]
    job = jobs.claim()
    assert job.owner == "bob"
    now += 7200.0  # of Bob's; of Ann's ten hours, 2.1 are left
    finish(jobs, job)
    assert jobs.claim().owner == "bob"
    now += 1800.0
    assert jobs.claim().owner == "ann"


def test_what_is_charged():
    """A sum in which each second counts half for each hour since."""
    events = [(0.0, 10.0), (3600.0, 10.0), (7200.0, 1.0)]
    used = 0.0
    for at, seconds in events:
        used = add_usage(used, seconds, 1e9 + at)
    expected = sum(seconds * 2 ** ((at - 7200.0) / 3600.0) for at, seconds in events)
    assert 2 ** (used - (1e9 + 7200.0) / 3600.0) == pytest.approx(expected, rel=1e-6)


def test_an_administrators_urgent_job(jobs):
    submit(jobs)
    submit(jobs, ROOT)
    low, high = submit(jobs, ROOT, priority=1), submit(jobs, ROOT, priority=7)
    assert [jobs.claim().id for _ in range(2)] == [high.id, low.id]
    assert jobs.claim().owner == "ann"  # two of the administrator's run


def oracle(waiting, running, used):
    """The rule in plain words: the job that has its turn."""
    urgent = [job for job in waiting if job[1] > 0]
    if not urgent:
        owners = {job[0] for job in waiting}
        owner = min(owners, key=lambda name: (running.count(name), used[name], name))
        urgent = [job for job in waiting if job[0] == owner]
    return min(urgent, key=lambda job: (-job[1], job[2]))


@pytest.mark.slow
@settings_of(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from(["submit", "submit", "claim", "claim", "end", "wait"]), st.integers(0, 2),
                  st.integers(-2, 2), st.integers(0, 5000)),
        max_size=40,
    )
)  # fmt: skip
def test_order_of_claims(tmp_path_factory, steps):
    """Against an oracle that looks at every job."""
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('queue') / 'service.db'}")
    migrate(engine)
    callers = (ANN, BOB, ROOT)
    for caller in callers:
        access.add_user(engine, caller.name, caller.role)
    jobs = WholeQueue(engine, Settings(data=tmp_path_factory.getbasetemp(), cpu=True, slots=100))
    now, waiting, running, used = 1e9, [], [], dict.fromkeys(("ann", "bob", "root"), 0.0)
    with pytest.MonkeyPatch.context() as patch:
        set_time(patch, lambda: now)
        for step, who, priority, seconds in steps:
            now += 1e-3
            if step == "submit":
                caller = callers[who]
                job = submit(jobs, caller, priority=min(priority, 0 if caller is not ROOT else 2))
                waiting.append((caller.name, job.priority, job.created, job.id))
            elif step == "claim":
                job = jobs.claim()
                if not waiting:
                    assert job is None
                    continue
                expected = oracle(waiting, [each.owner for each in running], used)
                assert job.id == expected[3]
                waiting.remove(expected)
                running.append(job)
                used[job.owner] = add_usage(used[job.owner], 1.0, now)
            elif step == "end" and running:
                job = running.pop(who % len(running))
                finish(jobs, job)
                if (took := now - job.claimed) > 1.0:
                    used[job.owner] = add_usage(used[job.owner], took - 1.0, now)
            else:
                now += seconds
    engine.dispose()


def test_limits_of_the_queue(engine, settings, monkeypatch):
    monkeypatch.setattr("mgclust.service.queue.jobs.submission.MAX_JOBS_WAITING", 3)
    monkeypatch.setattr("mgclust.service.queue.jobs.submission.MAX_JOBS_KEPT", 2)
    jobs = WholeQueue(engine, settings)
    first = submit(jobs)
    jobs.cancel(ANN, first.id)
    submit(jobs, key="k")
    with pytest.raises(QuotaExceeded, match="ann has 2 jobs, the maximum per user; delete some"):
        submit(jobs)
    submit(jobs, key="k")
    submit(jobs, BOB), submit(jobs, BOB)
    with pytest.raises(TooManyJobs, match="3 jobs of all users wait, the maximum; submit again later"):
        submit(jobs, ROOT)
    with pytest.raises(TooManyJobs, match="3 jobs of all users"):
        jobs.retry(ANN, first.id)
    jobs.claim()
    assert jobs.retry(ANN, first.id).state == "PENDING"
    with pytest.raises(QuotaExceeded, match="ann has 2 jobs"):
        jobs.add_finished(first, "e", {}, {}, 0, lambda: pytest.fail("files were put there"))


def test_what_the_database_keeps_counts(engine, settings):
    """From when it is submitted, and whatever becomes of it."""
    request = {"sources": [{"path": "/x", "name": "n" * 255}] * 250}
    jobs = WholeQueue(engine, replace(settings, disk_per_user=3 * row_size(request) + BLOCK_BYTES))
    waiting = [NewJob(job_id(ANN, None), ANN, "density-peaks", request, 0) for _ in range(6)]
    answers = jobs.submit(waiting)
    assert [isinstance(answer, QuotaExceeded) for answer in answers] == [False] * 3 + [True] * 3
    for job in answers[:3]:
        assert job.size >= len(json.dumps(request))
        assert jobs.cancel(ANN, job.id).size >= len(json.dumps(request))
    assert isinstance(jobs.submit(waiting[3:4])[0], QuotaExceeded)
    jobs.delete(ANN, answers[0].id)
    assert not isinstance(jobs.submit(waiting[3:4])[0], QuotaExceeded)
    small = WholeQueue(engine, replace(settings, disk_per_user=3 * BLOCK_BYTES))
    answers = small.submit([order(BOB) for _ in range(4)])
    assert [isinstance(answer, QuotaExceeded) for answer in answers] == [False] * 2 + [True] * 2


def test_lists_are_short(jobs, engine):
    """Of whatever length requests, scores and errors are; a page ends early, and the next one continues."""
    request = {"sources": [{"path": "/x", "name": "n" * 255}] * 900}
    orders = [NewJob(job_id(ANN, None), ANN, "density-peaks", request, 0) for _ in range(40)]
    ids = [job.id for job in jobs.submit(orders)]
    with writing(engine) as session:
        for job in session.query(Job):
            job.scores, job.error, job.progress = {"x": "y" * 5000}, "e" * 10**6, {"stage": "s" * 5000}
    page = jobs.latest(ROOT, JobFilter(), 1000)
    assert sorted(row.id for row in page) == sorted(ids)
    told = page[0]._mapping
    assert (told["summary"]["n_sources"], len(told["summary"]["sources"])) == (900, 3)
    assert (told["scores"], told["progress"], len(told["error"])) == (None, None, 4096)
    assert not hasattr(page[0], "request")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lists, "MAX_PAGE_BYTES", 40_000)
        found, last = [], None
        while page := jobs.latest(ANN, JobFilter(), 1000, last):
            assert len(json.dumps([tuple(row) for row in page])) < 41_000
            found += [row.id for row in page]
            last = (page[-1].created, page[-1].id)
        assert len(page) < 40
        patch.setattr(lists, "MAX_PAGE_BYTES", 10)
        assert len(jobs.latest(ANN, JobFilter(), 1000)) == 1
    assert sorted(found) == sorted(ids)
