"""Requests that never end, bodies of senders without a token, and answers that are not read."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time

import httpx
import psutil
import pytest

from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.web.perimeter.bodies import MAX_BODY_BYTES
from support.raw_http import Raw, bearer, memory_of, seconds_of_a_look
from support.service_process import Running
from support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

SECONDS = 1.5
SOON = 60.0  # seconds: long for a busy machine, and far less than for ever
LARGE = 256 << 20


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    names = ("HEADER_SECONDS", "BODY_SECONDS", "IDLE_SECONDS", "WRITE_SECONDS")
    values = dict.fromkeys(names, SECONDS) | {"UPLOAD_BYTES_PER_SECOND": 100}
    given = {f"web.perimeter.server.{name}": value for name, value in values.items()}
    service = Running(tmp_path_factory.mktemp("slow"), ["--no-runner"], constants=given)
    yield service
    service.stop()


@pytest.fixture(scope="module")
def mine(running):
    return bearer((running.data / "token").read_text().strip())


@pytest.mark.parametrize("shown", [None, "Authorization: Bearer mgc_guess", "Authorization: Bearer mgc_" + "x" * 43])
@pytest.mark.parametrize(("method", "path"), [("POST", "/api/v1/jobs"), ("PUT", "/api/v1/uploads/x.npy")])
def test_a_body_is_not_read_before_its_token(running, shown, method, path):
    with Raw(running) as raw:
        raw.socket.settimeout(SOON)
        raw.head(method, path, *filter(None, [shown]), "Content-Length: 1000000")
        first = raw.first()
        assert first.startswith(b"HTTP/1.1 401 ")  # of the body nothing has been sent
        raw.send(b" " * 999_999)
        assert (first + raw.answer()).count(b"HTTP/1.1 ") == 1  # closed, though the body lacks a byte


def test_a_client_that_sends_much_reads_the_refusal(running):
    answer = httpx.put(f"{running.url}/api/v1/uploads/x.npy", content=b"x" * (32 << 20))
    assert (answer.status_code, "a token is needed" in answer.json()["error"]) == (401, True)


def test_a_client_that_waits_is_refused(running):
    with Raw(running) as raw:
        raw.socket.settimeout(SOON)
        raw.head("PUT", "/api/v1/uploads/x.npy", "Content-Length: 5", "Expect: 100-continue")
        answer = raw.answer()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"\r\n", b""),
        (b"GET /healthz HTTP/1.1\r\nHost:", b"HTTP/1.1 408 "),
        (b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 200 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n", b"HTTP/1.1 405 "),
    ],
    ids=["nothing", "an empty line", "half of a head", "one request", "a body that no page reads"],
)
def test_a_connection_that_falls_silent_is_closed(running, sent, status):
    with Raw(running) as raw:
        raw.socket.settimeout(SOON)
        raw.send(sent)
        answer = raw.answer()
    assert answer.startswith(status)
    assert answer or not status


def test_a_head_that_drips_is_ended(running):
    with Raw(running) as raw:
        raw.send(b"GET /healthz HTTP/1.1\r\n")
        begun = time.monotonic()
        while raw.is_waiting() and time.monotonic() < begun + SOON:
            raw.send(b"X: 1\r\n")
            time.sleep(0.2)
        assert time.monotonic() < begun + SOON
        assert raw.answer().startswith(b"HTTP/1.1 408 ")


def test_bodies_that_lack_a_byte(running, mine):
    """Of a user with a token as well; what has come of them does not fill the memory."""
    before = memory_of(running)
    raws = [Raw(running) for _ in range(60)]
    for raw in raws:
        raw.head("POST", "/api/v1/jobs", mine, "Content-Type: application/json", f"Content-Length: {MAX_BODY_BYTES}")
        raw.socket.setblocking(False)
    for raw in raws:
        with contextlib.suppress(BlockingIOError):  # the service does not read it
            raw.send(b" " * (MAX_BODY_BYTES - 1))
    most = max(memory_of(running) for _ in range(20) if time.sleep(0.02) is None)
    raws[0].socket.settimeout(SOON)
    assert raws[0].answer().startswith(b"HTTP/1.1 408 ")
    for raw in raws:
        raw.socket.close()
    assert most - before < 40
    assert seconds_of_a_look(running) < 1


def test_an_upload_may_be_slow_but_not_silent(running, mine):
    with Raw(running) as raw:
        raw.head("PUT", "/api/v1/uploads/slow.npy", mine, "Content-Length: 1800")
        for _ in range(18):  # twice as long as a body of another kind may take
            raw.send(b"x" * 100)
            time.sleep(2 * SECONDS / 18)
        assert raw.first().startswith(b"HTTP/1.1 201 ")
    assert len(list((running.data / "uploads").iterdir())) == 1
    with Raw(running) as raw:
        raw.socket.settimeout(SOON)
        raw.head("PUT", "/api/v1/uploads/silent.npy", mine, "Content-Length: 1800")
        raw.send(b"x" * 1799)
        assert raw.answer().startswith(b"HTTP/1.1 408 ")
    wait_for(lambda: len(list((running.data / "uploads").iterdir())) == 1)  # nothing of it is left


def test_an_upload_that_drips_is_ended(running, mine):
    with Raw(running) as raw:
        raw.head("PUT", "/api/v1/uploads/drips.npy", mine, "Content-Length: 100000")
        begun = time.monotonic()
        while raw.is_waiting() and time.monotonic() < begun + SOON:
            raw.send(b"x")
            time.sleep(0.1)
        assert time.monotonic() < begun + SOON
        assert raw.answer().startswith(b"HTTP/1.1 408 ")


def test_an_answer_that_is_not_read(running, mine):
    id_ = "5" * 32
    with writing(open_database(running.database)) as session:
        session.add(
            Job(
                id=id_, owner="admin", method="density-peaks", request={}, priority=0, state="SUCCEEDED", created=1.0,
                attempt=1, begun_before=0, cancel=False,
            )
        )  # fmt: skip
    result = running.data / "jobs" / id_ / "attempt-1" / "result"
    result.mkdir(parents=True)
    with open(result / "large.npy", "wb") as file:
        file.truncate(LARGE)
    before = memory_of(running)
    with Raw(running, receive_buffer=1 << 16) as raw:
        raw.head("GET", f"/api/v1/jobs/{id_}/files/large.npy", mine)
        time.sleep(2 * SECONDS)
        assert memory_of(running) - before < 40
        own = raw.socket.getsockname()
        wait_for(lambda: own not in (each.raddr for each in psutil.Process(running.web.pid).net_connections("tcp")))
        assert len(raw.answer()) < LARGE // 2
    whole = httpx.get(f"{running.url}/api/v1/jobs/{id_}/files/large.npy", headers=dict([mine.split(": ")]))
    assert len(whole.content) == LARGE


def test_a_service_that_was_stopped_blames_no_client(running, mine):
    """The time in which it could not read is not theirs."""
    told = []

    def upload():
        with Raw(running) as raw:
            raw.head("PUT", "/api/v1/uploads/stopped.npy", mine, "Content-Length: 300")
            raw.send(b"x" * 100)
            started.set()
            stopped.wait()
            raw.send(b"x" * 200)
            sent.set()
            told.append(raw.first()[:13])

    started, stopped, sent = threading.Event(), threading.Event(), threading.Event()
    thread = threading.Thread(target=upload)
    thread.start()
    started.wait()
    os.kill(running.web.pid, signal.SIGSTOP)
    time.sleep(2 * SECONDS)
    stopped.set()
    assert sent.wait(SOON)
    os.kill(running.web.pid, signal.SIGCONT)
    thread.join()
    assert told == [b"HTTP/1.1 201 "]
