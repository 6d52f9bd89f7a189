"""What administrators see and change: users, usage, limits, the queue, the audit log, retention, and backups."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import threading
import time
from types import SimpleNamespace

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.service.audit import latest_lines
from mgclust.service.client.connection import check
from mgclust.service.client.service import Service
from mgclust.service.queue import access, administration, revocations, sources
from mgclust.service.queue.access import Caller, LastToken, Unauthorized
from mgclust.service.queue.administration import change_user, describe_users, jobs_before, waiting_jobs
from mgclust.service.queue.backup import back_up
from mgclust.service.queue.jobs.submission import NewJob
from mgclust.service.queue.models import Job, Upload, migrate, open_database, reading, writing
from mgclust.service.queue.quotas import QuotaExceeded
from mgclust.service.queue.removal import sweep
from mgclust.service.queue.sources import receive
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.waiting import wait_for
from support.whole_queue import WholeQueue

ANN, BOB, ROOT = Caller("ann", "user"), Caller("bob", "user"), Caller("root", "admin")
DAY = 86_400.0


@pytest.fixture
def settings(tmp_path):
    return Settings(data=tmp_path / "data", cpu=True, keep_days=30.0)


@pytest.fixture
def engine(settings):
    settings.data.mkdir()
    engine = open_database(settings.database)
    migrate(engine)
    for caller in (ANN, BOB, ROOT):
        access.add_user(engine, caller.name, caller.role)
    return engine


def submit(jobs, caller=ANN, priority=0, **request):
    order = NewJob(
        f"{time.monotonic_ns():032x}", caller, "silhouette", {"sources": [], "parameters": {}} | request, priority
    )
    (job,) = jobs.submit([order])
    if isinstance(job, Exception):
        raise job
    return job


def upload(engine, settings, caller=ANN, name="x.npy"):
    async def parts():
        yield secrets.token_bytes(5000)  # the same content would be the same upload

    return asyncio.run(receive(engine, settings, caller, name, parts()))["id"]


def test_usage_outlives_the_jobs(engine, settings):
    jobs = WholeQueue(engine, settings)
    upload(engine, settings)
    for fault in ("input", "cluster"):
        submit(jobs)
        job = jobs.claim(lambda job: setattr(job, "gpus", 2) or True)
        with writing(engine) as session:
            session.get_one(Job, job.id).claimed -= 100.0
        jobs.fail(job.id, job.attempt, "no", fault)
        if fault == "input":
            jobs.delete(ANN, job.id)
    ann = describe_users(engine)[0]
    assert (ann["name"], ann["jobs"], ann["uploads"], ann["attempts"]) == ("ann", 1, 1, 2)
    assert ann["seconds"] == pytest.approx(200, abs=2)
    assert ann["gpu_seconds"] == pytest.approx(400, abs=4)
    assert ann["bytes"] > 5000


def test_a_disabled_user(engine, settings):
    """Tokens are rejected, and jobs wait, until the user is enabled; a restored database does not enable anybody."""
    _, token = access.new_token(engine, "ann")
    jobs = WholeQueue(engine, settings)
    submit(jobs)
    assert change_user(engine, settings.data, "ann", {"disabled": True})
    assert "is disabled" in str(access.find_callers(engine, [access.hash_of(token)])[0])
    assert jobs.claim() is None
    assert [job["position"] for job in waiting_jobs(engine)] == [None]
    with writing(engine) as session:
        session.get_one(administration.User, "ann").disabled = None
    revocations.reapply(engine, settings.data)
    assert isinstance(access.find_callers(engine, [access.hash_of(token)])[0], Unauthorized)
    change_user(engine, settings.data, "ann", {"disabled": False})
    revocations.reapply(engine, settings.data)
    assert access.find_callers(engine, [access.hash_of(token)])[0].name == "ann"
    assert jobs.claim().owner == "ann"
    assert not change_user(engine, settings.data, "nobody", {"disabled": True})
    assert not change_user(engine, settings.data, "a\0", {"disabled": True})
    with pytest.raises(InputError, match="nothing is to change"):
        change_user(engine, settings.data, "ann", {})


def test_the_last_administrator_cannot_be_disabled(engine, settings):
    access.new_token(engine, "root")
    with pytest.raises(LastToken):
        change_user(engine, settings.data, "root", {"disabled": True})
    assert not describe_users(engine)[2]["disabled"]
    access.add_user(engine, "eve", "admin")
    access.new_token(engine, "eve")
    assert change_user(engine, settings.data, "root", {"disabled": True})


def test_limits_of_a_user(engine, settings):
    jobs = WholeQueue(engine, settings)
    change_user(engine, settings.data, "ann", {"jobs_limit": 1, "disk_limit": 20_000})
    submit(jobs)
    with pytest.raises(Exception, match="ann has jobs_per_user=1 jobs waiting"):
        submit(jobs)
    upload(engine, settings)
    with pytest.raises(QuotaExceeded, match="would exceed disk_per_user=20000"):
        for _ in range(3):
            upload(engine, settings)
    submit(jobs, BOB), submit(jobs, BOB)
    change_user(engine, settings.data, "ann", {"jobs_limit": None, "disk_limit": None})
    submit(jobs), upload(engine, settings)


def test_the_order_of_the_queue_is_that_of_claims(engine, settings):
    jobs = WholeQueue(engine, settings)
    submitted = [submit(jobs, caller, priority) for caller, priority in (
        (ANN, 0), (ANN, 0), (ANN, 1), (BOB, 0), (ROOT, 0), (ANN, 0), (BOB, -1), (ROOT, 5),
    )]  # fmt: skip
    listed = waiting_jobs(engine)
    assert [job["position"] for job in listed] == list(range(len(submitted)))
    assert [jobs_before(engine, job["id"]) for job in listed] == list(range(len(submitted)))
    for expected in listed[:1] + listed[1:2]:
        assert jobs.claim().id == expected["id"]
    while (job := jobs.claim()) is not None:
        assert waiting_jobs(engine) == [] or job.id != waiting_jobs(engine)[0]["id"]
        assert jobs_before(engine, job.id) is None
    assert waiting_jobs(engine) == []


def test_retention_of_uploads_with_pins(engine, settings):
    """An upload expires unless it is pinned, or a job that is kept names it; a job expires unless it is pinned."""
    ids = {name: upload(engine, settings, name=name) for name in ("old", "pinned", "needed", "of-job", "new")}
    jobs = WholeQueue(engine, settings)
    submit(jobs, sources=[{"upload": ids["needed"]}])
    kept = submit(jobs, parameters={"labels": {"upload": ids["of-job"]}})
    gone = submit(jobs)
    for job in (kept, gone):
        jobs.cancel(ANN, job.id)
    with writing(engine) as session:
        for name, id_ in ids.items():
            if name != "new":
                session.get_one(Upload, id_).created -= 31 * DAY
        for job in (kept, gone):
            session.get_one(Job, job.id).finished = time.time() - 31 * DAY
    assert administration.pin(engine, ANN, Upload, ids["pinned"], True)
    assert administration.pin(engine, ANN, Job, kept.id, True)
    assert not administration.pin(engine, BOB, Job, kept.id, True)
    assert not administration.pin(engine, BOB, Upload, "x", True)
    sweep(engine, settings)
    with reading(engine) as session:
        assert session.get(Job, kept.id) and not session.get(Job, gone.id)
        assert {name for name, id_ in ids.items() if session.get(Upload, id_)} == set(ids) - {"old"}
    assert not (settings.data / "uploads" / ids["old"]).exists()
    assert any(line["id"] == ids["old"] for line in latest_lines(settings.audit_path, 10, None, "expire"))
    administration.pin(engine, ANN, Job, kept.id, False)
    sweep(engine, settings)
    with reading(engine) as session:
        assert not session.get(Job, kept.id) and not session.get(Upload, ids["of-job"])


def test_retention_keeps_what_waiting_and_running_jobs_read(engine, settings):
    """Labels of other jobs and uploads, for as long as a job needs them; more jobs than one transaction deletes."""
    jobs = WholeQueue(engine, settings)
    labels, others, needed = submit(jobs), [submit(jobs) for _ in range(102)], upload(engine, settings)
    for job in (labels, *others):
        jobs.cancel(ANN, job.id)
    reader = submit(jobs, parameters={"labels": {"job": labels.id}}, sources=[{"upload": needed}])
    with writing(engine) as session:
        session.execute(update(Job).where(Job.id != reader.id).values(finished=time.time() - 31 * DAY))
        session.get_one(Upload, needed).created -= 31 * DAY
    for state in ("PENDING", "RUNNING"):
        with reading(engine) as session:
            assert session.get_one(Job, reader.id).state == state
        sweep(engine, settings)
        with reading(engine) as session:
            assert set(session.scalars(select(Job.id))) == {labels.id, reader.id}
            assert session.get(Upload, needed)
        assert state == "RUNNING" or jobs.claim().id == reader.id
    jobs.succeed(reader.id, 1, {})
    sweep(engine, settings)
    with reading(engine) as session:
        assert set(session.scalars(select(Job.id))) == {reader.id}
        assert session.get(Upload, needed)  # a job that is kept names it


def test_a_key_belongs_to_one_request(engine, settings):
    """A request with other parameters would get the result of the first one. Files may be sent again."""
    jobs = WholeQueue(engine, settings)
    id_, ups = "a" * 32, [upload(engine, settings) for _ in range(2)]
    orders = [
        NewJob(id_, ANN, method, {"sources": [{"upload": ups[k % 2]}], "parameters": {"t1": t1}}, 0)
        for k, (method, t1) in enumerate([("canopy", 2.0), ("canopy", 2.0), ("canopy", 3.0), ("silhouette", 2.0)])
    ]
    for _ in range(2):  # also in one batch
        first, again, other, method = jobs.submit(orders)
        assert (first.id, again.id) == (id_, id_)
        for answer in (other, method):
            assert isinstance(answer, InputError) and f"the key belongs to job {id_}" in str(answer)
    assert [job.id for job in jobs.submit_sweep(orders[:2])] == [id_, id_]
    with pytest.raises(InputError, match="give each request its own key"):
        jobs.submit_sweep(orders)
    with reading(engine) as session:
        assert session.get_one(Job, id_).request["parameters"] == {"t1": 2.0}


def test_labels_that_are_deleted_after_the_check_of_a_request(engine, settings):
    """The job that would read them is rejected in the transaction that would add it."""
    jobs = WholeQueue(engine, settings)
    labels, foreign = submit(jobs), submit(jobs, BOB)
    waiting = submit(jobs, parameters={"labels": {"job": labels.id}})
    jobs.cancel(ANN, waiting.id)
    jobs.cancel(ANN, labels.id)
    request = {"sources": [], "parameters": {"labels": {"job": labels.id}}}
    with writing(engine) as session:  # as retention does
        session.delete(session.get_one(Job, labels.id))
    for wrong in (labels.id, foreign.id):
        request["parameters"]["labels"]["job"] = wrong
        order = NewJob(f"{wrong[:31]}0", ANN, "silhouette", request, 0)
        (answer,) = jobs.submit([order])
        assert isinstance(answer, InputError) and f"job={wrong!r} is not one of your jobs" in str(answer)
        with pytest.raises(InputError, match="is not one of your jobs"):
            jobs.submit_sweep([order])
    with pytest.raises(InputError, match="is not one of your jobs"):
        jobs.retry(ANN, waiting.id)
    with reading(engine) as session:
        assert set(session.scalars(select(Job.id))) == {foreign.id, waiting.id}


def test_an_upload_that_soon_expires_is_sent_again(engine, settings):
    """So looking for it, which needs no right to upload, changes nothing."""
    id_ = upload(engine, settings)
    with reading(engine) as session:
        sent = session.get_one(Upload, id_)
    for age, pinned, known in ((28, False, True), (29.5, False, False), (29.5, True, True)):
        created = time.time() - age * DAY
        with writing(engine) as session:
            session.execute(update(Upload).values(created=created, pinned=pinned))
        found = sources.known_upload(engine, settings, ANN, sent.sha256, sent.name)
        assert (found is not None) == known
        with reading(engine) as session:
            assert session.get_one(Upload, id_).created == created


def test_the_latest_lines_of_the_audit_log(tmp_path, monkeypatch):
    path = tmp_path / "audit.log"
    lines = [json.dumps({"user": "ab"[k % 2], "action": "submit", "id": k}) for k in range(50)]
    (tmp_path / "audit.log.1").write_text("\n".join(lines[:30]) + "\n")
    path.write_text("\n".join(lines[30:]) + '\n{"torn\n[1]\n')
    assert [line["id"] for line in latest_lines(path, 4, None, None)] == [49, 48, 47, 46]
    assert [line["id"] for line in latest_lines(path, 100, "a", "submit")] == list(range(48, -1, -2))
    assert latest_lines(path, 100, "a", "delete") == latest_lines(tmp_path / "none", 1, None, None) == []
    monkeypatch.setattr("mgclust.service.audit.MAX_READ_BYTES", 200)
    assert 0 < len(latest_lines(path, 100, None, None)) < 6


def test_a_backup_of_a_running_service_is_a_data_folder(settings, tmp_path):
    """While jobs and uploads come and go; whatever its database names is there."""
    app = create_app(settings)
    engine = app.state.backend.engine
    token = access.first_token(engine, settings.data).read_text()
    for caller in (ANN, BOB):
        access.add_user(engine, caller.name, caller.role)
    jobs, ending = WholeQueue(engine, settings), threading.Event()

    def work():
        while not ending.is_set():
            id_ = upload(engine, settings)
            job = submit(jobs, sources=[{"upload": id_}])
            attempt = settings.attempt_folder(job.id, 1)
            (attempt / "result").mkdir(parents=True)
            (attempt / "result" / "result.json").write_text("{}")
            os.symlink("/etc/passwd", attempt / "result" / "link")
            os.mkfifo(attempt / "result" / "pipe")
            jobs.claim()
            jobs.succeed(job.id, 1, {})
            if int(job.id, 16) % 3 == 0:
                jobs.delete(ANN, job.id)

    thread = threading.Thread(target=work)
    thread.start()
    try:
        wait_for(lambda: jobs.counts()["SUCCEEDED"] > 5)
        report = back_up(settings, tmp_path / "backup")
        assert report["folder"] == str(tmp_path / "backup")
    finally:
        ending.set()
        thread.join()
    with pytest.raises(InputError, match="exists; give a new folder"):
        back_up(settings, tmp_path / "backup")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["backup", "data"]
    assert (tmp_path / "backup").stat().st_mode & 0o077 == 0
    restored = Settings(data=tmp_path / "backup", cpu=True)
    other = create_app(restored)
    with TestClient(other, headers={"Authorization": f"Bearer {token.strip()}"}) as http:
        listed = http.get("/api/v1/jobs?limit=1000").json()
        succeeded = [job["id"] for job in listed if job["state"] == "SUCCEEDED"]
        assert len(succeeded) > 2 and len(listed) == report["jobs"]
        for id_ in succeeded:
            assert http.get(f"/api/v1/jobs/{id_}/files").json() == [{"name": "result.json", "size": 2}]
        for each in http.get("/api/v1/uploads?limit=1000").json():
            assert (restored.data / "uploads" / each["id"] / each["name"]).stat().st_size == each["size"]


def test_a_backup_needs_a_database(tmp_path):
    with pytest.raises(InputError, match="has no SQLite database"):
        back_up(Settings(data=tmp_path), tmp_path / "x")
    with pytest.raises(InputError, match="run pg_dump first"):
        back_up(Settings(data=tmp_path, database="postgresql+psycopg://x/y"), tmp_path / "x")


@pytest.fixture
def command(settings, engine, monkeypatch, capsys):
    """Run a command as an administrator of the service, in this process."""
    app = create_app(settings)
    token = access.new_token(engine, "root")[1]
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:

        def call(self, verb, path, **how):
            return check(http.request(verb, f"/api/v1{path}", **how)).json()

        monkeypatch.setattr(Service, "call", call)
        monkeypatch.setenv("MGCLUST_URL", "http://localhost:1")
        monkeypatch.setenv("MGCLUST_TOKEN", "x")

        def run(*words):
            code = run_command(list(words))
            shown = capsys.readouterr()
            return SimpleNamespace(exit_code=code, output=shown.out, exception=shown.err)

        yield run


def test_commands(command, engine, settings):
    jobs = WholeQueue(engine, settings)
    job, sent = submit(jobs), upload(engine, settings)
    assert "ann  disabled" in command("user", "disable", "ann").output
    assert "-         " + job.id in command("queue").output
    assert json.loads(command("user", "enable", "ann", "--json").output)["disabled"] is False
    assert "disk_limit=1000  jobs_limit=5" in command("user", "quota", "ann", "--disk", "1000", "--jobs", "5").output
    assert "jobs_limit" not in command("user", "quota", "ann", "--disk", "default", "--jobs", "default").output
    assert "nothing is to change" in str(command("user", "quota", "ann").exception)
    assert "no such user" in str(command("user", "disable", "nobody").exception)
    assert command("user", "quota", "ann", "--disk", "many").exit_code == 2
    first, ann = command("usage").output.splitlines()[:2]
    assert (first.split()[0], ann.split()[:3]) == ("name", ["ann", "1", "1"])
    assert command("queue").output.splitlines()[1].split()[:3] == ["0", job.id, "ann"]
    assert json.loads(command("queue", "--json").output)[0]["id"] == job.id
    assert "runner: none; 1 slots" in command("health").output
    assert json.loads(command("health", "--json").output)["jobs"]["PENDING"] == 1
    assert f"{job.id} stays" in command("pin", job.id[:8]).output
    assert f"{sent} stays" in command("pin", sent, "--upload").output
    assert f"{job.id} may expire" in command("unpin", job.id).output
    assert "no such upload" in str(command("pin", job.id, "--upload").exception)
    lines = json.loads(command("audit", "--json", "--action", "change_user").output)
    assert [line["status"] for line in lines] == [404, 200, 200, 200, 200]
    assert "change_user" in command("audit", "--user", "root").output
    assert (
        json.loads(
            command("backup", str(settings.data.parent / "copy"), "--data", str(settings.data), "--json").output
        )["jobs"]
        == 1
    )


@pytest.mark.parametrize(("verb", "path"), [
    ("GET", "users"), ("PATCH", "users/ann"), ("GET", "admin/queue"), ("GET", "admin/audit"), ("GET", "admin/health"),
])  # fmt: skip
def test_only_for_administrators(settings, engine, verb, path):
    app = create_app(settings)
    token = access.new_token(engine, "ann")[1]
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
        assert http.request(verb, f"/api/v1/{path}", json={}).status_code == 403
