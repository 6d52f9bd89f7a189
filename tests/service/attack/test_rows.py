"""Rows of the database: many and long requests neither escape a user's limits nor swell what lists cost."""

from __future__ import annotations

import json
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import pytest
from starlette.testclient import TestClient

from mgclust.service.queue import access
from mgclust.service.queue.models import open_database
from mgclust.service.queue.quotas import BLOCK_BYTES
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

LONG = 255  # characters of a source's name


@pytest.fixture
def served(tmp_path, monkeypatch):
    root = tmp_path / "root"
    root.mkdir()
    (root / "x.npy").write_bytes(b"x")
    settings = Settings(
        data=tmp_path / "data", cpu=True, roots=str(root), rate_per_token=1e6, rate_per_address=1e6,
        disk_per_user=16 << 20,
    )  # fmt: skip
    monkeypatch.setattr("mgclust.service.queue.sources.MAX_UPLOADS_KEPT", 20)
    app = create_app(settings)
    engine = open_database(settings.database)
    access.add_user(engine, "ann", "user")
    token = access.new_token(engine, "ann")[1]
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        http.source = {"path": str(root / "x.npy"), "name": "n" * LONG}
        yield http


def job(served, sources):
    return {"method": "density-peaks", "sources": [served.source] * sources}


@pytest.mark.slow
def test_rows_count_and_lists_are_short(served):
    """Long requests that end at once: a list of them is short, eight at once cost little, and they use up a share."""
    kept = 0
    for _ in range(1000):
        answer = served.post("/api/v1/jobs", json=job(served, 600))
        if answer.status_code != 201:
            break
        told = answer.json()
        kept += len(json.dumps(told["request"]))
        assert served.post(f"/api/v1/jobs/{told['id']}/cancel").json()["size"] >= len(json.dumps(told["request"]))
    assert answer.status_code == 507
    assert "would exceed disk_per_user=16777216" in answer.json()["error"]
    assert 15 << 20 < kept <= 16 << 20
    listed = served.get("/api/v1/jobs?limit=1000")
    assert len(listed.json()) > 60
    assert len(listed.content) < 1200 * len(listed.json())
    assert all("request" not in each for each in listed.json())
    tracemalloc.start()
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: served.get("/api/v1/jobs?limit=1000").content, range(8)))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert set(answers) == {listed.content}
    assert peak < 16 << 20
    stream = served.get(f"/api/v1/jobs/{told['id']}/events").text
    assert "CANCELLED" in stream and len(stream) < 2000
    assert len(served.get(f"/api/v1/jobs/{told['id']}").json()["request"]["sources"]) == 600


def test_a_request_that_is_too_long_for_the_queue(served):
    answer = served.post("/api/v1/jobs", json=job(served, 1000))
    assert answer.status_code == 400
    assert "more than 262144; name fewer sources, or shorter names" in answer.json()["error"]


@pytest.mark.slow
def test_many_empty_uploads(served):
    answers = [served.put(f"/api/v1/uploads/{k}.npy", content=b"") for k in range(22)]
    assert [answer.status_code for answer in answers] == [201] * 20 + [507] * 2
    assert "ann keeps 20 uploads, the maximum per user; delete some" in answers[-1].json()["error"]
    served.delete(f"/api/v1/uploads/{answers[0].json()['id']}")
    assert served.put("/api/v1/uploads/x.npy", content=b"").status_code == 201


@pytest.mark.slow
def test_each_empty_upload_takes_a_block(tmp_path):
    settings = Settings(data=tmp_path, cpu=True, disk_per_user=3 * BLOCK_BYTES)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        answers = [http.put(f"/api/v1/uploads/{k}.npy", content=b"").status_code for k in range(4)]
    assert answers == [201, 201, 201, 507]


def test_priorities_are_for_administrators(served):
    wanted = job(served, 1) | {"priority": 100}
    answer = served.post("/api/v1/jobs", json=wanted)
    assert answer.status_code == 403
    assert (
        "priority=100 should be <= 0: only administrators may put jobs before jobs of others" in answer.json()["error"]
    )
    assert served.post("/api/v1/jobs", json=wanted | {"priority": 0}).json()["priority"] == 0
    assert served.post("/api/v1/jobs", json=wanted | {"priority": -7}).json()["priority"] == -7
