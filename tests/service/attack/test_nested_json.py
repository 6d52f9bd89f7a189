"""JSON that is nested beyond the limit of recursion: in results, in answers of a server, in a checkpoint."""

from __future__ import annotations

import httpx
import pytest

from mgclust import load_result
from mgclust.base.errors import InputError, RunFailed
from mgclust.engine.checkpoint_files import INDEX, read_index
from mgclust.outside.json_text import MAX_DEPTH, parse_json
from mgclust.service.client import connection
from mgclust.service.client.remote_job import RemoteJob
from mgclust.service.client.service import Service

DEEP = "[" * 100_000 + "]" * 100_000


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 500, 100_000])
def test_nesting_is_limited(depth):
    assert parse_json("[" * MAX_DEPTH + "]" * MAX_DEPTH)
    for text in ("[" * depth + "]" * depth, b'{"x":' * depth + b"1" + b"}" * depth, "[" * depth):
        with pytest.raises(ValueError, match=r"nested|Expecting"):
            parse_json(text)


def test_of_files(tmp_path):
    for name in ("result.json", INDEX):
        (tmp_path / name).write_text(DEEP)
    with pytest.raises(InputError, match=r"result\.json' cannot be read"):
        load_result(tmp_path)
    assert read_index(tmp_path) is None


@pytest.mark.parametrize("status", [200, 400])
def test_of_a_server(status, monkeypatch):
    real = httpx.Client
    answers = httpx.MockTransport(lambda request: httpx.Response(status, text=f"data: {DEEP}\n\n{DEEP}"))
    monkeypatch.setattr(connection.httpx, "Client", lambda transport, **given: real(transport=answers, **given))
    service = Service("http://cluster.example", "token")
    for ask in (service.jobs, lambda: next(RemoteJob(service, {"id": "x", "state": "RUNNING"}).watch())):
        with pytest.raises((RunFailed, InputError), match=r"is not a mgclust service|answered 400"):
            ask()
