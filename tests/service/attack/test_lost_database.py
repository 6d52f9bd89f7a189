"""A database that is deleted, replaced, cut short or overwritten while the service runs, and what is reported."""

from __future__ import annotations

import os
import shutil
import sqlite3

import httpx
import pytest
from starlette.testclient import TestClient

from mgclust.service.queue import access, identity
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.service_process import Running
from support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def served(tmp_path, monkeypatch):
    """A client of an application that checks its database's file at every transaction."""
    monkeypatch.setattr(identity, "CHECK_SECONDS", 0.0)
    settings = Settings(data=tmp_path, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


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


def cut(path):
    os.truncate(path, 0)


def unlink(path):
    path.unlink()


def unlink_log(path):
    os.unlink(f"{path}-wal")


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
    ("harm", "says"),
    [
        (cut, "the service's database was replaced while the service ran"),
        (unlink, "the service's database file is missing or is now a different file"),
        (unlink_log, "the log of the service's database, service.db-wal, is missing"),
        (overwrite_head, "the service's database is damaged (file is not a database)"),
        (overwrite_with_another, "the service's database was replaced while the service ran"),
    ],
)
def test_what_is_lost_is_noticed(served, tmp_path, harm, says):
    """Nothing is accepted that would be lost, and `/healthz` says why."""
    path = tmp_path / "service.db"
    assert submitted(served, "k").status_code == 201
    checkpoint(path, "TRUNCATE")  # what is in a full log hides what is in the file
    assert served.get("/healthz").status_code == 200
    harm(path)
    for answer in (served.get("/healthz"), submitted(served, "l"), served.get("/api/v1/jobs"), served.get("/healthz")):
        assert (answer.status_code, answer.json()["fault"]) == (503, "cluster")
        assert answer.json()["error"].startswith(says)
        assert answer.json()["error"].endswith("nothing is accepted meanwhile.")
        assert int(answer.headers["Retry-After"]) > 0


def test_a_link_that_leads_to_another_file(tmp_path, monkeypatch):
    """Links are allowed, and to lead them elsewhere is noticed."""
    monkeypatch.setattr(identity, "CHECK_SECONDS", 0.0)
    real, other, data = tmp_path / "real", tmp_path / "other", tmp_path / "data"
    for folder in (real, other, data):
        folder.mkdir()
    (tmp_path / "way").symlink_to(real)
    (data / "service.db").symlink_to(tmp_path / "way" / "jobs.db")
    settings = Settings(data=data, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), data).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        assert submitted(http, "k").status_code == 201
        shutil.copyfile(real / "jobs.db", other / "jobs.db")
        for leads_to, code in ((other, 503), (real, 200)):
            (tmp_path / "way").unlink()
            (tmp_path / "way").symlink_to(leads_to)
            assert http.get("/healthz").status_code == code


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


def test_a_backup_is_restored_as_it_is_said(tmp_path):
    running = Running(tmp_path, ["--no-runner"])
    try:
        token = (running.data / "token").read_text().strip()
        http = httpx.Client(base_url=running.url, headers={"Authorization": f"Bearer {token}"}, timeout=60)
        assert submitted(http, "k").status_code == 201
        path, backup = running.data / "service.db", running.data / "backup.db"
        other, copy = sqlite3.connect(path), sqlite3.connect(backup)
        other.backup(copy)
        other.close()
        copy.close()
        assert submitted(http, "l").status_code == 201
        path.unlink()
        wait_for(lambda: http.get("/healthz").status_code == 503)
        assert "restore the last backup" in http.get("/healthz").json()["error"]
        running.stop()
        for ending in ("-wal", "-shm"):
            path.with_name(path.name + ending).unlink(missing_ok=True)
        shutil.copyfile(backup, path)
        running.start()
        assert len(http.get("/api/v1/jobs").json()) == 1
        assert submitted(http, "m").status_code == 201
    finally:
        running.stop()
