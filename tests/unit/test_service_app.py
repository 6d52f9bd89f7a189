"""What the service answers to requests that are wrong, and to those whose token is worth nothing any more."""

from __future__ import annotations

import threading

import pytest
from click.testing import CliRunner
from sqlalchemy.exc import DataError
from starlette.testclient import TestClient

from mgclust.cli.service import serve
from mgclust.service import access
from mgclust.service.app import create_app
from mgclust.service.records import open_database
from mgclust.service.settings import Settings


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
        ("POST", "/api/v1/jobs", "[" * 100_000, 400, "nested"),
        ("POST", "/api/v1/jobs", '{"priority": ' + "9" * 5000 + "}", 400, "digits"),
        ("POST", "/api/v1/jobs", b"\xff", 400, "UTF-8"),
    ],
)
def test_whatever_is_wrong_is_a_sentence(served, method, path, body, code, sentence):
    answer = served.request(method, path, content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == code
    assert sentence in answer.json()["error"]
    assert set(answer.json()) == {"error", "fault"}


def test_what_the_database_does_not_take(served, monkeypatch):
    def fail(*given):
        raise DataError("SELECT", {}, ValueError("PostgreSQL text fields cannot contain NUL (0x00) bytes"))

    monkeypatch.setattr("mgclust.service.jobs.reading", fail)
    answer = served.get("/api/v1/jobs")
    assert (answer.status_code, answer.json()["fault"]) == (400, "input")


def test_parameters_and_names_that_break_something_later(served, job):
    for digits in (350, 4000):
        answer = served.post("/api/v1/jobs", json=job | {"parameters": {"dc": 10**digits - 1}})
        assert (answer.status_code, answer.json()["error"][:6]) == (400, "dc=999")
    fuzzy = {"method": "fuzzy-c-means", "sources": job["sources"]}
    init = {"url": None, "path": None, "upload": job["sources"][0]["upload"], "name": None}
    answer = served.post("/api/v1/jobs", json=fuzzy | {"parameters": {"n_clusters": 2, "init": init}})
    assert answer.status_code == 201
    assert answer.json()["request"]["parameters"]["init"] == job["sources"][0]
    answer = served.post(
        "/api/v1/jobs",
        json=fuzzy | {"parameters": {"n_clusters": 2, "init": {"url": None, "path": "/root/x.npy"}}},
    )
    assert (answer.status_code, "path='/root/x.npy'" in answer.json()["error"]) == (400, True)
    for name, code in (("\x1b]0;pwned\x07", 422), ("two\nlines", 422), ("\x9b2J", 422), ("Zürich, 2 données.csv", 201)):
        source = job["sources"][0] | {"name": name}
        assert served.post("/api/v1/jobs", json=job | {"sources": [source]}).status_code == code


def test_the_last_token_of_an_administrator_stays(served, engine):
    (mine,) = access.tokens_of(engine, "admin")
    answer = served.delete(f"/api/v1/tokens/{mine['id']}")
    assert answer.status_code == 409
    assert "make another" in answer.json()["error"]
    assert served.get("/api/v1/jobs").status_code == 200


def test_who_watches_with_a_revoked_token_hears_no_more(served, job, engine, monkeypatch):
    monkeypatch.setattr("mgclust.service.app.LOOK", 0.01)
    monkeypatch.setattr("mgclust.service.app.ASK", 0.05)
    id_ = served.post("/api/v1/jobs", json=job).json()["id"]
    token_id, token = access.new_token(engine, "admin")
    path, shown, heard = f"/api/v1/jobs/{id_}/events", {"Authorization": f"Bearer {token}"}, []
    watching = threading.Thread(target=lambda: heard.append(served.get(path, headers=shown).text))
    watching.start()
    watching.join(0.3)
    assert watching.is_alive()
    access.revoke(engine, token_id)
    watching.join(3)
    ended = not watching.is_alive()
    served.post(f"/api/v1/jobs/{id_}/cancel")  # lets go of a stream that went on
    watching.join()
    assert ended
    assert heard[0].count("PENDING") == 1


def test_an_address_is_that_of_the_connection(tmp_path, monkeypatch):
    """By a header each request could come from another, and none would be too many."""
    ran = []
    monkeypatch.setattr("uvicorn.run", lambda app, **given: ran.append(given))
    assert CliRunner().invoke(serve, ["--no-runner", "--data", str(tmp_path)]).exit_code == 0
    assert ran[0]["proxy_headers"] is False
