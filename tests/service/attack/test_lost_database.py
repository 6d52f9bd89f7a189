"""A database that is cut short, overwritten or loses its log while the service runs, and what is reported."""

from __future__ import annotations

import os
import shutil
import sqlite3
import time

import httpx
import pytest
from starlette.testclient import TestClient

from mgclust.service import access, identity
from mgclust.service.app import create_app
from mgclust.service.models import DatabaseLost, User, open_database, reading, writing
from mgclust.service.settings import Settings
from support.service_process import Running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A client of an application that looks into its database's file at every transaction."""
    monkeypatch.setattr(identity, "PROBE_SECONDS", 0.0)
    settings = Settings(data=tmp_path, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


@pytest.fixture
def running(tmp_path):
    service = Running(tmp_path, ["--no-runner"])
    yield service
    service.stop()


def submitted(http, key):
    upload = http.put("/api/v1/uploads/x.npy", content=b"x")
    if upload.status_code != 201:
        return upload
    job = {"method": "density-peaks", "sources": [{"upload": upload.json()["id"]}], "key": key}
    return http.post("/api/v1/jobs", json=job)


def checkpoint(path, mode):
    """What a program for backups does, from outside."""
    other = sqlite3.connect(path)
    assert other.execute(f"PRAGMA wal_checkpoint({mode})").fetchone()[0] == 0
    other.close()


def cut_main(path):
    os.truncate(path, 0)


def halve_main(path):
    os.truncate(path, path.stat().st_size // 2)


def cut_log(path):
    os.truncate(f"{path}-wal", 0)


def halve_log(path):
    os.truncate(f"{path}-wal", os.stat(f"{path}-wal").st_size // 2)


def unlink_log(path):
    os.unlink(f"{path}-wal")


def replace_log(path):
    os.unlink(f"{path}-wal")
    open(f"{path}-wal", "wb").close()


def unlink_index(path):
    os.unlink(f"{path}-shm")


def overwrite_log(path):
    with open(f"{path}-wal", "r+b") as file:
        file.write(bytes(32))


def overwrite_salt(path):
    """The number that each page of the log repeats."""
    with open(f"{path}-wal", "r+b") as file:
        file.seek(16)
        file.write(os.urandom(8))


def overwrite_head(path):
    with open(path, "r+b") as file:
        file.write(bytes(100))


def overwrite_with_another(path):
    other = sqlite3.connect(path.parent / "other.db")
    other.execute("CREATE TABLE folders (id TEXT)")
    other.execute("CREATE TABLE padding AS SELECT randomblob(1000000)")
    other.commit()
    other.close()
    with open(path.parent / "other.db", "rb") as source, open(path, "r+b") as target:
        shutil.copyfileobj(source, target)


@pytest.mark.parametrize(
    ("harm", "log", "says"),
    [
        (cut_main, "full", "the file 'service.db' of the service's database was cut short"),
        (cut_main, "empty", "the file 'service.db' of the service's database was cut short"),
        (halve_main, "full", "the file 'service.db' of the service's database was cut short"),
        (halve_main, "empty", "the file 'service.db' of the service's database was cut short"),
        (cut_log, "full", "the file 'service.db-wal' of the service's database was cut short"),
        (halve_log, "full", "the file 'service.db-wal' of the service's database was cut short"),
        (
            overwrite_log,
            "full",
            "the file 'service.db-wal' of the service's database was overwritten while the service",
        ),
        (overwrite_salt, "full", "the file 'service.db-wal' of the service's database was overwritten while the"),
        (
            unlink_log,
            "full",
            "the file 'service.db-wal' of the service's database is gone; put it back, or start the service",
        ),
        (
            unlink_log,
            "empty",
            "the file 'service.db-wal' of the service's database is gone; put it back, or start the service",
        ),
        (replace_log, "full", "the file 'service.db-wal' of the service's database is another one now; put it back"),
        (replace_log, "empty", "the file 'service.db-wal' of the service's database is another one now; put it back"),
        (unlink_index, "full", "the file 'service.db-shm' of the service's database is gone; put it back, or start"),
        (unlink_index, "empty", "the file 'service.db-shm' of the service's database is gone; put it back, or start"),
        (overwrite_head, "empty", "the service's database is damaged: file is not a database."),
        (overwrite_with_another, "empty", "the service's database was overwritten while the service ran."),
    ],
)
def test_what_is_lost_is_noticed(served, tmp_path, harm, log, says):
    """Nothing is accepted that would be lost, and `/healthz` says why."""
    path = tmp_path / "service.db"
    assert submitted(served, "k").status_code == 201
    if log == "empty":  # what is in a full one hides what is in the file
        checkpoint(path, "TRUNCATE")
    assert served.get("/healthz").status_code == 200
    harm(path)
    for answer in (served.get("/healthz"), submitted(served, "l"), served.get("/api/v1/jobs"), served.get("/healthz")):
        assert (answer.status_code, answer.json()["fault"]) == (503, "cluster")
        assert answer.json()["error"].startswith(says)
        assert answer.json()["error"].endswith("Nothing is accepted meanwhile.")
        assert int(answer.headers["Retry-After"]) > 0


@pytest.mark.parametrize("ending", ["", "-wal", "-shm"])
def test_a_link_in_the_place_of_a_file(served, tmp_path, ending):
    """The same file at its end: SQLite of the next start would look for the log there, and follow no link of a log."""
    path, elsewhere = tmp_path / f"service.db{ending}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    assert submitted(served, "k").status_code == 201
    path.rename(elsewhere / path.name)
    path.symlink_to(elsewhere / path.name)
    for answer in (served.get("/healthz"), submitted(served, "l"), served.get("/api/v1/jobs")):
        assert (answer.status_code, answer.json()["fault"]) == (503, "cluster")
        assert " link " in answer.json()["error"] and "put the file itself" in answer.json()["error"]
        assert answer.json()["error"].endswith("do not start the service before. Nothing is accepted meanwhile.")
    path.unlink()
    (elsewhere / path.name).rename(path)
    assert served.get("/healthz").status_code == 200
    assert submitted(served, "l").status_code == 201
    assert len(served.get("/api/v1/jobs").json()) == 2


def test_links_that_are_there_from_the_beginning(tmp_path):
    """They are allowed, and to lead them elsewhere is noticed."""
    real, data = tmp_path / "real", tmp_path / "data"
    real.mkdir()
    data.mkdir()
    (tmp_path / "way").symlink_to(real)
    open_database(f"sqlite:///{real / 'jobs.db'}").connect().close()
    (data / "service.db").symlink_to(tmp_path / "way" / "jobs.db")
    settings = Settings(data=data, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), data).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        assert submitted(http, "k").status_code == 201
        assert http.get("/healthz").status_code == 200
        (tmp_path / "other").mkdir()
        shutil.copyfile(real / "jobs.db", tmp_path / "other" / "jobs.db")
        (tmp_path / "way").unlink()
        (tmp_path / "way").symlink_to(tmp_path / "other")
        answer = http.get("/healthz")
        assert (answer.status_code, "leads through a link to another place" in answer.json()["error"]) == (503, True)
        (tmp_path / "way").unlink()
        (tmp_path / "way").symlink_to(real)
        assert http.get("/healthz").status_code == 200


def test_what_is_put_back_in_place_is_not_believed(served, tmp_path):
    """Connections remember pages of the file before: it is read again after the next start alone."""
    path = tmp_path / "service.db"
    assert submitted(served, "k").status_code == 201
    checkpoint(path, "TRUNCATE")
    assert served.get("/healthz").status_code == 200
    content = path.read_bytes()
    cut_main(path)
    assert served.get("/healthz").status_code == 503
    path.write_bytes(content)
    for answer in (served.get("/healthz"), submitted(served, "l")):
        assert answer.status_code == 503
        assert "Stop the service, remove 'service.db-wal' and 'service.db-shm', restore" in answer.json()["error"]


def test_what_others_may_do_is_no_loss(served, tmp_path):
    """A log that a checkpoint empties, and a file that VACUUM makes shorter."""
    path = tmp_path / "service.db"
    assert submitted(served, "k").status_code == 201
    checkpoint(path, "TRUNCATE")
    assert submitted(served, "l").status_code == 201
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("CREATE TABLE padding AS SELECT randomblob(1000000)")
    checkpoint(path, "TRUNCATE")
    assert submitted(served, "m").status_code == 201
    large = path.stat().st_size
    other.execute("DROP TABLE padding")
    other.execute("VACUUM")
    other.close()
    checkpoint(path, "TRUNCATE")
    assert path.stat().st_size < large
    assert served.get("/healthz").status_code == 200
    assert submitted(served, "n").status_code == 201
    assert len(served.get("/api/v1/jobs").json()) == 4


@pytest.mark.parametrize("ending", ["", "-wal"])
def test_what_is_lost_before_the_end_of_a_transaction_is_not_acknowledged(served, tmp_path, ending):
    """It may have waited for long since its beginning."""
    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    path, aside = tmp_path / f"service.db{ending}", tmp_path / "aside"
    with pytest.raises(DatabaseLost, match="is gone"), writing(engine) as session:
        session.add(User(name="ann", role="user"))
        session.flush()
        path.rename(aside)
    aside.rename(path)
    with reading(engine) as session:
        assert session.get(User, "ann") is None
    with writing(engine) as session:
        session.add(User(name="ann", role="user"))
    with reading(engine) as session:
        assert session.get(User, "ann") is not None


def test_a_log_that_was_overwritten_before_the_start_keeps_none_from_starting(served, tmp_path):
    """SQLite passes over it, and writes another head with the next transaction."""
    assert submitted(served, "k").status_code == 201
    left = tmp_path / "left"
    left.mkdir(mode=0o700)
    for name in ("service.db", "service.db-wal", "folder-id", "token"):
        shutil.copy(tmp_path / name, left / name)
    overwrite_log(left / "service.db")
    with sqlite3.connect(tmp_path / "service.db") as whole, sqlite3.connect(left / "whole.db") as copy:
        whole.backup(copy)
    (left / "whole.db").rename(left / "service.db")
    app = create_app(Settings(data=left, cpu=True))
    with TestClient(app, raise_server_exceptions=False, headers=dict(served.headers)) as http:
        assert http.get("/healthz").status_code == 200
        assert submitted(http, "l").status_code == 201
        assert len(http.get("/api/v1/jobs").json()) == 2
        overwrite_log(left / "service.db")
        assert http.get("/healthz").status_code == 503


def http_of(running):
    token = (running.data / "token").read_text().strip()
    return httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)


def restart(running):
    running.stop()
    running.start()


def test_a_log_that_was_taken_away_costs_no_job(running):
    """The process still has it open, and saves what it holds."""
    http = http_of(running)
    assert submitted(http, "k").status_code == 201
    os.unlink(f"{running.data / 'service.db'}-wal")
    answer = http.get("/healthz")
    assert (answer.status_code, "what it held has been saved" in answer.json()["error"]) == (503, True)
    assert submitted(http, "l").status_code == 503
    restart(running)
    assert [job["state"] for job in http.get("/api/v1/jobs").json()] == ["PENDING"]
    assert submitted(http, "l").status_code == 201


def test_an_index_that_was_cut_short_ends_no_process(running):
    """To read what is mapped of a file beyond its end is the end of a process."""
    http = http_of(running)
    assert submitted(http, "k").status_code == 201
    os.truncate(f"{running.data / 'service.db'}-shm", 0)
    for answer in (http.get("/healthz"), submitted(http, "l")):
        assert (answer.status_code, "nothing is lost" in answer.json()["error"]) == (503, True)
    assert running.web.poll() is None
    restart(running)
    assert len(http.get("/api/v1/jobs").json()) == 1


def test_a_backup_is_restored_as_it_is_said(running):
    http = http_of(running)
    assert submitted(http, "k").status_code == 201
    path, backup = running.data / "service.db", running.data / "backup.db"
    other, copy = sqlite3.connect(path), sqlite3.connect(backup)
    other.backup(copy)
    other.close()
    copy.close()
    assert submitted(http, "l").status_code == 201
    end = time.monotonic() + 60
    os.truncate(path, 0)
    while (answer := http.get("/healthz")).status_code == 200:
        assert time.monotonic() < end
    assert "restore the last backup of 'service.db'" in answer.json()["error"]
    running.stop()
    for ending in ("-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    shutil.copyfile(backup, path)
    running.start()
    assert len(http.get("/api/v1/jobs").json()) == 1
    assert submitted(http, "m").status_code == 201
