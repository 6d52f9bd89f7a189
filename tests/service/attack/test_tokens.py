"""Tokens that expire, that may do one thing only, and what their users may make of them."""

from __future__ import annotations

import re
import time

import pytest
from starlette.testclient import TestClient

from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.service.queue import access
from mgclust.service.queue.models import Token, open_database, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.perimeter import callers
from support.service_process import Running
from support.time_of_day import set_time

ADMINISTRATION = ("users", "tokens", "admin")
READING = ("centers", "compare")  # sent by POST, and changes nothing


@pytest.fixture
def engine(tmp_path):
    return open_database(Settings(data=tmp_path).database)


@pytest.fixture
def served(tmp_path):
    settings = Settings(data=tmp_path, cpu=True)
    app = create_app(settings)
    engine = open_database(settings.database)
    access.first_token(engine, tmp_path)
    access.add_user(engine, "ann", "user")
    with TestClient(app, raise_server_exceptions=False) as http:
        yield http


def shown(engine, user, scopes=None, days=access.DEFAULT_DAYS):
    return {"Authorization": f"Bearer {access.new_token(engine, user, scopes, days)[1]}"}


def change(engine, id_, **values):
    with writing(engine) as session:
        token = session.get(Token, id_)
        for name, value in values.items():
            setattr(token, name, value)


def test_a_token_expires_while_it_is_cached(served, engine, monkeypatch):
    monkeypatch.setattr(callers, "VALID_SECONDS", 600.0)
    _, token = access.new_token(engine, "ann", days=1.0)
    mine = {"Authorization": f"Bearer {token}"}
    assert served.get("/api/v1/jobs", headers=mine).status_code == 200
    (told,) = access.tokens_of(engine, "ann")
    assert told["expires"] == pytest.approx(time.time() + 86_400, abs=60)
    assert told["scopes"] == ["read", "submit"]
    set_time(monkeypatch, lambda: time.time() + 86_390)
    assert served.get("/api/v1/jobs", headers=mine).status_code == 200
    set_time(monkeypatch, lambda: time.time() + 86_410)
    refused = served.get("/api/v1/jobs", headers=mine)
    assert refused.status_code == 401
    assert re.match(r"this token expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC; ask", refused.json()["error"])


def test_a_token_of_some_scopes_does_nothing_else(served, engine):
    """Each operation of the description, with a token for each scope: let in by its own, refused by all others."""
    whole = shown(engine, "admin")
    description = served.get("/api/v1/openapi.json", headers=whole).json()
    by_scope = {scope: shown(engine, "admin", [scope]) for scope in access.SCOPES}
    seen = 0
    for path, operations in description["paths"].items():
        for method in operations:
            part = path.removeprefix("/api/v1/").split("/")
            if part[0] in ADMINISTRATION and (part[0], method) != ("tokens", "get"):
                needed = "admin"
            else:
                needed = "read" if method == "get" or part[-1] in READING else "submit"
            if part[0] == "tokens" and method in ("post", "delete"):
                continue  # see below: of oneself, by a whole token
            if path == "/api/v1/tokens/{user}" or part[0] in ("session", "shared"):  # of any scope; of links
                continue
            seen += 1
            for scope, headers in by_scope.items():
                url = re.sub(r"\{[^}]*\}", "0" * 32, path)
                answer = served.request(method, url, headers=headers, json={})
                # The first computes on a result, and the second shows it to others.
                both = part[-1] == "save" or (part[-1], method) in (("links", "post"), ("webhooks", "post"))
                assert (answer.status_code == 403) == (both or scope != needed), (method, path, scope, answer.text)
                if answer.status_code == 403 and not both:
                    assert f"but this request needs {needed}" in answer.json()["error"]
    assert seen >= 15


def test_scopes_end_at_the_role(served, engine):
    with pytest.raises(InputError, match=r"scopes=\['admin'\] should be some of 'read', 'submit'"):
        access.new_token(engine, "ann", ["admin"])
    for wrong in ([], ["write"], ["read", "all"]):
        with pytest.raises(InputError, match="scopes="):
            access.new_token(engine, "ann", wrong)
    id_, token = access.new_token(engine, "ann")
    change(engine, id_, scopes="read submit admin")  # even if the database says so
    headers = {"Authorization": f"Bearer {token}"}
    assert served.get("/api/v1/users", headers=headers).status_code == 403
    assert served.get("/metrics", headers=headers).status_code == 403


def test_an_administrators_narrow_token_does_not_see_all(served, engine):
    upload = served.put("/api/v1/uploads/x.npy", content=b"x", headers=shown(engine, "ann")).json()["id"]
    for scopes, sees in ((["read"], False), (["read", "submit"], False), (["read", "admin"], True)):
        found = served.get("/api/v1/uploads", headers=shown(engine, "admin", scopes)).json()
        assert (upload in [each["id"] for each in found]) == sees


def test_what_needs_a_token(served, engine):
    for path in ("/metrics", "/api/v1/openapi.json", "/api/v1/nothing"):
        assert served.get(path).status_code == 401
    assert served.get("/healthz").status_code == 200
    assert served.get("/api/v1/openapi.json", headers=shown(engine, "ann", ["submit"])).status_code == 200
    assert served.get("/metrics", headers=shown(engine, "ann")).status_code == 403
    assert b"mgclust_jobs" in served.get("/metrics", headers=shown(engine, "admin", ["read"])).content


def test_users_make_narrower_tokens_of_their_own(served, engine):
    mine = shown(engine, "ann", days=10)
    made = served.post("/api/v1/tokens", headers=mine, json={"scopes": ["read"], "days": 300}).json()
    assert made["user"] == "ann"
    narrow = {"Authorization": f"Bearer {made['token']}"}
    told = {each["id"]: each for each in served.get("/api/v1/tokens", headers=narrow).json()}
    assert told[made["id"]]["scopes"] == ["read"]
    assert told[made["id"]]["expires"] < time.time() + 10.1 * 86_400  # not after the one that made it
    for headers, wanted in (
        (narrow, {"scopes": ["read"]}),
        (mine, {"user": "admin"}),
        (mine, {"days": None}),
        (shown(engine, "admin", ["read", "submit"]), {"user": "ann"}),
    ):
        assert served.post("/api/v1/tokens", headers=headers, json=wanted).status_code == 403
    assert served.post("/api/v1/tokens", headers=mine, json={"scopes": ["admin"]}).status_code == 400
    assert served.get("/api/v1/tokens/admin", headers=mine).status_code == 403
    (admins,) = [each for each in access.tokens_of(engine, "admin") if each["expires"] is None]
    for headers, id_ in ((narrow, made["id"]), (mine, admins["id"])):
        assert served.delete(f"/api/v1/tokens/{id_}", headers=headers).status_code == 404
    assert served.delete(f"/api/v1/tokens/{made['id']}", headers=mine).status_code == 200
    assert served.get("/api/v1/jobs", headers=narrow).status_code == 401  # at once


def test_no_token_makes_one_that_does_more_or_lives_longer(served, engine):
    access.add_user(engine, "root", "admin")
    day = 86_400.0
    short, narrow = shown(engine, "admin", days=1), shown(engine, "admin", ["admin"], days=None)
    never = shown(engine, "admin", days=None)
    refused = (
        (short, {"days": None}, "cannot create a token that never expires"),
        (short, {"user": "ann", "days": None}, "cannot create a token that never expires"),
        (narrow, {}, "this token, which lacks read, submit"),
        (narrow, {"scopes": ["read"]}, "this token, which lacks read;"),
        (narrow, {"user": "root"}, "this token, which lacks read, submit"),
    )
    for headers, wanted, says in refused:
        answer = served.post("/api/v1/tokens", headers=headers, json=wanted)
        assert (answer.status_code, says in answer.json()["error"]) == (403, True), (wanted, answer.text)
    made = (
        (short, {}, 1),
        (short, {"user": "ann", "days": 300}, 1),
        (short, {"user": "ann", "days": 0.5}, 0.5),
        (narrow, {"scopes": ["admin"]}, 365),
        (narrow, {"user": "ann", "days": None}, None),
        (never, {"user": "root", "days": None}, None),
    )
    for headers, wanted, days in made:
        answer = served.post("/api/v1/tokens", headers=headers, json=wanted)
        assert answer.status_code == 201, (wanted, answer.text)
        told = answer.json()
        (kept,) = [each for each in access.tokens_of(engine, told["user"]) if each["id"] == told["id"]]
        assert told["expires"] == kept["expires"]
        if days is None:
            assert told["expires"] is None
        else:
            assert time.time() + (days - 0.01) * day < told["expires"] <= time.time() + days * day
    answer = served.post("/api/v1/tokens", headers=never, json={"user": "nobody"})
    assert (answer.status_code, "does not exist" in answer.json()["error"]) == (400, True)


def test_a_token_that_only_submits_reads_no_job(served, engine):
    whole, submits = shown(engine, "ann"), shown(engine, "ann", ["submit"])
    upload = served.put("/api/v1/uploads/x.npy", content=b"x", headers=submits).json()["id"]
    job = {"method": "density-peaks", "sources": [{"upload": upload}], "key": "k"}
    known = served.post("/api/v1/jobs", headers=whole, json=job).json()
    assert known["request"]["sources"]
    id_ = known["id"]
    asked = [
        ("POST", "/jobs", job, "PENDING"),  # the same key again
        ("POST", "/jobs", job | {"key": "other"}, "PENDING"),
        ("POST", f"/jobs/{id_}/cancel", None, "CANCELLED"),
        ("POST", f"/jobs/{id_}/retry", None, "PENDING"),
        ("POST", f"/jobs/{id_}/cancel", None, "CANCELLED"),
        ("DELETE", f"/jobs/{id_}", None, "CANCELLED"),
    ]
    for method, path, body, state in asked:
        answer = served.request(method, f"/api/v1{path}", headers=submits, json=body)
        assert answer.is_success, answer.text
        assert answer.json() == {"id": answer.json()["id"], "method": "density-peaks", "state": state}
    answer = served.post(f"/api/v1/jobs/{id_}/centers/save", headers=submits, json={})
    assert (answer.status_code, "needs read" in answer.json()["error"]) == (403, True)
    again = served.post("/api/v1/jobs", headers=whole, json=job).json()
    for path in ("cancel", "retry", "cancel"):
        answer = served.post(f"/api/v1/jobs/{again['id']}/{path}", headers=whole)
        assert answer.json()["request"] == again["request"]
    assert served.delete(f"/api/v1/jobs/{again['id']}", headers=whole).json()["request"] == again["request"]


def test_a_token_that_expires_in_the_database(served, engine, monkeypatch):
    monkeypatch.setattr(callers, "VALID_SECONDS", 0.0)
    id_, token = access.new_token(engine, "ann", days=1.0)
    mine = {"Authorization": f"Bearer {token}"}
    assert served.get("/api/v1/jobs", headers=mine).status_code == 200
    change(engine, id_, expires=time.time() - 1)
    assert served.get("/api/v1/jobs", headers=mine).status_code == 401


def test_a_token_that_is_revoked_elsewhere_is_refused_soon(served, engine, monkeypatch):
    assert callers.VALID_SECONDS <= 2
    monkeypatch.setattr(callers, "VALID_SECONDS", 0.1)
    id_, token = access.new_token(engine, "ann")
    mine = {"Authorization": f"Bearer {token}"}
    assert served.get("/api/v1/jobs", headers=mine).status_code == 200
    access.revoke(engine, id_)
    time.sleep(0.11)
    assert served.get("/api/v1/jobs", headers=mine).status_code == 401


def test_when_no_administrator_has_a_token_a_start_makes_one(served, engine, tmp_path):
    first = (tmp_path / "token").read_text()
    access.first_token(engine, tmp_path)
    assert (tmp_path / "token").read_text() == first
    access.new_token(engine, "admin", ["read", "submit"])  # by which no other can be made
    for told in access.tokens_of(engine, "admin"):
        if "admin" in told["scopes"]:
            change(engine, told["id"], expires=time.time() - 1)
    second = access.first_token(engine, tmp_path).read_text()
    assert second != first
    assert served.get("/api/v1/users", headers={"Authorization": f"Bearer {second.strip()}"}).status_code == 200
    assert oct((tmp_path / "token").stat().st_mode & 0o777) == "0o600"


def test_the_last_whole_token_of_an_administrator_stays(served, engine):
    headers = shown(engine, "admin")
    access.new_token(engine, "admin", ["read"])
    whole = [each["id"] for each in access.tokens_of(engine, "admin") if "admin" in each["scopes"]]
    codes = [served.delete(f"/api/v1/tokens/{id_}", headers=headers).status_code for id_ in whole]
    assert codes == [200, 409]


def test_uses_are_written_down(served, engine):
    id_, _ = access.new_token(engine, "ann")
    access.record_use(engine, [id_, "0" * 16])
    (told,) = [each for each in access.tokens_of(engine, "ann") if each["id"] == id_]
    assert told["used"] == pytest.approx(time.time(), abs=60)


def test_tokens_that_have_ended_do_not_pile_up(engine, served, monkeypatch):
    """No quota counts them, and a list shows them all. Those of the last day are kept, because a limit counts them."""
    monkeypatch.setattr(access, "MAX_TOKENS", 2)
    monkeypatch.setattr(access, "MAX_PER_DAY", 8)
    begun = time.time() - 2 * access.DAY_SECONDS
    access.add_user(engine, "bob", "user")
    others, _ = access.new_token(engine, "bob")
    change(engine, others, revoked=time.time())
    alive, _ = access.new_token(engine, "ann")
    ended = []
    change(engine, alive, created=begun)
    for k, values in enumerate(({"revoked": 1.0}, {"expires": 1.0}) * 3):
        ended.append(access.new_token(engine, "ann")[0])
        change(engine, ended[-1], created=begun + 1 + k, **values)
    assert [token["id"] for token in access.tokens_of(engine, "ann")] == [alive, *ended[-3:]]
    for _ in range(8):
        assert access.revoke(engine, access.new_token(engine, "ann")[0])
    with pytest.raises(InputError, match="user='ann' has created 8 tokens, sessions or links with one token"):
        access.new_token(engine, "ann")
    assert len(access.tokens_of(engine, "bob")) == 1


@pytest.mark.parametrize("days", [0.0, -1.0, float("nan"), float("inf"), 1e9])
def test_days_that_are_none(served, engine, days):
    with pytest.raises(InputError, match="days="):
        access.new_token(engine, "ann", days=days)


@pytest.mark.slow
@pytest.mark.timeout(120)
def test_the_commands(tmp_path, monkeypatch, capsys):
    running = Running(tmp_path, ["--no-runner"])
    try:
        monkeypatch.setenv("MGCLUST_URL", running.url)
        monkeypatch.setenv("MGCLUST_TOKEN", (running.data / "token").read_text().strip())
        assert run_command(["user", "create", "ann"]) == 0
        assert run_command(["user", "create", "ann"]) == 2
        assert "is taken" in capsys.readouterr().err
        assert run_command(["user", "list"]) == 0
        assert re.search(r"^ann\s+user\s+0 ", capsys.readouterr().out, re.MULTILINE)
        assert run_command(["token", "create", "ann", "--scope", "read", "--days", "2"]) == 0
        token, told = capsys.readouterr()
        assert access.TOKEN_PATTERN.fullmatch(token.strip())
        assert "expires" in told
        assert token.strip() not in told
        assert run_command(["token", "list", "ann"]) == 0
        (line,) = capsys.readouterr().out.splitlines()
        assert "read" in line
        assert "submit" not in line
        monkeypatch.setenv("MGCLUST_TOKEN", token.strip())
        assert run_command(["jobs"]) == 0
        assert run_command(["user", "list"]) == 2
        assert "only an administrator" in capsys.readouterr().err
        monkeypatch.setenv("MGCLUST_TOKEN", (running.data / "token").read_text().strip())
        assert run_command(["token", "revoke", line.split()[0]]) == 0
        assert run_command(["token", "revoke", "0" * 16]) == 2
        assert run_command(["token", "revoke", "../users"]) == 2
        capsys.readouterr()
        assert run_command(["token", "create", "--days", "never"]) == 0
        assert run_command(["token", "list", "--json"]) == 0
    finally:
        running.stop()
