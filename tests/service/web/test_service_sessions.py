"""Sessions of browsers: cookies, proofs, one-time codes, and what other sites and ports can do with a cookie."""

import json
import time

import pytest
from sqlalchemy import select, update
from starlette.testclient import TestClient

from mgclust.service.queue import access, revocations
from mgclust.service.queue.models import Token, open_database, reading, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

SESSION = "/api/v1/session"


@pytest.fixture
def engine(tmp_path):
    return open_database(Settings(data=tmp_path).database)


@pytest.fixture
def served(tmp_path, engine):
    """A client without a token."""
    app = create_app(Settings(data=tmp_path, cpu=True))
    access.first_token(engine, tmp_path)
    access.add_user(engine, "ann", "user")
    with TestClient(app, raise_server_exceptions=False) as http:
        yield http


def shown(token):
    return {"Authorization": f"Bearer {token}"}


def begin(served, token):
    """Begin a session; return its description and the header with its proof. The client keeps the cookie."""
    told = served.post(SESSION, headers=shown(token)).json()
    return told, {"X-Mgclust-Proof": told["proof"]}


@pytest.mark.parametrize("public", ["", "https://cluster.example", "HTTPS://cluster.example"])
def test_the_cookie(tmp_path, public):
    app = create_app(Settings(data=tmp_path, cpu=True, public_url=public))
    token = access.first_token(app.state.backend.engine, tmp_path).read_text().strip()
    with TestClient(app) as http:
        cookie = http.post(SESSION, headers=shown(token)).headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=strict" in cookie and "Domain" not in cookie
    # Over TLS, a browser lets no other host of the domain set the cookie.
    assert ("Secure" in cookie) == cookie.startswith("__Host-mgclust-session-") == bool(public)
    assert f"Path={'/' if public else '/api/'};" in cookie


def test_a_session_needs_the_cookie_and_the_proof(served, engine):
    token = access.new_token(engine, "ann")[1]
    told, proof = begin(served, token)
    assert (told["user"], told["kind"], told["scopes"]) == ("ann", "session", ["read", "submit"])
    assert served.get("/api/v1/jobs", headers=proof).status_code == 200
    upload = served.put("/api/v1/uploads/x.npy", content=b"x", headers=proof)
    assert upload.status_code == 201
    # Another site, and a server at another port, make the browser send the cookie alone.
    for method, path in (("GET", "/jobs"), ("PUT", "/uploads/x.npy"), ("POST", "/jobs"), ("DELETE", "/session")):
        for headers in ({}, {"X-Mgclust-Proof": ""}, {"X-Mgclust-Proof": "x" * 43}, {"Origin": "http://evil.example"}):
            assert served.request(method, f"/api/v1{path}", headers=headers).status_code == 401
    # A page of another site cannot send the header: the browser asks first, and the service permits nothing.
    asked = {"Origin": "http://evil.example", "Access-Control-Request-Headers": "x-mgclust-proof"}
    answer = served.options("/api/v1/jobs", headers=asked | {"Access-Control-Request-Method": "POST"})
    assert "access-control-allow-origin" not in answer.headers and answer.status_code >= 400
    served.cookies.clear()
    assert served.get("/api/v1/jobs", headers=proof).status_code == 401


def test_signing_out(served, engine):
    _, proof = begin(served, access.new_token(engine, "ann")[1])
    cookies = dict(served.cookies)
    answer = served.delete(SESSION, headers=proof)
    assert answer.status_code == 200 and "Max-Age=0" in answer.headers["set-cookie"]
    served.cookies.update(cookies)  # a copy of the cookie is worth nothing
    assert served.get("/api/v1/jobs", headers=proof).status_code == 401


def test_a_session_ends_with_its_token(served, engine):
    id_, token = access.new_token(engine, "ann", days=1.0)
    told, proof = begin(served, token)
    assert told["expires"] <= time.time() + 86_400
    assert served.get(SESSION, headers=proof).json()["kind"] == "session"
    assert served.delete(f"/api/v1/tokens/{id_}", headers=shown(token)).status_code == 200
    assert served.get(SESSION, headers=proof).status_code == 401  # at once


def test_a_narrow_token_begins_a_narrow_session(served, engine):
    told, proof = begin(served, access.new_token(engine, "ann", ["read"])[1])
    assert told["scopes"] == ["read"]
    assert served.put("/api/v1/uploads/x.npy", content=b"x", headers=proof).status_code == 403
    assert served.post(f"{SESSION}/codes", headers=proof).status_code == 403


def test_a_code_works_once_and_does_nothing_else(served, engine):
    token = access.new_token(engine, "ann")[1]
    code = served.post(f"{SESSION}/codes", headers=shown(token)).json()["path"].removeprefix("/sign-in#code=")
    for method, path in (("GET", "/jobs"), ("PUT", "/uploads/x.npy"), ("POST", "/tokens"), ("POST", "/session/codes")):
        assert served.request(method, f"/api/v1{path}", headers=shown(code), json={}).status_code == 403
    _, proof = begin(served, code)
    assert served.get(SESSION, headers=proof).json()["scopes"] == ["read", "submit"]
    assert served.post(SESSION, headers=shown(code)).status_code == 401


def code_of(served, token):
    answer = served.post(f"{SESSION}/codes", headers=shown(token))
    return answer.json()["path"].removeprefix("/sign-in#code=")


def test_a_session_by_a_code_ends_with_the_token_that_asked_for_it(served, engine):
    id_, token = access.new_token(engine, "ann", days=0.5)
    told, proof = begin(served, code_of(served, token))
    assert told["expires"] <= time.time() + 43_200
    unused = code_of(served, token)
    assert served.delete(f"/api/v1/tokens/{id_}", headers=shown(token)).status_code == 200
    assert served.get(SESSION, headers=proof).status_code == 401
    assert served.post(SESSION, headers=shown(unused)).status_code == 401


def test_a_code_gives_no_scope_that_the_token_lacks(served, engine):
    access.add_user(engine, "root", "admin")
    token = access.new_token(engine, "root", ["admin"])[1]
    assert served.post(f"{SESSION}/codes", headers=shown(token)).status_code == 403


def test_ended_sessions_stay_so_after_a_backup_is_restored(served, engine, tmp_path):
    id_, token = access.new_token(engine, "ann")
    _, proof = begin(served, token)
    assert served.delete(SESSION, headers=proof).status_code == 200
    told, _ = begin(served, token)
    revocations.keep(tmp_path, token=id_, expires=time.time() + 60)
    ended = [list(json.loads(line)) for line in (tmp_path / revocations.FILE).read_text().splitlines()]
    assert ended == [["session", "expires"], ["token", "expires"]] and told["user"] == "ann"
    revocations.reapply(engine, tmp_path)
    with reading(engine) as session:
        rows = session.scalars(select(Token).where(Token.user == "ann", Token.revoked.is_(None))).all()
    assert not rows


def test_signing_in_and_out_without_end_has_a_limit(served, engine, monkeypatch):
    """Each sign-out leaves a line in a file, which no quota counts."""
    monkeypatch.setattr(access, "MAX_PER_DAY", 30)
    token, other = (access.new_token(engine, "ann")[1] for _ in range(2))
    for _ in range(30):
        _, proof = begin(served, token)
        assert served.delete(SESSION, headers=proof).status_code == 200
    answer = served.post(SESSION, headers=shown(token))
    assert answer.status_code == 400 and "30 tokens, sessions or links with one token" in answer.text
    assert served.post(f"{SESSION}/codes", headers=shown(token)).status_code == 400
    begin(served, other)  # a stolen token does not keep its user out
    assert [each["kind"] for each in served.get("/api/v1/tokens", headers=shown(token)).json()].count("session") == 1
    with writing(engine) as session:
        session.execute(update(Token).where(Token.kind == "session").values(created=time.time() - 90_000))
    begin(served, token)
    with reading(engine) as session:
        assert len(session.scalars(select(Token).where(Token.kind == "session")).all()) <= 3


def test_a_code_expires(served, engine):
    token = access.new_token(engine, "ann")[1]
    code = served.post(f"{SESSION}/codes", headers=shown(token)).json()["path"].removeprefix("/sign-in#code=")
    with writing(engine) as session:
        session.execute(update(Token).where(Token.kind == "code").values(expires=time.time() - 1))
    assert served.post(SESSION, headers=shown(code)).status_code == 401


def test_sessions_are_not_the_last_token_of_an_administrator(served, engine, tmp_path):
    token = (tmp_path / "token").read_text().strip()
    _, proof = begin(served, token)
    own = served.get(SESSION, headers=shown(token)).json()["token"]
    answer = served.delete(f"/api/v1/tokens/{own}", headers=proof)
    assert answer.status_code == 409 and "last token of an administrator" in answer.text


def test_many_sessions_end_the_oldest(served, engine):
    token = access.new_token(engine, "ann")[1]
    proofs = []
    for _ in range(21):
        served.cookies.clear()
        _, proof = begin(served, token)
        proofs.append((dict(served.cookies), proof))
    time.sleep(2.1)  # valid callers are remembered for so long
    for (cookies, proof), status in ((proofs[0], 401), (proofs[1], 200), (proofs[-1], 200)):
        served.cookies.clear()
        served.cookies.update(cookies)
        assert served.get("/api/v1/jobs", headers=proof).status_code == status
    assert sum(each["kind"] == "token" for each in access.tokens_of(engine, "ann")) == 1


def test_a_narrow_token_ends_no_session_of_another_token(served, engine):
    _, proof = begin(served, access.new_token(engine, "ann")[1])
    cookies, narrow = dict(served.cookies), access.new_token(engine, "ann", ["read"])[1]
    code = code_of(served, access.new_token(engine, "ann")[1])
    for _ in range(25):
        begin(served, narrow)
    served.cookies.clear()
    served.cookies.update(cookies)
    time.sleep(2.1)  # valid callers are remembered for so long
    assert served.get(SESSION, headers=proof).status_code == 200
    assert served.post(SESSION, headers=shown(code)).status_code == 201
    assert sum(each["kind"] == "session" for each in access.tokens_of(engine, "ann")) == 22


def test_a_token_of_a_header_is_the_one_that_counts(served, engine, tmp_path):
    """A session in the browser does not lend its rights to a request that shows a token."""
    _, proof = begin(served, (tmp_path / "token").read_text().strip())
    headers = proof | shown(access.new_token(engine, "ann")[1])
    assert served.get(SESSION, headers=headers).json()["user"] == "ann"
    assert served.get(SESSION, headers=proof | {"Authorization": "Basic x"}).status_code in (200, 401)


@pytest.mark.parametrize(
    ("path", "body"),
    [("/tokens", {"day": 1}), ("/tokens", {"days": 1, "scope": ["read"]}), ("/users", {"name": "eve", "roles": "user"}),
     ("/webhooks", {"url": "https://x.example/", "secret": "s"})],
)  # fmt: skip
def test_a_name_that_is_misspelt_makes_nothing(served, engine, tmp_path, path, body):
    """A token of a day would be one of a year."""
    admin = shown((tmp_path / "token").read_text().strip())
    before = [served.get(f"/api/v1{each}", headers=admin).json() for each in ("/tokens", "/users", "/webhooks")]
    answer = served.post(f"/api/v1{path}", json=body, headers=admin)
    assert answer.status_code == 422 and "this name is unknown" in answer.text
    after = [served.get(f"/api/v1{each}", headers=admin).json() for each in ("/tokens", "/users", "/webhooks")]
    assert [[each.get("id") for each in part] for part in after] == [
        [each.get("id") for each in part] for part in before
    ]
