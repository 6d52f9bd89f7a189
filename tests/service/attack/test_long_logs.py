"""Logs that attempts make long: what is shown of all attempts is limited, and never in memory as a whole."""

from __future__ import annotations

import contextlib
import os
import tracemalloc

import pytest
from starlette.testclient import TestClient

from mgclust.service.confined.results import LOG_CHUNK_BYTES, MAX_LOG_BYTES, MAX_LOGS, read_logs
from mgclust.service.queue import access
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

ID = "d" * 32


@pytest.fixture
def served(tmp_path):
    """Ask for the log of a job with as many attempts as it has logs."""
    settings = Settings(data=tmp_path, cpu=True)
    app, engine = create_app(settings), open_database(settings.database)
    access.add_user(engine, "ann", "user")
    token = access.new_token(engine, "ann")[1]

    def ask(logs):
        for attempt, content in enumerate(logs, 1):
            path = settings.attempt_folder(ID, attempt) / "log.txt"
            path.parent.mkdir(parents=True)
            with open(path, "wb") as file:
                file.truncate(content) if isinstance(content, int) else file.write(content)
        with writing(engine) as session:
            session.add(Job(id=ID, owner="ann", method="m", request={}, state="FAILED", attempt=len(logs), created=1.0))
        with TestClient(app, headers={"Authorization": f"Bearer {token}"}) as http:
            return http.get(f"/api/v1/jobs/{ID}/log").text

    ask.settings = settings
    return ask


def opened(folder):
    """What this process has open below a folder."""
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # of another thread, and closed meanwhile
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return [path for path in found if path.startswith(f"{folder}/")]


def test_short_ones_are_shown_whole(served):
    assert served([b"a\n", b"", "\u00e9\x1b\u20ac\n".encode()]) == "attempt 1\na\nattempt 2\nattempt 3\né\\x1b€\n"


def test_of_long_ones_the_last_bytes_are_shown(served):
    text = served([1 << 20] * 57 + [b"early\n", b"x" * 99 + b"y" * (MAX_LOG_BYTES - 6), b"late\n"])
    assert text == (
        "the logs of attempts 1 to 58 are left out.\nattempt 59\nthe first 98 bytes are left out.\n"
        f"x{'y' * (MAX_LOG_BYTES - 6)}attempt 60\nlate\n"
    )  # fmt: skip


def test_of_many_the_last_are_opened(served):
    text = served([b"x\n"] * (MAX_LOGS + 2))
    assert text.startswith("the logs of attempts 1 to 2 are left out.\nattempt 3\nx\n")
    assert text.count("attempt ") == MAX_LOGS


def test_the_parts_are_short(served):
    """A client that reads slowly holds one of them."""
    served([b"\x01" * (5 << 20)])
    tracemalloc.start()
    size = sum(map(len, read_logs(served.settings, ID, 1)))
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert MAX_LOG_BYTES <= size <= MAX_LOG_BYTES + 100 and most < 1 << 19
    assert not opened(served.settings.data / "jobs")


def test_no_path_of_the_data_folder(served):
    """A traceback of an attempt names files below it; also where two parts of the answer meet."""
    path = str(served.settings.data)
    line = f"File {path}/jobs/{ID}/attempt-1/x.py\n".encode()
    shown = served([b"y" * (LOG_CHUNK_BYTES - 10) + line * 5000 + path[:-1].encode()])
    assert path not in shown
    assert shown.count(f"File DATA/jobs/{ID}/attempt-1/x.py\n") == 5000
    assert shown.endswith(f"\n{path[:-1]}")
