"""Floods without a valid token: they lock out no token, and cost little."""

from __future__ import annotations

import asyncio

import httpx
import pytest
from sqlalchemy import Engine, event
from starlette.testclient import TestClient

from mgclust.base.errors import InputError
from mgclust.service.addresses import Proxies, network
from mgclust.service.queue import access
from mgclust.service.queue.models import migrate, open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.perimeter.callers import Callers


def served(tmp_path, **given):
    settings = Settings(data=tmp_path, cpu=True, **given)
    app, engine = create_app(settings), open_database(settings.database)
    return app, engine, access.first_token(engine, tmp_path).read_text().strip()


def shown(token, **more):
    return {"Authorization": f"Bearer {token}", **more}


@pytest.mark.parametrize("guess", [{}, shown("mgc_guess"), shown("mgc_" + "x" * 43)], ids=["none", "form", "token"])
def test_a_fresh_token_is_let_in_during_a_flood(tmp_path, guess):
    """From an address whose requests without a valid token are more than it may send."""
    app, engine, token = served(tmp_path, rate_per_address=0.1)
    with TestClient(app) as http:
        codes = [http.get("/api/v1/jobs", headers=guess).status_code for _ in range(10)]
        assert codes[-1] == 429
        assert http.get("/api/v1/jobs", headers=shown(token)).status_code == 200
        access.add_user(engine, "ann", "user")
        for _ in range(3):
            fresh = access.new_token(engine, "ann")[1]
            assert http.get("/api/v1/jobs", headers=shown(fresh)).status_code == 200
        assert http.get("/").status_code == 200  # the form into which a token is typed
        assert http.get("/healthz").status_code == 200


def test_pages_have_a_limit_as_well(tmp_path):
    app, _, token = served(tmp_path, rate_per_address=0.1)
    with TestClient(app) as http:
        codes = [http.get("/").status_code for _ in range(10)]
        assert (codes[0], codes[-1]) == (200, 429)
        assert http.get("/api/v1/jobs", headers=shown(token)).status_code == 200


def test_invented_tokens_cost_few_queries(tmp_path):
    engine = open_database(f"sqlite:///{tmp_path / 'service.db'}")
    migrate(engine)
    token = access.first_token(engine, tmp_path).read_text().strip()
    sent = []
    event.listen(engine, "before_cursor_execute", lambda *given: sent.append(given[2]))
    known = Callers(engine)

    async def ask(shown):
        return await asyncio.gather(*(known(each) for each in shown), return_exceptions=True)

    async def main():
        assert (await known(token)).name == "admin"
        sent.clear()
        answers = await ask([f"mgc_{i:043d}" for i in range(1000)])
        assert all(isinstance(answer, access.Unauthorized) for answer in answers)
        assert 0 < len([each for each in sent if "FROM tokens" in each]) <= 11
        sent.clear()
        assert (await known(token)).name == "admin"
        answers = await ask(["mgc_guess", "x" * 10_000, "", "mgc_" + "é" * 43])
        assert all(isinstance(answer, access.Unauthorized) for answer in answers)
        assert not sent  # what is known, and what is no token

    asyncio.run(main())


@pytest.mark.parametrize(
    ("peer", "headers", "address"),
    [
        ("9.9.9.9", {"X-Forwarded-For": "1.1.1.1"}, "9.9.9.9"),  # no proxy that is trusted
        ("10.0.0.1", {}, "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "1.1.1.1"}, "1.1.1.1"),
        ("10.0.0.1", {"X-Forwarded-For": "6.6.6.6, 1.1.1.1"}, "1.1.1.1"),  # the first was written by the client
        ("10.0.0.1", {"X-Forwarded-For": "6.6.6.6, 1.1.1.1, 10.0.0.2"}, "1.1.1.1"),
        ("10.0.0.1", {"X-Forwarded-For": "10.0.0.2"}, "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "1.1.1.1, nonsense"}, "10.0.0.1"),
        ("10.0.0.1", {"Forwarded": "for=6.6.6.6", "X-Forwarded-For": "1.1.1.1"}, "1.1.1.1"),  # the client's
        ("10.0.0.1", {"Forwarded": "for=1.1.1.1"}, "10.0.0.1"),
        ("10.0.0.1", {"X-Forwarded-For": "[2001:db8::1]:443"}, "2001:db8::1"),
        ("10.0.0.1", {"X-Forwarded-For": "1.1.1.1:443"}, "1.1.1.1"),
        ("::ffff:10.0.0.1", {"X-Forwarded-For": "1.1.1.1"}, "1.1.1.1"),
    ],
)
def test_only_trusted_proxies_say_where_a_request_is_from(peer, headers, address):
    proxies = Proxies("10.0.0.0/8, fd00::1")
    raw = [(name.lower().encode(), value.encode()) for name, value in headers.items()]
    assert proxies.client_of({"type": "http", "client": (peer, 1), "headers": raw}) == address


def test_addresses_behind_a_proxy_have_limits_of_their_own(tmp_path):
    for trusted, second in (("10.0.0.1", 401), ("", 429)):
        folder = tmp_path / (trusted or "none")
        folder.mkdir()
        app, *_ = served(folder, rate_per_address=0.1, trusted_proxies=trusted)
        with TestClient(app, client=("10.0.0.1", 1)) as http:
            flood = [http.get("/api/v1/jobs", headers={"X-Forwarded-For": "6.6.6.6"}).status_code for _ in range(9)]
            assert flood[-1] == 429
            assert http.get("/api/v1/jobs", headers={"X-Forwarded-For": "1.1.1.1"}).status_code == second


def test_one_network_is_one_address():
    assert network("2001:db8::1") == network("2001:db8::ffff:1") != network("2001:db8:0:1::1")
    assert network("::ffff:1.2.3.4") == "1.2.3.4"  # IPv4 where the service listens for both


def test_proxies_that_are_none(tmp_path):
    with pytest.raises(InputError, match=r"trusted_proxies='10\.0\.0\.1/8'"):
        Settings(data=tmp_path, trusted_proxies="10.0.0.1/8")


def test_many_requests_for_health_are_few_queries(tmp_path):
    app, *_ = served(tmp_path)
    running, sent = [], []

    async def main():
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as http:
            answers = await asyncio.gather(*(http.get("/healthz") for _ in range(200)))
            running.extend(answer.status_code for answer in answers)

    def count(*given):
        if given[2] == "SELECT 1":
            sent.append(given[2])

    event.listen(Engine, "before_cursor_execute", count)
    try:
        asyncio.run(main())
    finally:
        event.remove(Engine, "before_cursor_execute", count)
    assert running == [200] * 200
    assert 0 < len(sent) <= 20  # 100 at once, those that come meanwhile together after them


def test_no_redirect_names_the_host_that_a_request_names(tmp_path):
    app, _, token = served(tmp_path)
    with TestClient(app, base_url="http://evil.example", follow_redirects=False) as http:
        for path in ("/healthz/", "/metrics/", "/api/v1/jobs/", "/api/v1/methods/", "/jobs/x/"):
            answer = http.get(path, headers=shown(token))
            assert (answer.status_code, "location" in answer.headers) == (404, False), path
