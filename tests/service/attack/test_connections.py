"""Connections that fill all places, and requests of one user that would fill the service."""

from __future__ import annotations

import contextlib

import httpx
import pytest

from mgclust.service.queue.models import Job, open_database, writing
from support.raw_http import Raw, bearer, seconds_of_a_look
from support.service_process import Running
from support.waiting import wait_for

pytestmark = pytest.mark.slow

PLACES, OF_ONE, REQUESTS, STREAMS = 30, 20, 4, 3


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    server = {
        "MAX_CONNECTIONS": PLACES,
        "MAX_CONNECTIONS_OF_ADDRESS": OF_ONE,
        "HEADER_SECONDS": 300,  # no connection ends for its age
        "IDLE_SECONDS": 300,
    }
    given = {f"web.perimeter.server.{name}": value for name, value in server.items()}
    given["web.perimeter.authentication.MAX_OPEN"] = {"requests": REQUESTS, "streams": STREAMS}
    service = Running(tmp_path_factory.mktemp("connections"), ["--no-runner"], constants=given)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def mine(running):
    return bearer((running.data / "token").read_text().strip())


@pytest.fixture(scope="module")
def waiting(running):
    """The path of a job that does not end."""
    with writing(open_database(running.database)) as session:
        session.add(
            Job(
                id="7" * 32, owner="admin", method="density-peaks", request={}, priority=0, state="PENDING",
                created=1.0, attempt=0, begun_before=0, cancel=False,
            )
        )  # fmt: skip
    return f"/api/v1/jobs/{'7' * 32}"


@pytest.fixture
def opened(running):
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Raw(running))


def test_filling_all_places_keeps_no_other_user_out(running, mine, waiting, opened):
    watching = opened()
    watching.head("GET", f"{waiting}/events", mine)
    assert b"PENDING" in (watching.first() + watching.first())
    raws = [opened() for _ in range(5 * PLACES)]
    for raw in raws:
        raw.send(b"GET /api/v1/jobs HTTP/1.1\r\nHost:")
    wait_for(lambda: sum(raw.is_waiting() for raw in raws) <= OF_ONE)
    assert raws[-1].is_waiting()  # the newest stay
    for _ in range(5):
        assert seconds_of_a_look(running) < 1
        answer = httpx.get(f"{running.url}/api/v1/jobs", headers=dict([mine.split(": ")]))
        assert answer.status_code == 200
    assert watching.is_waiting()  # one that has shown a token is kept


def test_idle_connections_of_a_user_make_room(running, mine, opened):
    raws = []
    for _ in range(2 * PLACES):
        raws.append(raw := opened())
        raw.head("GET", "/api/v1/methods", mine)
        assert raw.first().startswith(b"HTTP/1.1 200 ")
    wait_for(lambda: sum(raw.is_waiting() for raw in raws) <= REQUESTS + STREAMS)
    assert seconds_of_a_look(running) < 1


def test_requests_of_a_user_at_once(running, mine, opened):
    """As many as the limit; those of another user are answered."""
    raws = [opened() for _ in range(REQUESTS)]
    for raw in raws:
        raw.head("PUT", "/api/v1/uploads/x.npy", mine, "Content-Length: 5")
        raw.send(b"1234")
    uploads = running.data / "uploads"
    wait_for(lambda: uploads.exists() and len(list(uploads.iterdir())) >= REQUESTS)
    shown = dict([mine.split(": ")])
    refused = httpx.get(f"{running.url}/api/v1/jobs", headers=shown)
    assert (refused.status_code, refused.headers["Retry-After"]) == (429, "2")
    assert f"{REQUESTS} requests of one user are open" in refused.json()["error"]
    others = {"Authorization": f"Bearer {running.token_of('ann')[1]}"}
    assert httpx.get(f"{running.url}/api/v1/jobs", headers=others).status_code == 200
    for raw in raws:
        raw.send(b"5")
        assert raw.first().startswith(b"HTTP/1.1 201 ")
    assert httpx.get(f"{running.url}/api/v1/jobs", headers=shown).status_code == 200


def test_streams_of_a_user_at_once(running, mine, waiting, opened):
    raws = [opened() for _ in range(STREAMS)]
    for raw in raws:
        raw.head("GET", f"{waiting}/events", mine)
        assert raw.first().startswith(b"HTTP/1.1 200 ")
    shown = dict([mine.split(": ")])
    refused = httpx.get(f"{running.url}{waiting}/events", headers=shown)
    assert (refused.status_code, f"{STREAMS} streams of one user are open" in refused.json()["error"]) == (429, True)
    assert httpx.get(f"{running.url}/api/v1/jobs", headers=shown).status_code == 200  # streams are counted apart
    raws[0].socket.close()

    def is_let_in():
        with httpx.stream("GET", f"{running.url}{waiting}/events", headers=shown) as answer:
            return answer.status_code == 200

    wait_for(is_let_in)
