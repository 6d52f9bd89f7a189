"""Bodies of senders with a token that are long, many at once, or made of very many parts."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from starlette.testclient import TestClient

from mgclust.service.queue import access
from mgclust.service.queue.access import Caller
from mgclust.service.queue.models import open_database
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app
from mgclust.service.web.perimeter import bodies
from mgclust.service.web.perimeter.bodies import (
    LONG_BODIES,
    LONG_BODIES_PER_USER,
    MAX_BODY_BYTES,
    MAX_DELIMITERS,
    SHORT_BODY_BYTES,
    ShortBodies,
)
from mgclust.service.web.requests import MAX_RECORD_BYTES as LONGEST_RECORD


@pytest.fixture(scope="module")
def http(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bodies")
    settings = Settings(data=folder, cpu=True)
    app = create_app(settings)
    token = access.first_token(open_database(settings.database), folder).read_text().strip()
    with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as client:
        yield client


def job(**more):
    return {"method": "density-peaks", "sources": [{"path": "x"}]} | more


@pytest.mark.parametrize(
    ("body", "status", "sentence"),
    [
        (job(**{f"k{i}": 1 for i in range(35_000)}), 413, f"at most {MAX_DELIMITERS} commas"),
        (job(parameters={"a": [[]] * 120_000}), 413, f"at most {MAX_DELIMITERS} commas"),
        (job(**{f"k{i}": 1 for i in range(9_000)}), 422, "9002 names should be at most"),
        (job(parameters={f"k{i:070}": 1 for i in range(5_000)}), 422, "parameters: "),
        (job(sources=[{"path": "x", "name": "y"}] * 1000), 400, "x"),  # as many as are allowed: only not there
        (job(key="x" * MAX_BODY_BYTES), 413, f"at most {MAX_BODY_BYTES} bytes"),
    ],
    ids=["names", "lists", "fewer names", "parameters", "sources", "long"],
)
def test_a_body_of_many_parts(http, body, status, sentence):
    sent = json.dumps(body, separators=(",", ":"))
    begun = time.process_time()
    answer = http.post("/api/v1/jobs", content=sent, headers={"Content-Type": "application/json"})
    assert time.process_time() - begun < 1.5
    assert answer.status_code == status, answer.text
    assert sentence in answer.json()["error"]
    assert len(answer.content) < 1000


@pytest.mark.parametrize(("method", "path"), [("PUT", "/uploads/abc/pin"), ("DELETE", "/uploads/abc")])
@pytest.mark.parametrize(
    ("body", "sentence"),
    [(b" " * (MAX_BODY_BYTES + 1), "bytes"), (b"[" * (MAX_DELIMITERS + 1), "commas")],
    ids=["long", "delimiters"],
)
def test_only_the_content_of_an_upload_is_unbounded(http, method, path, body, sentence):
    answer = http.request(method, f"/api/v1{path}", content=body, headers={"Content-Type": "application/json"})
    assert answer.status_code == 413 and sentence in answer.json()["error"]


def test_one_route_receives_uploads(http):
    """The bounds and the router agree on which requests are uploads."""
    for path, methods in http.app.openapi()["paths"].items():
        named = path.replace("{", "").replace("}", "")
        for method, described in methods.items():
            found = bodies.is_upload({"method": method.upper(), "path": named})
            assert found == described["operationId"].startswith("upload_"), (method, path)


def test_what_is_allowed_is_not_too_much():
    centers = json.dumps({"indices": list(range(10**9, 10**9 + 10_000))}, indent=1).encode()
    assert sum(map(centers.count, bodies.DELIMITERS)) < MAX_DELIMITERS
    assert len(centers) < MAX_BODY_BYTES
    assert 2 * LONGEST_RECORD <= MAX_BODY_BYTES


@pytest.mark.slow
@pytest.mark.parametrize("said", [True, False], ids=["length", "chunks"])
@pytest.mark.parametrize("users", [1, 14])
def test_long_bodies_in_memory_are_bounded(monkeypatch, users, said):
    """Of all users together; those that wait have not been read, and are refused in the end."""
    monkeypatch.setattr(bodies, "WAIT_SECONDS", 0.5)
    read, most, told = [0] * (users * 16), [], []
    long_ones = min(users * LONG_BODIES_PER_USER, LONG_BODIES)

    async def answered(scope, receive, send):
        raise AssertionError("no body is whole")

    async def main():
        app, never = ShortBodies(answered), asyncio.Event()

        async def request(number):
            async def receive():
                if read[number] > MAX_BODY_BYTES // 2:
                    await never.wait()
                read[number] += 4096
                return {"type": "http.request", "body": b" " * 4096, "more_body": True}

            async def send(message):
                if message["type"] == "http.response.start":
                    told.append(message["status"])

            caller = Caller(f"user{number % users}", "user", frozenset({"submit"}), "id", None)
            headers = [(b"content-length", b"%d" % MAX_BODY_BYTES)] if said else []
            scope = {
                "type": "http", "method": "POST", "path": "/api/v1/jobs", "headers": headers,
                "state": {"caller": caller},
            }  # fmt: skip
            await app(scope, receive, send)

        tasks = [asyncio.create_task(request(number)) for number in range(len(read))]
        async with asyncio.timeout(60):
            while len(told) < len(read) - long_ones:
                await asyncio.sleep(0.05)
        await asyncio.wait(tasks, timeout=0.5)  # no more of them end
        most.append(sum(read))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(main())
    assert sum(each > SHORT_BODY_BYTES + 4096 for each in read) == long_ones
    assert most[0] <= long_ones * (MAX_BODY_BYTES // 2 + 4096) + len(read) * (SHORT_BODY_BYTES + 4096)
    assert len(told) == len(read) - long_ones
    # One that waited for its user's turn may then wait for that of all, so there need be no 429 of several users.
    assert set(told) == {429} if users == 1 else {503} <= set(told) <= {429, 503}
