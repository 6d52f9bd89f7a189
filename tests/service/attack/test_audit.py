"""What the audit log says of changes, and that it neither holds secrets nor stops the service."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import threading

import pytest
from starlette.testclient import TestClient

from mgclust.service import audit as module
from mgclust.service.audit import KEPT_FILES, Audit
from mgclust.service.queue import access
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.queue.removal import sweep
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.perimeter.authentication import UNRECORDED_READS
from support.waiting import wait_for


@pytest.fixture
def served(tmp_path):
    settings = Settings(data=tmp_path, cpu=True, rate_per_address=1000.0)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), tmp_path).read_text().strip()
    with TestClient(app, client=("192.0.2.7", 1), headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


def lines_of(path, count=1):
    """The lines of a log, once there are so many."""
    wait_for(lambda: path.read_text().count("\n") >= count)
    return [json.loads(line) for line in path.read_text().rpartition("\n")[0].splitlines()]


def test_user_action_and_address(served, tmp_path):
    token_id = access.tokens_of(open_database(Settings(data=tmp_path).database), "admin")[0]["id"]
    upload = served.put(f"/api/v1/uploads/x.npy?sha256={'0' * 64}", content=b"secret body")
    assert upload.status_code == 400
    upload = served.put("/api/v1/uploads/x.npy", content=b"secret body").json()["id"]
    job = served.post("/api/v1/jobs", json={"method": "density-peaks", "sources": [{"upload": upload}]}).json()["id"]
    served.get("/api/v1/jobs")  # changes nothing
    served.post(f"/api/v1/jobs/{job}/cancel")
    served.post("/api/v1/users", json={"name": "ann"})
    made = served.post("/api/v1/tokens", json={"user": "ann"}).json()
    served.delete(f"/api/v1/tokens/{made['id']}")
    served.delete(f"/api/v1/jobs/{job}")
    served.get("/api/v1/jobs", headers={"Authorization": "Bearer mgc_guess"})
    lines = lines_of(tmp_path / "audit.log", 9)
    assert [line["action"] for line in lines] == [
        "upload", "upload", "submit", "cancel", "make_user", "make_token", "revoke", "delete", "refused",
    ]  # fmt: skip
    assert [line["status"] for line in lines] == [400, 201, 201, 200, 201, 201, 200, 200, 401]
    assert {line["source"] for line in lines} == {"192.0.2.7"}
    assert {(line["user"], line["token"]) for line in lines[:-1]} == {("admin", token_id)}
    assert [line.get("id") for line in lines] == [None, upload, job, job, None, made["id"], made["id"], job, None]
    assert lines[5]["name"] == "ann"
    assert all(line["time"].endswith("+00:00") for line in lines)
    text = (tmp_path / "audit.log").read_text()
    for secret in ("secret body", "mgc_", "0" * 64, "sha256"):
        assert secret not in text
    assert oct((tmp_path / "audit.log").stat().st_mode & 0o777) == "0o600"


def test_an_upload_that_is_cut(served, tmp_path):
    """It is a line of the log, not an error of the application, of which the server would print a traceback."""
    parts = [{"type": "http.request", "body": b"half", "more_body": True}, {"type": "http.disconnect"}]
    scope = {
        "type": "http", "method": "PUT", "path": "/api/v1/uploads/x.npy", "raw_path": b"/api/v1/uploads/x.npy",
        "query_string": b"", "headers": [(b"authorization", served.headers["Authorization"].encode())],
        "client": ("192.0.2.7", 1), "server": ("x", 80), "scheme": "http", "root_path": "", "http_version": "1.1",
    }  # fmt: skip
    sent = []

    async def receive():
        return parts.pop(0)

    async def send(message):
        sent.append(message)

    asyncio.run(served.app(scope, receive, send))
    assert (parts, sent) == ([], [])
    lines = lines_of(tmp_path / "audit.log")
    assert [(line["action"], line["name"], line.get("status")) for line in lines] == [("upload", "x.npy", None)]
    assert list((tmp_path / "uploads").iterdir()) == []


def test_results_that_are_fetched(served, tmp_path):
    id_ = "3" * 32
    result = tmp_path / "jobs" / id_ / "attempt-1" / "result"
    result.mkdir(parents=True)
    (result / "labels.npy").write_bytes(b"x")
    with writing(open_database(Settings(data=tmp_path).database)) as session:
        session.add(
            Job(
                id=id_, owner="admin", method="silhouette", request={}, priority=0, state="SUCCEEDED", created=1.0,
                attempt=1, begun_before=0, cancel=False,
            )
        )  # fmt: skip
    assert served.get(f"/api/v1/jobs/{id_}/files/labels.npy").status_code == 200
    assert served.get(f"/api/v1/jobs/{id_}/log").status_code == 200
    file, log = lines_of(tmp_path / "audit.log", 2)
    assert (file["action"], file["id"], file["name"]) == ("file", id_, "labels.npy")
    assert (log["action"], log["id"], log["user"]) == ("log", id_, "admin")


@pytest.mark.parametrize(
    "end", ["files/result.json%0a", "log%0A", "events%0a", "files%0d", "points%e2%80%a8", "log%00"]
)
def test_paths_that_a_router_could_read_differently(served, tmp_path, end):
    id_ = "3" * 32
    with writing(open_database(Settings(data=tmp_path).database)) as session:
        session.add(
            Job(id=id_, owner="admin", method="silhouette", request={}, state="SUCCEEDED", created=1.0, attempt=1)
        )
    answer = served.get(f"/api/v1/jobs/{id_}/{end}")
    assert (answer.status_code, answer.json()["error"]) == (404, "no path has control characters.")
    (line,) = lines_of(tmp_path / "audit.log", 1)
    assert (line["action"], line["status"]) == ("refused", 404)


def test_the_route_decides_what_is_recorded():
    """A read of a new endpoint is recorded unless it is named as a description."""
    assert UNRECORDED_READS.isdisjoint({"file", "points", "log", "centers", "show_audit", "shared", "shared_file"})


def test_what_the_service_does_by_itself(tmp_path):
    """The first administrator's token is made, once, and a job expires."""
    settings = Settings(data=tmp_path, cpu=True, keep_days=1.0)
    create_app(settings)
    engine, audit = open_database(settings.database), Audit(settings.audit_path)
    for _ in range(2):
        access.first_token(engine, tmp_path, audit)
    audit.close()
    (told,) = access.tokens_of(engine, "admin")
    with writing(engine) as session:
        session.add(
            Job(
                id="3" * 32, owner="admin", method="silhouette", request={}, priority=0, state="SUCCEEDED", created=1.0,
                finished=2.0, attempt=1, begun_before=0, cancel=False,
            )
        )  # fmt: skip
    sweep(engine, settings)
    sweep(engine, settings)
    first, expired = lines_of(tmp_path / "audit.log", 2)
    assert (first["action"], first["id"], first["name"]) == ("first_token", told["id"], "admin")
    assert (expired["action"], expired["id"], expired["name"]) == ("expire", "3" * 32, "admin")
    assert "mgc_" not in (tmp_path / "audit.log").read_text()


def test_names_cannot_forge_a_line(served, tmp_path):
    served.delete('/api/v1/jobs/x%0a{"user":"eve"}%1b[2J')
    served.get("/api/v1/%0a%1b[2J", headers={"Authorization": "Bearer guess"})
    lines = lines_of(tmp_path / "audit.log", 2)
    assert len(lines) == 2
    assert lines[0]["path"] == '/api/v1/jobs/x\\n{"user":"eve"}\\x1b[2J'
    assert lines[1]["path"] == "/api/v1/\\n\\x1b[2J"


def test_a_flood_of_refusals_is_a_few_lines(served, tmp_path):
    for _ in range(300):
        served.get("/api/v1/jobs", headers={"Authorization": "Bearer guess"})
    served.post("/api/v1/users", json={"name": "ann"})
    lines = lines_of(tmp_path / "audit.log", 51)
    while lines[-1]["action"] != "make_user":
        lines = lines_of(tmp_path / "audit.log", len(lines) + 1)
    assert len(lines) < 150


def test_files_are_put_aside(tmp_path, monkeypatch):
    """By two that write to the same ones, without a line lost or torn until the oldest go."""
    monkeypatch.setattr(module, "MAX_FILE_BYTES", 10_000)
    path, logs = tmp_path / "audit.log", []
    for number in range(2):
        logs.append(Audit(path))
        for line in range(200):
            logs[-1].write(number=number, line=line)
    for log in logs:
        log.close()
    files = sorted(tmp_path.iterdir())
    assert 2 < len(files) <= KEPT_FILES + 1
    found = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    assert len(found) == len({(each["number"], each["line"]) for each in found}) == 400
    assert all(file.stat().st_size <= 10_000 for file in files)
    for line in range(4000):
        logs[0] = logs[0] if line else Audit(path)
        logs[0].write(number=2, line=line)
    logs[0].close()
    assert len(list(tmp_path.iterdir())) == KEPT_FILES + 1


def test_lines_of_a_moment_are_written_at_once(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "GATHER_SECONDS", 1.0)
    written, write = [], os.write
    monkeypatch.setattr(module.os, "write", lambda file, data: written.append(data) or write(file, data))
    log = Audit(tmp_path / "audit.log")
    for line in range(30):
        log.write(line=line)
    log.close()
    assert [each["line"] for each in lines_of(tmp_path / "audit.log", 30)] == list(range(30))
    assert len(written) < 5


def test_a_full_disk_breaks_no_request(tmp_path, monkeypatch):
    path, write = tmp_path / "audit.log", os.write
    log, full = Audit(path), threading.Event()

    def fail(file, data):
        if full.is_set():
            write(file, data[:7])
            return 7
        return write(file, data)

    monkeypatch.setattr(module.os, "write", fail)
    log.write(line=0)
    lines_of(path, 1)
    full.set()
    for line in (1, 2):
        log.write(line=line)
    wait_for(lambda: log.lost == 2)
    full.clear()
    log.write(line=3)
    log.close()
    told = [json.loads(line) for line in path.read_text().splitlines() if line.endswith("}")]
    assert [each["line"] for each in told] == [0, 3]
    assert told[-1]["lost_before"] == 2


def test_a_log_that_stands_still_costs_no_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "MAX_QUEUED_LINES", 10)
    os.mkfifo(tmp_path / "audit.log")
    log = Audit(tmp_path / "audit.log")  # nothing reads it: to open it takes for ever
    for line in range(100):
        log.write(line=line)
    assert log.lost >= 80


def test_a_link_is_not_followed(tmp_path):
    (tmp_path / "audit.log").symlink_to(tmp_path / "other")
    log = Audit(tmp_path / "audit.log")
    log.write(line=1)
    log.close()
    assert log.lost == 1
    assert not (tmp_path / "other").exists()


def test_a_stopped_process_that_holds_the_lock_delays_lines_alone(tmp_path, monkeypatch):
    monkeypatch.setattr("mgclust.service.audit.LOCK_SECONDS", 0.2)
    path = tmp_path / "audit.log"
    path.touch()
    with path.open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        log = Audit(path)
        log.write(line=1)
        log.close()
    assert [json.loads(line)["line"] for line in path.read_text().splitlines()] == [1]
