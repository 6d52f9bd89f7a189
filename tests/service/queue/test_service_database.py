"""The service's tables: as the migration makes them, several processes at once, a database that is gone or full."""

from __future__ import annotations

import contextlib
import os
import sqlite3
import subprocess
import sys
import time
from types import SimpleNamespace

import httpx
import pytest
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from mgclust import Service
from mgclust.base.errors import InputError, RunFailed
from mgclust.service.queue import access, models
from mgclust.service.queue.access import Caller
from mgclust.service.queue.attempts import Attempts
from mgclust.service.queue.models import (
    DatabaseLost,
    RunnerSign,
    User,
    check_data_folder,
    migrate,
    open_database,
    reading,
    writing,
)
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.health import Health
from support.waiting import wait_for

POSTGRES = os.environ.get("MGCLUST_TEST_POSTGRES", "")  # URL of a database whose tables may be dropped
ANN = Caller("ann", "user")


def test_tables_are_those_of_the_migrations(tmp_path):
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    from mgclust.service.queue.models import Base

    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    migrate(engine)
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": False})
        assert compare_metadata(context, Base.metadata) == []


START = """
import sys
from pathlib import Path
from mgclust.service.queue.access import first_token
from mgclust.service.queue.models import migrate, open_database

print("ready", flush=True)
sys.stdin.readline()
engine = open_database(sys.argv[1])
migrate(engine)
first_token(engine, Path(sys.argv[2]))
"""


def test_pages_of_a_new_database_are_large(tmp_path):
    """A search after the start of the machine reads many of them from the disk."""
    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    migrate(engine)
    with reading(engine) as session:
        found = [
            session.connection().exec_driver_sql(f"PRAGMA {name}").scalar() for name in ("page_size", "journal_mode")
        ]
    assert found == [8192, "wal"]


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_several_web_processes_that_start_on_nothing(kind, tmp_path):
    """All come up; there is one administrator, and the token that was left is theirs."""
    url = f"sqlite:///{tmp_path / 'service.db'}" if kind == "sqlite" else POSTGRES
    if not url:
        pytest.skip("needs PostgreSQL: MGCLUST_TEST_POSTGRES=postgresql+psycopg://...")
    engine = open_database(url)
    if kind == "postgresql":
        with engine.begin() as connection:
            connection.exec_driver_sql("DROP SCHEMA public CASCADE")
            connection.exec_driver_sql("CREATE SCHEMA public")
    starting = [
        subprocess.Popen(
            [sys.executable, "-c", START, url, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    for process in starting:
        assert process.stdout.readline() == "ready\n"
    for process in starting:
        process.stdin.write("\n")
        process.stdin.flush()
    for process in starting:
        assert (process.wait(60), process.stderr.read()) == (0, "")
    hash_ = access.hash_of((tmp_path / "token").read_text().strip())
    assert access.find_callers(engine, [hash_]) == [Caller("admin", "admin")]
    assert len(access.tokens_of(engine, "admin")) == 1
    assert oct((tmp_path / "token").stat().st_mode & 0o777) == "0o600"


@pytest.fixture
def served(tmp_path):
    """A client of an application, and a function that sets how its database fails."""
    settings = Settings(data=tmp_path, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


@contextlib.contextmanager
def failing(monkeypatch, error):
    def fail(*given):
        raise OperationalError("SELECT", {}, error)

    with monkeypatch.context() as patch:
        for name in (
            "jobs.changes.writing", "jobs.submission.writing", "jobs.submission.reading", "jobs.lists.reading",
            "attempts.writing", "attempts.reading",
        ):  # fmt: skip
            patch.setattr(f"mgclust.service.queue.{name}", fail)
        yield


def sqlite_error(code, sentence):
    error = sqlite3.OperationalError(sentence)
    error.sqlite_errorcode = code
    return error


def test_a_log_that_was_large_gives_its_space_back(tmp_path, monkeypatch):
    """A reader that lasts lets SQLite's log grow."""
    monkeypatch.setattr(models, "WAL_BYTES", 1 << 16)
    engine, log = open_database(f"sqlite:///{tmp_path / 'service.db'}"), tmp_path / "service.db-wal"
    migrate(engine)

    def write(name):
        with writing(engine) as session:
            session.add(User(name=name, role="user"))

    with reading(engine) as session:
        session.get(User, "ann")
        write("much" * (1 << 20))
        assert log.stat().st_size > 1 << 22
    for name in ("a", "b", "c"):  # the first write that finds no reader begins the log again
        write(name)
    assert log.stat().st_size <= 1 << 16
    with reading(engine) as session:
        assert session.query(User).count() == 4


def test_a_database_has_one_data_folder(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    migrate(engine)
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    second.mkdir()
    check_data_folder(engine, first)
    check_data_folder(engine, first)
    with pytest.raises(InputError, match=r"second' is not the data folder of this database"):
        check_data_folder(engine, second)
    assert not list(second.iterdir())
    fresh = open_database(f"sqlite:///{tmp_path / 'fresh.db'}")  # an old folder with a new database
    migrate(fresh)
    check_data_folder(fresh, first)


def test_a_database_that_does_not_answer(served, monkeypatch):
    upload = served.put("/api/v1/uploads/x.npy", content=b"x").json()["id"]
    job = {"method": "density-peaks", "sources": [{"upload": upload}], "key": "k"}
    with failing(monkeypatch, sqlite_error(sqlite3.SQLITE_BUSY, "database is locked")):
        for answer in (served.post("/api/v1/jobs", json=job), served.get("/api/v1/jobs")):
            assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
            assert "database does not answer" in answer.json()["error"]
    assert served.get("/api/v1/jobs").json() == []
    assert served.post("/api/v1/jobs", json=job).status_code == 201


def test_a_database_whose_disk_is_full(served, monkeypatch):
    upload = served.put("/api/v1/uploads/x.npy", content=b"x").json()["id"]
    job = {"method": "density-peaks", "sources": [{"upload": upload}]}
    for code in (sqlite3.SQLITE_FULL, 4874):  # SQLITE_IOERR_SHMSIZE
        with failing(monkeypatch, sqlite_error(code, "database or disk is full")):
            answer = served.post("/api/v1/jobs", json=job)
        assert (answer.status_code, answer.json()["fault"]) == (507, "cluster")
        assert "no space left" in answer.json()["error"]
    assert served.post("/api/v1/jobs", json=job).status_code == 201


@pytest.mark.slow
def test_the_runner_outlasts_its_database(tmp_path, monkeypatch):
    """An outage ends no attempt: what ran before it is not taken for lost as soon as it is over."""
    monkeypatch.setattr("mgclust.service.runner.runner.HEARTBEAT_SECONDS", 0.01)
    settings = Settings(data=tmp_path, cpu=True, lost_after=2.0)
    runner = Runner(settings)
    migrate(open_database(settings.database))
    looks, turns = [], []

    def claim(self, can_start):
        turns.append(time.monotonic())
        if len(turns) < 4:
            raise OperationalError("SELECT", {}, sqlite3.OperationalError("gone"))
        runner.stopping = bool(looks) and looks[-1] > turns[2]
        return None

    monkeypatch.setattr(Attempts, "claim", claim)
    monkeypatch.setattr(Attempts, "requeue_lost", lambda self, after: looks.append(time.monotonic()))
    runner.run()
    assert len(turns) > 4
    assert [look for look in looks if turns[0] < look < turns[2] + 2.0] == []
    assert looks[-1] > turns[2] + 2.0


def submitted(served, key="k"):
    upload = served.put("/api/v1/uploads/x.npy", content=b"x")
    if upload.status_code != 201:
        return upload
    sources = [{"upload": upload.json()["id"]}]
    return served.post("/api/v1/jobs", json={"method": "density-peaks", "sources": sources, "key": key})


def test_a_folder_whose_database_is_lost(served, tmp_path):
    """It is refused, and no administrator is made, until it is said that the old jobs are given up."""
    assert submitted(served).status_code == 201
    for path in tmp_path.glob("service.db*"):
        path.unlink()
    settings = Settings(data=tmp_path, cpu=True)
    for _ in range(2):
        with pytest.raises(InputError, match=r"holds uploads, but the database has none of them.*restore .*--adopt"):
            create_app(settings)
    engine = open_database(settings.database)
    with pytest.raises(InputError, match="has none of them"):
        check_data_folder(engine, tmp_path)
    with reading(engine) as session:
        assert session.query(User).all() == []
    check_data_folder(engine, tmp_path, adopt=True)
    create_app(settings)


@pytest.mark.parametrize("instead", [None, b"", "copy"])
def test_a_database_that_goes_while_the_service_runs(served, tmp_path, instead):
    """Nothing is accepted that would be lost, `/healthz` says why, and no file is made in its place."""
    assert submitted(served).status_code == 201
    path, away = tmp_path / "service.db", tmp_path / "away"
    content = path.read_bytes()
    path.rename(away)
    if instead is not None:
        path.write_bytes(content if instead == "copy" else instead)
    wait_for(lambda: served.get("/healthz").status_code == 503)
    says = "the service's database file is missing or is now a different file;"
    for answer in (submitted(served, "l"), served.get("/api/v1/jobs"), served.get("/healthz")):
        assert (answer.status_code, answer.json()["fault"]) == (503, "cluster")
        assert int(answer.headers["Retry-After"]) > 0  # clients wait for it, as for one that does not answer
        assert says in answer.json()["error"]
    assert path.exists() == (instead is not None)
    away.rename(path)
    assert served.get("/healthz").status_code == 200
    assert [job["state"] for job in served.get("/api/v1/jobs").json()] == ["PENDING"]
    assert submitted(served, "l").status_code == 201


def test_a_database_that_goes_while_the_runner_runs(tmp_path, monkeypatch):
    """It claims nothing, and continues when the file is back."""
    monkeypatch.setattr("mgclust.service.runner.runner.HEARTBEAT_SECONDS", 0.01)
    monkeypatch.setattr("mgclust.service.queue.identity.CHECK_SECONDS", 0.0)
    settings = Settings(data=tmp_path, cpu=True)
    migrate(open_database(settings.database))
    runner, turns, sentences = Runner(settings), [], []
    path = tmp_path / "service.db"
    runner.step()
    path.rename(tmp_path / "away")
    with pytest.raises(DatabaseLost, match="database file is missing"):
        runner.step()
    turn = runner.step

    def look():
        turns.append(time.monotonic())
        if len(turns) == 3:
            (tmp_path / "away").rename(path)
        runner.stopping = len(turns) == 5
        return turn()

    monkeypatch.setattr(runner, "step", look)
    monkeypatch.setattr("builtins.print", lambda sentence, file: sentences.append(sentence))
    runner.run()
    assert len(turns) == 5
    assert len(sentences) == 1 and "database file is missing" in sentences[0]  # once, not at every turn


def test_a_database_that_is_locked_for_long(served, tmp_path, monkeypatch):
    """Waiting writers are refused after a while, readers are served, and it continues without help."""
    monkeypatch.setattr("mgclust.service.queue.models.WRITE_TIMEOUT_SECONDS", 0.5)
    assert submitted(served).status_code == 201
    other = sqlite3.connect(tmp_path / "service.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    lock = models._WRITERS[next(engine for engine in models._WRITERS if str(tmp_path) in str(engine.url))]
    with lock:  # as if another thread waited for the file
        answer = submitted(served, "l")
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "does not answer" in answer.json()["error"]
    assert served.get("/api/v1/jobs").status_code == served.get("/healthz").status_code == 200
    other.execute("COMMIT")
    monkeypatch.setattr("mgclust.service.queue.models.WRITE_TIMEOUT_SECONDS", 60.0)  # of a machine that does much else
    assert submitted(served, "l").status_code == 201
    other.close()


def test_a_database_that_cannot_be_written(served, monkeypatch):
    upload = served.put("/api/v1/uploads/x.npy", content=b"x").json()["id"]
    job = {"method": "density-peaks", "sources": [{"upload": upload}]}
    with failing(monkeypatch, sqlite_error(sqlite3.SQLITE_READONLY, "attempt to write a readonly database")):
        answer = served.post("/api/v1/jobs", json=job)
    assert (answer.status_code, answer.headers["Retry-After"]) == (503, "2")
    assert "cannot be written at present" in answer.json()["error"]
    assert served.post("/api/v1/jobs", json=job).status_code == 201


def test_what_is_deleted_on_a_full_disk(served, tmp_path, monkeypatch):
    """The space that is kept for it is given to the database, and kept again afterwards."""
    uploads = [served.put("/api/v1/uploads/x.npy", content=content).json()["id"] for content in (b"x", b"y")]
    job = submitted(served).json()["id"]
    assert served.post(f"/api/v1/jobs/{job}/cancel").status_code == 200
    reserve = tmp_path / "reserve"
    assert reserve.stat().st_blocks * 512 >= 1 << 20

    def fail_if_full(engine, alone=False):
        if reserve.exists():
            raise OperationalError("DELETE", {}, sqlite_error(sqlite3.SQLITE_FULL, "database or disk is full"))
        return writing(engine, alone)

    for module in ("jobs.changes", "jobs.submission", "sources", "removal"):
        monkeypatch.setattr(f"mgclust.service.queue.{module}.writing", fail_if_full)
    for path in (f"jobs/{job}", *(f"uploads/{upload}" for upload in uploads)):
        assert served.delete(f"/api/v1/{path}").status_code == 200
        assert not (tmp_path / path).exists()
        assert reserve.exists()


def test_a_database_of_a_newer_version(served, tmp_path):
    engine = open_database(Settings(data=tmp_path).database)
    with writing(engine) as session:
        session.connection().exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    with pytest.raises(
        InputError, match="made by a newer mgclust: its schema 9999 is unknown to this version; upgrade"
    ):
        create_app(Settings(data=tmp_path))


def test_health_tells_of_the_runner(served, tmp_path, monkeypatch):
    """200 for what the web process can do; with `strict`, only while a runner lives."""
    answer = served.get("/healthz")
    assert (answer.status_code, answer.json()["status"]) == (200, "degraded")
    assert served.get("/healthz?strict=1").status_code == 503
    engine = open_database(Settings(data=tmp_path).database)
    now = [0.0]
    monkeypatch.setattr("mgclust.engine.heartbeat.time", SimpleNamespace(monotonic=lambda: now[0]))
    health = Health(engine, 30.0)
    health.poll()
    assert health.runner == {"state": "none", "age": None}
    for count in range(3):
        with writing(engine) as session:
            session.merge(RunnerSign(runner="a", count=count))
        now[0] += 600.0  # this process was stopped
        health.poll()
        assert health.runner == {"state": "ok", "age": 0.0}
    for _ in range(31):
        now[0] += 1.0
        health.poll()
    assert health.runner == {"state": "silent", "age": 31.0}


def test_a_client_waits_as_long_as_it_is_told(monkeypatch):
    answers = [
        httpx.Response(429, headers={"Retry-After": "3"}, json={"error": "more than rate_per_token=1."}),
        httpx.Response(503, headers={"Retry-After": "2"}, json={"error": "the database does not answer."}),
        httpx.Response(200, json=[]),
    ]
    slept = []
    monkeypatch.setattr("mgclust.service.client.connection.time.sleep", slept.append)
    service = Service("http://127.0.0.1:9", "mgc_x")
    service._http = httpx.Client(transport=httpx.MockTransport(lambda request: answers.pop(0)), base_url="http://x")
    assert service.jobs() == []
    assert 3 <= slept[0] <= 4.5
    assert 2 <= slept[1] <= 3
    answers.append(httpx.Response(503, headers={"Retry-After": "9000"}, json={"error": "the database is gone."}))
    with pytest.raises(RunFailed, match="the database is gone"):
        service.jobs()
