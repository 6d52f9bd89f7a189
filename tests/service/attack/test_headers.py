"""Requests whose headers, trailers or chunks do not end: the parser has no limit of its own."""

from __future__ import annotations

import pytest

from support.raw_http import Raw, bearer, memory_of, seconds_of_a_look

pytestmark = [pytest.mark.xdist_group("service"), pytest.mark.timeout(120)]

MUCH = 24 << 20
JSON = "Content-Type: application/json"


@pytest.fixture(scope="module")
def mine(running):
    return bearer((running.data / "token").read_text().strip())


@pytest.mark.quick("value")
@pytest.mark.parametrize(
    "begin",
    [
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-Endless: ",
        b"GET /healthz HTTP/1.1\r\nHost: x\r\nX-",
        b"GET /healthz?",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%s\r\n\r\n1;ext=",
        b"POST /api/v1/jobs HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n%s\r\n\r\n0\r\nX-Trailer: ",
    ],
    ids=["value", "name", "url", "chunk extension", "trailer"],
)
def test_without_end(running, mine, begin):
    before = memory_of(running)
    with Raw(running) as raw:
        raw.send(begin.replace(b"%s", mine.encode()))
        sent = raw.send(b"a" * MUCH)
        answer = raw.answer()
    assert sent < MUCH  # the other end closed; what was sent lies in the buffers of the sockets
    assert answer == b"" or answer.startswith(b"HTTP/1.1 431 ")
    assert memory_of(running) - before < 16
    assert seconds_of_a_look(running) < 1


@pytest.mark.parametrize(("count", "size"), [(200, 1), (40, 1000)])
@pytest.mark.parametrize("where", ["headers", "trailers"])
def test_too_many(running, mine, where, count, size):
    many = [f"X-{i}: " + "1" * size for i in range(count)]
    with Raw(running) as raw:
        if where == "headers":
            raw.head("GET", "/healthz", *many)
        else:
            raw.head("POST", "/api/v1/jobs", mine, JSON, "Transfer-Encoding: chunked")
            raw.send("\r\n".join(["0", *many, "", ""]).encode())
        answer = raw.answer()
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b"and 128 headers." in answer


def test_as_many_as_are_in_use(running):
    with Raw(running) as raw:
        raw.head("GET", "/healthz", "Cookie: " + "a" * 20_000, *(f"X-{i}: 1" for i in range(100)), "Connection: close")
        assert raw.answer().startswith(b"HTTP/1.1 200 ")


def test_requests_that_do_not_wait_for_answers(running, mine):
    """A hundred thousand of them: each one that waits costs some kilobytes."""
    before = memory_of(running)
    with Raw(running) as raw:
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 100_000)
        answers = raw.answer()
    assert answers.count(b"HTTP/1.1 ") < 100
    assert memory_of(running) - before < 16
    with Raw(running) as raw:  # some are in order
        raw.send(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n" * 4 + b"GET /healthz HTTP/1.0\r\n\r\n")
        assert raw.answer().count(b"HTTP/1.1 200 ") == 5


@pytest.mark.parametrize(
    "nonsense", [b"\x16\x03\x01\x02\x00\x01", b"GET\r\n\r\n", b"CONNECT x:1 HTTP/1.1\r\nHost: x\r\n\r\n", b"\xff" * 99]
)
def test_what_is_no_http(running, nonsense):
    with Raw(running) as raw:
        raw.send(nonsense)
        assert raw.answer().startswith((b"HTTP/1.1 400 ", b"HTTP/1.1 404 "))
    assert seconds_of_a_look(running) < 1
