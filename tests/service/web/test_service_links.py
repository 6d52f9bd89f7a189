"""Links to results: what they show, and that they lead to nothing else."""

import io
import json
import re
import time
import zipfile

import pytest
from sqlalchemy import update
from starlette.testclient import TestClient

from mgclust.service.queue import access, revocations, sessions
from mgclust.service.queue.administration import change_user
from mgclust.service.queue.models import Job, Token, User, Webhook, open_database, reading, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

ID, OTHER = "a" * 32, "b" * 32


@pytest.fixture
def engine(tmp_path):
    return open_database(Settings(data=tmp_path).database)


@pytest.fixture
def app(tmp_path):
    return create_app(Settings(data=tmp_path, cpu=True))


@pytest.fixture
def served(app, engine, tmp_path):
    """A client that shows a token of ann, who has one finished job; another job is of bob."""
    access.first_token(engine, tmp_path)
    for name in ("ann", "bob"):
        access.add_user(engine, name, "user")
    for id_, owner in ((ID, "ann"), (OTHER, "bob")):
        folder = tmp_path / "jobs" / id_ / "attempt-1" / "result"
        folder.mkdir(parents=True)
        (folder / "report.html").write_text(f"<p>of {owner}</p>")
        (folder.parent / "log.txt").write_text("secret log")
        with writing(engine) as session:
            session.add(
                Job(
                    id=id_, owner=owner, method="canopy", request={"sources": [{"path": "/secret/place.npy"}]},
                    state="SUCCEEDED", created=1.0, started=2.0, finished=3.0, attempt=1, scores={"n_clusters": 3},
                    warnings=["careful."],
                )
            )  # fmt: skip
    with TestClient(app, raise_server_exceptions=False, headers=shown(access.new_token(engine, "ann")[1])) as http:
        yield http


def shown(token):
    return {"Authorization": f"Bearer {token}"}


@pytest.fixture
def link(served):
    return served.post(f"/api/v1/jobs/{ID}/links", json={"days": 2}).json()


@pytest.fixture
def guest(link):
    return shown(link["path"].removeprefix("/shared#"))


def test_a_link_shows_the_result(served, guest, link):
    told = served.get("/api/v1/shared", headers=guest).json()
    assert told["method"] == "canopy" and told["scores"] == {"n_clusters": 3} and told["warnings"] == ["careful."]
    assert told["files"] == [{"name": "report.html", "size": 13}]
    assert told["expires"] == link["expires"] == pytest.approx(time.time() + 2 * 86_400, abs=60)
    assert told.keys().isdisjoint({"name", "tags", "owner", "sweep", "id", "request"})  # as the page promises
    assert "secret" not in json.dumps(told) and "owner" not in told and "request" not in told
    assert served.get("/api/v1/shared/files/report.html", headers=guest).text == "<p>of ann</p>"
    assert told["names"]["n_clusters"] == "canopies"
    archive = zipfile.ZipFile(io.BytesIO(served.get("/api/v1/shared/files.zip", headers=guest).content))
    assert archive.read("canopy/report.html") == b"<p>of ann</p>"


def test_a_link_leads_to_nothing_else(served, guest, app):
    """Each operation of the description, and what is outside of it."""
    description = served.get("/api/v1/openapi.json").json()
    refused = 0
    for path, operations in description["paths"].items():
        if path.startswith("/api/v1/shared"):
            continue
        for method in operations:
            for id_ in (ID, OTHER):
                answer = served.request(method, re.sub(r"\{[^}]*\}", id_, path), headers=guest, json={})
                assert answer.status_code == 403, (method, path, answer.status_code, answer.text)
                assert "this link shows the result of one job" in answer.text
                refused += 1
    assert refused > 40
    assert served.get("/metrics", headers=guest).status_code == 403
    for name in ("../log.txt", "..%2flog.txt", "%2e%2e/log.txt", f"../../../{OTHER}/attempt-1/result/report.html"):
        assert served.get(f"/api/v1/shared/files/{name}", headers=guest).status_code == 404
    assert served.get("/api/v1/shared").status_code == 403  # the token of a user is no link


def test_a_link_ends(served, guest, link, engine, tmp_path):
    listed = served.get(f"/api/v1/jobs/{ID}/links").json()
    assert [each["id"] for each in listed] == [link["id"]] and "path" not in listed[0]
    assert served.delete(f"/api/v1/jobs/{OTHER}/links/{link['id']}").status_code == 404
    assert served.delete(f"/api/v1/jobs/{ID}/links/{link['id']}").status_code == 200
    assert served.get("/api/v1/shared", headers=guest).status_code == 401  # at once
    assert served.get(f"/api/v1/jobs/{ID}/links").json() == []
    assert link["id"] in (tmp_path / "revocations").read_text()  # a restored backup revokes it again

    later = shown(served.post(f"/api/v1/jobs/{ID}/links", json={}).json()["path"].removeprefix("/shared#"))
    with writing(engine) as session:
        session.execute(update(Token).where(Token.kind == "link").values(expires=time.time() - 1))
    assert served.get("/api/v1/shared", headers=later).status_code == 401


def test_a_link_of_a_deleted_job(served, guest, link, engine, tmp_path):
    others = [served.post(f"/api/v1/jobs/{ID}/links", json={}).json()["id"] for _ in range(2)]
    assert served.delete(f"/api/v1/jobs/{ID}/links/{others[0]}").status_code == 200
    assert served.delete(f"/api/v1/jobs/{ID}").status_code == 200
    assert served.get("/api/v1/shared", headers=guest).status_code == 401
    assert served.get("/api/v1/shared/files/report.html", headers=guest).status_code == 401
    kept = [json.loads(line)["session"] for line in (tmp_path / "revocations").read_text().splitlines()]
    assert sorted(kept) == sorted([link["id"], *others])  # a restored backup brings back the job, but no link
    with writing(engine) as session:
        session.execute(update(Token).where(Token.kind == "link").values(revoked=None))
    revocations.reapply(engine, tmp_path)
    assert access.tokens_of(engine, "ann") and all(each["revoked"] for each in access.tokens_of(engine, "ann")
                                                   if each["kind"] == "link")  # fmt: skip


def test_who_may_share(served, engine):
    assert served.post(f"/api/v1/jobs/{OTHER}/links", json={}).status_code == 404
    for scopes in (["read"], ["submit"]):  # a token that may not read would read by its link
        narrow = shown(access.new_token(engine, "ann", scopes)[1])
        assert served.post(f"/api/v1/jobs/{ID}/links", json={}, headers=narrow).status_code == 403


def test_bounds(served):
    for days in (0, -1, 366, 1e300):
        answer = served.post(f"/api/v1/jobs/{ID}/links", json={"days": days})
        assert answer.status_code == 400 and "should be > 0 and <= 365" in answer.text
    for _ in range(20):
        assert served.post(f"/api/v1/jobs/{ID}/links", json={}).status_code == 201
    assert "the maximum" in served.post(f"/api/v1/jobs/{ID}/links", json={}).text


def test_the_database_has_only_the_hash(served, guest, engine, tmp_path):
    secret = guest["Authorization"].split()[1]
    with reading(engine) as session:
        assert session.query(Token).filter(Token.sha256 == access.hash_of(secret)).count() == 1
    assert not any(secret.encode() in path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())


def test_links_are_audited(served, guest, link, app, tmp_path):
    served.get("/api/v1/shared", headers=guest)
    served.get("/api/v1/shared/files/report.html", headers=guest)
    app.state.backend.engine.dispose()
    end = time.time() + 10
    while time.time() < end:
        log = tmp_path / "audit.log"  # a thread writes it
        lines = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
        if {"make_link", "shared", "shared_file"} <= {line["action"] for line in lines}:
            break
        time.sleep(0.05)
    by_action = {line["action"]: line for line in lines}
    assert by_action["make_link"]["user"] == "ann" and by_action["make_link"]["link"] == link["id"]
    assert by_action["shared_file"]["user"] == f"link {link['id']}"


def test_the_page_of_a_link(served):
    page = served.get("/shared")
    assert (
        page.headers["referrer-policy"] == "no-referrer"
        and "frame-ancestors 'none'" in page.headers["content-security-policy"]
    )


@pytest.mark.parametrize("by_session", [False, True])
def test_what_a_stolen_token_made_ends_with_its_revocation(served, engine, tmp_path, by_session):
    """Not with its expiry: a link may outlive the token."""
    id_, token = access.new_token(engine, "ann", days=1.0)
    thief = shown(token)
    if by_session:
        thief = {"X-Mgclust-Proof": served.post("/api/v1/session", headers=thief).json()["proof"], "Authorization": ""}
    made = served.post(f"/api/v1/jobs/{ID}/links", json={"days": 300}, headers=thief).json()
    guest = shown(made["path"].removeprefix("/shared#"))
    served.post("/api/v1/webhooks", json={"url": "https://evil.example/"}, headers=thief)
    served.post("/api/v1/webhooks", json={"url": "https://good.example/"})
    with writing(engine) as session:
        session.execute(update(Token).where(Token.id == id_).values(expires=time.time() - 1))
    assert served.get("/api/v1/shared", headers=guest).status_code == 200
    assert len(served.get("/api/v1/webhooks").json()) == 2
    assert served.delete(f"/api/v1/tokens/{id_}").status_code == 200
    assert served.get("/api/v1/shared", headers=guest).status_code == 401  # at once
    assert [each["url"] for each in served.get("/api/v1/webhooks").json()] == ["https://good.example/"]
    # A restored backup has them again, until the service starts.
    with writing(engine) as session:
        session.execute(update(Token).where(Token.origin == id_).values(revoked=None))
        session.execute(update(Webhook).values(origin=id_))
    revocations.reapply(engine, tmp_path)
    time.sleep(2.1)  # valid callers are remembered for so long
    assert served.get("/api/v1/shared", headers=guest).status_code == 401
    assert served.get("/api/v1/webhooks").json() == []


def test_a_link_of_a_disabled_user(served, engine, guest):
    with writing(engine) as session:
        session.get(User, "ann").disabled = time.time()
    time.sleep(2.1)  # valid callers are remembered for so long
    assert served.get("/api/v1/shared", headers=guest).status_code == 401


def test_links_count_for_the_user_who_made_them(served, engine):
    """Connections, open requests, bodies and rates have limits per user, which no number of links may multiply."""
    made = [served.post(f"/api/v1/jobs/{ID}/links", json={"days": 2}).json()["path"].split("#")[1] for _ in range(2)]
    callers = access.find_callers(engine, [access.hash_of(secret) for secret in made])
    assert {caller.counted_as for caller in callers} == {"links of ann"}  # and not for ann: guests keep nobody out
    assert len({caller.name for caller in callers}) == 2


def test_links_of_a_user_share_a_rate(served, app, engine, tmp_path):
    made = [served.post(f"/api/v1/jobs/{ID}/links", json={"days": 2}).json()["path"].split("#")[1] for _ in range(2)]
    with TestClient(create_app(Settings(data=tmp_path, cpu=True, rate_per_token=0.1))) as http:
        answers = [http.get("/api/v1/shared", headers=shown(made[i % 2])).status_code for i in range(4)]
    assert answers == [200, 200, 429, 429]


def test_a_disabled_user_is_rejected_at_once(served, engine, tmp_path):
    admin = shown((tmp_path / "token").read_text().strip())
    assert served.get("/api/v1/jobs").status_code == 200
    assert served.patch("/api/v1/users/ann", json={"disabled": True}, headers=admin).status_code == 200
    assert served.get("/api/v1/jobs").status_code == 401


def test_a_used_code_stays_used_after_a_restore(served, engine, tmp_path):
    code = served.post("/api/v1/session/codes").json()["path"].split("=")[1]
    assert served.post("/api/v1/session", headers=shown(code)).status_code == 201
    with writing(engine) as session:  # the backup knows the code as unused
        session.execute(update(Token).where(Token.sha256 == access.hash_of(code)).values(revoked=None))
    revocations.reapply(engine, tmp_path)
    assert isinstance(access.find_callers(engine, [access.hash_of(code)])[0], access.Unauthorized)


def test_what_a_session_made_outlives_its_end(served, engine, tmp_path):
    code = sessions.new_code(engine, "ann")
    proof = served.post("/api/v1/session", headers=shown(code)).json()["proof"]
    session = {"Authorization": "", "X-Mgclust-Proof": proof}
    revocations.reapply(engine, tmp_path)  # as a start does, for which the code is used
    made = served.post(f"/api/v1/jobs/{ID}/links", json={"days": 300}, headers=session)
    assert made.status_code == 201
    assert served.delete("/api/v1/session", headers=session).status_code == 200
    revocations.reapply(engine, tmp_path)
    secret = made.json()["path"].removeprefix("/shared#")
    assert access.find_callers(engine, [access.hash_of(secret)])[0].kind == "link"
    assert served.get("/api/v1/jobs", headers=session).status_code == 401


def test_an_administrator_whose_token_alone_lasts_is_not_disabled(served, engine, tmp_path):
    first = access.find_callers(engine, [access.hash_of((tmp_path / "token").read_text().strip())])[0]
    access.add_user(engine, "eve", "admin")
    access.new_token(engine, "eve", days=0.01)
    with pytest.raises(access.LastToken, match="last token of an administrator"):
        change_user(engine, tmp_path, first.name, {"disabled": True})
    access.new_token(engine, "eve", days=2.0)
    assert change_user(engine, tmp_path, first.name, {"disabled": True})


def test_a_token_that_ends_soon_does_not_replace_the_last_one(served, engine, tmp_path):
    first = access.find_callers(engine, [access.hash_of((tmp_path / "token").read_text().strip())])[0]
    access.new_token(engine, first.name, days=0.01)
    with pytest.raises(access.LastToken, match="create another"):
        access.revoke(engine, first.token)
    access.new_token(engine, first.name, days=2.0)
    assert access.revoke(engine, first.token)
