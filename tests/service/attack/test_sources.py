"""Sources below a root that are swapped, nested, or named so that a look at them fails."""

from __future__ import annotations

import json
import os

import pytest
from starlette.testclient import TestClient

from mgclust.service.confined.folders import remove
from mgclust.service.queue import access, sources
from mgclust.service.queue.models import Job, open_database
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.waiting import wait_for

DEPTH = 1100  # more than Python's frames


@pytest.fixture
def service(tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    settings = Settings(data=tmp_path / "data", cpu=True, roots=str(root))
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), settings.data).read_text().strip()
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}, raise_server_exceptions=False) as http:
        yield http, settings, root
    remove(root)  # pytest's own removal is recursive


def submit(http, path):
    body = {"method": "density-peaks", "sources": [{"path": str(path)}], "parameters": {"n_clusters": 2}}
    return http.post("/api/v1/jobs", json=body)


def nest(folder):
    here = os.getcwd()
    os.chdir(folder)
    for _ in range(DEPTH):
        os.mkdir("d")
        os.chdir("d")
    os.chdir(here)


@pytest.mark.slow
def test_a_folder_that_is_nested_while_its_job_waits(service):
    http, settings, root = service
    (root / "z.zarr").mkdir()
    assert submit(http, root / "z.zarr").status_code == 201
    nest(root / "z.zarr")
    assert submit(http, root / "z.zarr").status_code == 201
    runner = Runner(settings)
    try:
        for _ in range(3):
            runner.step()
    finally:
        for attempt in runner._running:
            attempt.process.close()


def test_sentences_quote_no_file_below_a_root(service):
    _, settings, root = service
    (root / "x.csv").write_text("a,b\n1,secret\n")
    job = Job(id="a" * 32, owner="ann", request={"sources": [{"path": str(root / "x.csv")}]})
    (file,) = sources.files_of_job(open_database(settings.database), settings, job).values()
    assert not file.order()["quotable"]


def test_a_name_that_is_too_long(service):
    http, _, root = service
    answer = submit(http, root / ("a" * 300 + ".npy"))
    assert answer.status_code == 400 and "is not a file or folder below" in answer.json()["error"]


def test_a_name_that_begins_with_a_dot(service):
    from mgclust.service.queue.sources import _under_root

    _, _, root = service
    for name in (".x.npy", "x.npy"):
        (root / name).write_text(name)
        assert _under_root(str(root / name), [root]).name == name
    assert _under_root(str(root), [root]).name == ""


def test_requests_that_fail_are_in_the_audit_log(service, monkeypatch):
    http, settings, root = service
    monkeypatch.setattr("mgclust.service.web.routers.jobs.job_id", lambda *_: 1 / 0)
    (root / "x.npy").write_text("")
    assert submit(http, root / "x.npy").status_code == 500
    assert http.post("/api/v1/tokens/bob").status_code == 405
    wait_for(lambda: settings.audit_path.exists() and settings.audit_path.read_text().count("\n") == 2)
    lines = [json.loads(line) for line in settings.audit_path.read_text().splitlines()]
    assert [(line["status"], line["user"]) for line in lines] == [(500, "admin"), (405, "admin")]
