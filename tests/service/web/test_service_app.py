"""What the service answers to requests that are wrong, and to those whose token is worth nothing any more."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
import threading

import httpx
import pytest
from click.testing import CliRunner
from sqlalchemy.exc import DataError
from starlette.testclient import TestClient

from mgclust.cli import run_command
from mgclust.cli.serve import GC_FULL_THRESHOLD, serve
from mgclust.results.result import load_result
from mgclust.service.client import connection
from mgclust.service.queue import access
from mgclust.service.queue.jobs.lists import JobLists
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.queue.quotas import BLOCK_BYTES
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from support.waiting import wait_for


@pytest.fixture
def engine(tmp_path):
    return open_database(Settings(data=tmp_path).database)


@pytest.fixture
def served(tmp_path, engine):
    """A client that shows an administrator's token."""
    app = create_app(Settings(data=tmp_path, cpu=True))
    token = access.first_token(engine, tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http


@pytest.fixture
def job(served):
    """A job that can be submitted."""
    upload = served.put("/api/v1/uploads/x.npy", content=b"x").json()["id"]
    return {"method": "density-peaks", "sources": [{"upload": upload}]}


@pytest.mark.parametrize(
    ("method", "path", "body", "code", "sentence"),
    [
        ("GET", "/nothing", "", 404, "nothing at this path"),
        ("GET", "/api/v1/nothing", "", 404, "nothing at this path"),
        ("PUT", "/api/v1/jobs", "", 405, "PUT is not possible here"),
        ("POST", "/api/v1/jobs", "{", 422, "JSON decode error"),
        ("POST", "/api/v1/jobs", "[" * 15_000, 400, "nested"),
        ("POST", "/api/v1/jobs", "[" * 100_000, 413, "should have at most"),
        ("POST", "/api/v1/jobs", '{"priority": ' + "9" * 5000 + "}", 400, "digits"),
        ("POST", "/api/v1/jobs", b"\xff", 400, "UTF-8"),
    ],
)
def test_whatever_is_wrong_is_a_sentence(served, method, path, body, code, sentence):
    answer = served.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == code
    assert sentence in answer.json()["error"]
    assert set(answer.json()) == {"error", "fault"}


PAGE = "default-src 'none'; script-src 'self'; style-src 'self'"


@pytest.mark.parametrize(
    ("path", "policy", "cache"),
    [
        ("/", PAGE + "; ", "no-cache"),
        ("/pages/style.css", PAGE + "; ", "no-cache"),
        ("/jobs/x", PAGE + " 'unsafe-inline'; ", "no-cache"),
        ("/healthz", "default-src 'none'; frame-ancestors 'none'; sandbox", "no-cache"),
        ("/nothing", "default-src 'none'; frame-ancestors 'none'; sandbox", "no-cache"),
        ("/api/v1/jobs", "default-src 'none'; frame-ancestors 'none'; sandbox", "no-store"),
        ("/api/v1/nothing", "default-src 'none'; frame-ancestors 'none'; sandbox", "no-store"),
    ],
)
def test_every_answer_has_the_headers_that_keep_other_sites_out(served, path, policy, cache):
    headers = served.get(path).headers
    exact = {
        "x-content-type-options": "nosniff",
        "x-frame-options": "DENY",
        "referrer-policy": "no-referrer",
        "cross-origin-opener-policy": "same-origin",
        "cross-origin-resource-policy": "same-origin",
        "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
        "cache-control": cache,
    }
    assert {name: headers.get(name) for name in exact} == exact
    found = headers["content-security-policy"]
    assert found.startswith(policy) and "frame-ancestors 'none'" in found


def test_what_the_database_does_not_take(served, monkeypatch):
    def fail(*given):
        raise DataError("SELECT", {}, ValueError("PostgreSQL text fields cannot contain NUL (0x00) bytes"))

    monkeypatch.setattr("mgclust.service.queue.jobs.lists.reading", fail)
    answer = served.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["fault"]) == (400, "input")


def test_parameters_and_names_that_break_something_later(served, job):
    for digits in (350, 4000):
        answer = served.post("/api/v1/jobs", json=job | {"parameters": {"dc": 10**digits - 1}})
        assert (answer.status_code, answer.json()["error"][:6]) == (400, "dc=999")
    fuzzy = {"method": "fuzzy-c-means", "sources": job["sources"]}
    init = {"path": None, "upload": job["sources"][0]["upload"], "name": None}
    answer = served.post("/api/v1/jobs", json=fuzzy | {"parameters": {"n_clusters": 2, "init": init}})
    assert answer.status_code == 201
    assert answer.json()["request"]["parameters"]["init"] == job["sources"][0]
    answer = served.post(
        "/api/v1/jobs",
        json=fuzzy | {"parameters": {"n_clusters": 2, "init": {"upload": None, "path": "/root/x.npy"}}},
    )
    assert (answer.status_code, "path='/root/x.npy'" in answer.json()["error"]) == (400, True)
    for name, code in (("\x1b]0;pwned\x07", 422), ("two\nlines", 422), ("\x9b2J", 422), ("Zürich, 2 données.csv", 201)):
        source = job["sources"][0] | {"name": name}
        assert served.post("/api/v1/jobs", json=job | {"sources": [source]}).status_code == code


def test_the_last_token_of_an_administrator_stays(served, engine):
    (mine,) = access.tokens_of(engine, "admin")
    answer = served.delete(f"/api/v1/tokens/{mine['id']}")
    assert answer.status_code == 409
    assert "create another" in answer.json()["error"]
    assert served.get("/api/v1/jobs").status_code == 200


def test_the_commands_of_users_and_tokens(served, monkeypatch, capsys):
    """Two administrators: the second one is made by the first one's commands, and revokes the first one's token."""

    def answer(request):
        return served.request(request.method, request.url.path, content=request.content, headers=request.headers)

    client = httpx.Client
    monkeypatch.setattr(
        connection.httpx, "Client", lambda **how: client(**how | {"transport": httpx.MockTransport(answer)})
    )
    monkeypatch.setenv("MGCLUST_URL", "http://service.example")

    def call(token, *words, code=0):
        monkeypatch.setenv("MGCLUST_TOKEN", token)
        assert run_command(list(words)) == code
        out, err = capsys.readouterr()
        return out if code == 0 else err

    first = served.headers["Authorization"].split()[1]
    assert call(first, "user", "create", "ann") == call(first, "user", "create", "bob", "--role", "admin") == ""
    assert "is taken" in call(first, "user", "create", "ann", code=2)
    bobs = call(first, "token", "create", "bob", "--days", "2").strip()
    anns = call(bobs, "token", "create", "ann", "--scope", "read").strip()
    assert call(bobs, "user", "list").split("\n") == [
        "admin  admin  1 tokens",
        "ann  user  1 tokens",
        "bob  admin  1 tokens",
        "",
    ]
    assert "only an administrator" in call(anns, "user", "list", code=2)
    (told,) = json.loads(call(bobs, "token", "list", "ann", "--json"))
    assert told["scopes"] == ["read"]
    (line,) = call(bobs, "token", "list", "admin").splitlines()
    call(bobs, "token", "revoke", line.split()[0])
    assert "token" in call(first, "jobs", code=2)
    assert "revoked" in call(bobs, "token", "list", "admin")


def test_deletion(served, job, engine):
    """Not while anything needs it, not twice, and not by another user; the answers are those for an unknown one."""
    upload = job["sources"][0]["upload"]
    access.add_user(engine, "bob", "user")
    bobs = {"Authorization": f"Bearer {access.new_token(engine, 'bob')[1]}"}
    submitted = served.post("/api/v1/jobs", json=job).json()
    id_ = submitted["id"]
    for path, says in ((f"jobs/{id_}", "is PENDING; cancel it"), (f"uploads/{upload}", f"or running jobs ({id_})")):
        answer = served.delete(f"/api/v1/{path}")
        assert (answer.status_code, says in answer.json()["error"]) == (409, True)
    cancelled = served.post(f"/api/v1/jobs/{id_}/cancel").json()
    for kind, own in (("jobs", id_), ("uploads", upload)):
        refused = [served.delete(f"/api/v1/{kind}/{own}", headers=bobs)]
        refused += [
            served.delete(f"/api/v1/{kind}/{id_}") for id_ in ("0" * 32, "%2e%2e", "..%2f..%2fservice.db", "%00")
        ]
        assert served.get("/api/v1/uploads").json()[0]["id"] == upload
        assert served.get("/api/v1/uploads", headers=bobs).json() == []
        assert served.delete(f"/api/v1/{kind}/{own}").status_code == 200
        refused.append(served.delete(f"/api/v1/{kind}/{own}"))
        assert {answer.status_code for answer in refused} == {404}
        plain = [answer for answer in refused if not any(each in str(answer.url) for each in ("%2f", "%00"))]
        assert len({answer.json()["error"] for answer in plain}) == 1
    assert served.get(f"/api/v1/jobs/{id_}/events").status_code == 404
    assert served.get("/api/v1/jobs").json() == served.get("/api/v1/uploads").json() == []
    assert cancelled["size"] == submitted["size"] > BLOCK_BYTES


def test_pages_go_on_from_what_was_deleted(served, job):
    """By time and id."""
    ids = [served.post("/api/v1/jobs", json=job).json()["id"] for _ in range(4)]
    uploads = [served.put(f"/api/v1/uploads/{i}.npy", content=b"x").json()["id"] for i in range(3)]
    for kind, newest in (("jobs", ids[::-1]), ("uploads", uploads[::-1])):
        path = f"/api/v1/{kind}"
        last = served.get(path, params={"limit": 2}).json()[-1]
        if kind == "jobs":
            served.post(f"{path}/{last['id']}/cancel")
        assert served.delete(f"{path}/{last['id']}").status_code == 200
        page = served.get(path, params={"before": f"{last['created']!r},{last['id']}"}).json()
        assert [each["id"] for each in page][: len(newest) - 2] == newest[2:]
    for wrong in ("x", "0" * 32, "1,x", "nan," + "0" * 32, "-1," + "0" * 32):
        assert served.get("/api/v1/jobs", params={"before": wrong}).status_code == 422


def test_what_was_deleted_while_it_was_read(served, job, engine, tmp_path, monkeypatch):
    id_ = served.post("/api/v1/jobs", json=job).json()["id"]
    result = tmp_path / "jobs" / id_ / "attempt-1" / "result"
    result.mkdir(parents=True)
    (result / "labels.npy").write_bytes(b"x")
    with writing(engine) as session:
        found = session.get(Job, id_)
        found.state, found.attempt = "SUCCEEDED", 1

    def read(*given):
        if deleted:
            served.delete(f"/api/v1/jobs/{id_}")
        load_result(result)

    monkeypatch.setattr("mgclust.service.web.recenter.points_of", read)
    monkeypatch.setattr("mgclust.service.web.recenter.preview", read)
    assert served.get(f"/api/v1/jobs/{id_}/files").json() == [{"name": "labels.npy", "size": 1}]
    deleted = False
    assert served.get(f"/api/v1/jobs/{id_}/points").status_code == 400  # it is there, but no result
    deleted = True
    for answer in (served.get(f"/api/v1/jobs/{id_}/points"), served.post(f"/api/v1/jobs/{id_}/centers", json={})):
        assert (answer.status_code, answer.json()["error"]) == (404, "there is no such job.")


def test_a_full_share_of_the_disk(tmp_path):
    limits = Settings(data=tmp_path, cpu=True, disk_per_user=BLOCK_BYTES + 10)
    app = create_app(limits)
    token = access.first_token(open_database(limits.database), tmp_path).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        upload = http.put("/api/v1/uploads/x.npy", content=bytes(BLOCK_BYTES + 10)).json()["id"]
        job = {"method": "density-peaks", "sources": [{"upload": upload}]}
        for answer in (http.put("/api/v1/uploads/y.npy", content=b"x"), http.post("/api/v1/jobs", json=job)):
            assert (answer.status_code, answer.json()["fault"]) == (507, "input")
            assert (
                f"would exceed disk_per_user={BLOCK_BYTES + 10}; delete some jobs or uploads" in answer.json()["error"]
            )
        http.delete(f"/api/v1/uploads/{upload}")
        assert http.put("/api/v1/uploads/y.npy", content=b"x").status_code == 201


def test_watching_ends_when_the_token_is_revoked(served, job, engine, monkeypatch):
    monkeypatch.setattr("mgclust.service.web.streams.POLL_SECONDS", 0.01)
    monkeypatch.setattr("mgclust.service.web.streams.TOKEN_CHECK_SECONDS", 0.05)
    looks, summaries = [], JobLists.summaries
    monkeypatch.setattr(JobLists, "summaries", lambda jobs, ids: looks.append(ids) or summaries(jobs, ids))
    id_ = served.post("/api/v1/jobs", json=job).json()["id"]
    token_id, token = access.new_token(engine, "admin")
    path, shown, heard = f"/api/v1/jobs/{id_}/events", {"Authorization": f"Bearer {token}"}, []
    watching = threading.Thread(target=lambda: heard.append(served.get(path, headers=shown).text))
    watching.start()
    wait_for(lambda: len(looks) > 5 or not watching.is_alive())
    assert watching.is_alive()
    access.revoke(engine, token_id)
    watching.join(60)
    ended = not watching.is_alive()
    served.post(f"/api/v1/jobs/{id_}/cancel")  # ends a stream that was still open
    watching.join()
    assert ended
    assert heard[0].count("PENDING") == 1


def test_an_address_is_that_of_the_connection(tmp_path, monkeypatch):
    """By a header each request could come from another, and none would be too many."""
    ran = []
    monkeypatch.setattr("uvicorn.Server.run", lambda server: ran.append(server.config))
    assert CliRunner().invoke(serve, ["--no-runner", "--data", str(tmp_path)]).exit_code == 0
    assert ran[0].proxy_headers is False


@pytest.mark.slow
def test_the_web_process_seldom_looks_through_all_for_garbage(tmp_path):
    """Each such look stops all requests, the longer the more event streams are open."""
    code = """
import gc, sys, uvicorn
from mgclust.cli import run_command
from mgclust.cli.serve import GC_FULL_THRESHOLD, serve
before = gc.get_threshold()
uvicorn.Server.run = lambda server: print(*gc.get_threshold(), gc.get_freeze_count() > 10_000)
print(*before)
serve(["--cpu", "--no-runner", "--data", sys.argv[1]], standalone_mode=False)
"""
    command = [sys.executable, "-c", code, str(tmp_path / "data")]
    before, during = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert during.split() == [*before.split()[:2], str(GC_FULL_THRESHOLD), "True"]
    assert int(before.split()[2]) < GC_FULL_THRESHOLD


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (OSError(errno.EIO, "x", "/secret"), 500, "the service failed (Input/output error); try again, or ask the"),
        (PermissionError(errno.EACCES, "x", "/secret"), 500, "the service failed (Permission denied)"),
        (FileNotFoundError(errno.ENOENT, "x", "/secret"), 500, "the service failed (No such file or directory)"),
        (OSError(errno.EDQUOT, "x", "/secret"), 507, "there is no space left"),
        (OSError(errno.ENOSPC, "x", "/secret"), 507, "there is no space left"),
        (RuntimeError("/secret"), 500, "the service failed; try again"),
        (PermissionError("only an administrator may do this."), 403, "only an administrator"),
    ],
)
def test_every_error_is_a_message(tmp_path, error, code, says):
    app = create_app(Settings(data=tmp_path, cpu=True))
    token = access.first_token(app.state.backend.engine, tmp_path).read_text().strip()

    def fail(caller, id_):
        raise error

    app.state.backend.jobs.get = fail
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}, raise_server_exceptions=False) as http:
        answer = http.get(f"/api/v1/jobs/{'1' * 32}")
    assert answer.status_code == code
    assert says in answer.json()["error"]
    assert "secret" not in answer.text


@pytest.mark.parametrize(
    "change",
    [
        {"parameters": {"n_clusters": 10**400}},
        {"parameters": {"n_clusters": 2**63}},
        {"parameters": {"dc_fraction": 10**400}},
        {"parameters": {"random_state": 10**400}},
    ],
)
def test_numbers_that_are_too_large(served, job, change):
    answer = served.post("/api/v1/jobs", json=job | change)
    assert answer.status_code == 400
    assert " should be " in answer.json()["error"] or "is not a parameter" in answer.json()["error"]
