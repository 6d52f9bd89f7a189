"""An attempt or a reader that its data took over answers what none does."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import psutil
import pytest
from starlette.testclient import TestClient

from mgclust import DensityPeaks
from mgclust.base.errors import InputError
from mgclust.service.confined import fork_server
from mgclust.service.confined.child_messages import (
    MAX_ERROR_CHARACTERS,
    MAX_LINE_BYTES,
    MAX_MESSAGES,
    MAX_PROGRESS_NAMES,
    MAX_READING_BYTES,
    AttemptMessages,
)
from mgclust.service.queue import access
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.runner.runner import Runner
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

# In place of an attempt: it takes its order, says what it is told to, and then neither says nor does anything more.
HOSTILE = """
import json, os, sys, time
sys.stdin.readline()
def say(what):
    view = memoryview(what if isinstance(what, bytes) else json.dumps(what).encode() + b"\\n")
    while view:
        view = view[os.write(1, view):]
{}
time.sleep(600)
"""
ENDLESS = "while True: say({!r})"


def messages_in(data):
    return list(AttemptMessages().parse(data))


class Served:
    """A web process and a runner in this process, whose attempts are hostile."""

    def __init__(self, folder, monkeypatch):
        root = folder / "root"
        root.mkdir()
        (root / "x.npy").write_bytes(b"x")
        self.log = folder / "log"
        settings = Settings(data=folder / "data", cpu=True, roots=str(root), rate_per_token=1e6, log=str(self.log))
        app = create_app(settings)
        engine = open_database(settings.database)
        access.add_user(engine, "ann", "user")
        self.http = TestClient(app, headers={"Authorization": f"Bearer {access.new_token(engine, 'ann')[1]}"})
        self.source = {"path": str(root / "x.npy")}
        self.runner = Runner(settings)
        self._popen, self._monkeypatch = psutil.Popen, monkeypatch

    def submit(self, code):
        def popen(command, **options):
            return self._popen([sys.executable, "-c", HOSTILE.format(code)], **options)

        self._monkeypatch.setattr(fork_server.psutil, "Popen", popen)
        answer = self.http.post("/api/v1/jobs", json={"method": "density-peaks", "sources": [self.source]})
        return f"/api/v1/jobs/{answer.json()['id']}"

    def wait(self, condition, seconds=60):
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end
            self.runner.step()
            time.sleep(0.02)


@pytest.fixture
def served(tmp_path, monkeypatch):
    served = Served(tmp_path, monkeypatch)
    with served.http:
        yield served
    for attempt in served.runner._running:
        attempt.process.close(at_once=True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("code", "what"),
    [
        (ENDLESS.format(b"x" * 4096), "a line of more than 65536 bytes"),
        ("say({'scores': {'x': 'x' * 100_000}})", "a line of more than 65536 bytes"),
        (ENDLESS.format(b'{"progress": {}}\n' * 1000), "more than 1000 messages at once"),
        ("say(b'hello\\n')", "an invalid line"),
        ("say(b'\\xff\\n')", "an invalid line"),
        ("say(b'[' * 60_000 + b'\\n')", "an invalid line"),
        ("say({'progress': 3})", "an invalid line"),
        ("say({'scores': {}, 'facts': {'event': 'job.ended', 'shape': 'x'}})", "an invalid line"),
        ("say({'scores': {'n': 3}}); say({'scores': {'n': 4}})", "two answers"),
    ],
)
def test_it_is_ended_and_the_job_fails_with_the_reason(served, code, what):
    """At once, not after other attempts: the data would take these over, too."""
    job = served.submit(code)
    served.wait(lambda: served.runner._running)
    (attempt,) = served.runner._running
    served.wait(lambda: served.http.get(job).json()["state"] != "RUNNING")
    told = served.http.get(job).json()
    assert (told["state"], told["fault"], told["attempt"]) == ("FAILED", "mgclust", 1)
    assert what in told["error"] and told["error"].endswith("it was killed with all processes that it had started.")
    assert attempt.process.ended() and not served.runner._running


@pytest.mark.parametrize(
    "line",
    [
        b"[]", b"3", b"null", b'"x"', b"{", b'{"x": 1}', b'{"progress": null}', b'{"progress": {"stage": 3}}',
        b'{"progress": {"fraction": "x"}}', b'{"progress": {"elapsed": true}}', b'{"progress": {"stage_eta": []}}',
        b'{"scores": [1]}', b'{"scores": {}, "facts": []}',
        b'{"scores": {}, "warnings": "x"}', b'{"scores": {}, "warnings": [1]}',
        b'{"scores": {}, "facts": {"peak_bytes": "x"}}',
        b'{"scores": {}, "facts": {"shape": [1, 2, 3, 4, 5]}}', b'{"error": 3, "fault": "input"}', b'{"error": "x"}',
        b'{"error": "x", "fault": "nobody"}', b'{"error": "x", "fault": ["input"]}',
        b'{"progress": ' + b'{"x": ' * 20 + b"1" + b"}" * 21, b'{"progress": {"x": ' + b"9" * 10_000 + b"}",
    ],
)  # fmt: skip
def test_what_no_attempt_says(line):
    with pytest.raises(InputError, match="an invalid line"):
        messages_in(line + b"\n")


def test_what_others_cannot_write_is_left_out(served):
    """Numbers that JSON has not, halves of characters, and what a terminal obeys: lists of the job can be had."""
    odd = '{"progress": {"stage": "\\ud800", "fraction": 1e999, "elapsed": NaN, "x": ' + "9" * 300 + "}}\n"
    job = served.submit(f"say({odd.encode()!r})")
    served.wait(lambda: served.http.get(job).json()["progress"])
    told = served.http.get(job).json()["progress"]
    assert (told["stage"], told["fraction"], told["elapsed"], told["x"]) == ("?", None, None, 1e300)
    assert served.http.get("/api/v1/jobs").json()[0]["progress"] == told
    served.http.post(f"{job}/cancel")
    served.wait(lambda: not served.runner._running)
    failed = {"error": "x\x00\x1b\ud800" + "y" * 9999, "fault": "input"}
    failed["facts"] = {"shape": [3, 2], "peak_bytes": 5, "event": "x", "job": "x"}
    job = served.submit(f"say({failed!r}); sys.exit()")
    served.wait(lambda: served.http.get(job).json()["state"] == "FAILED")
    error = served.http.get(job).json()["error"]
    assert error.startswith("x\\x00\\x1b?yyy") and len(error) < MAX_ERROR_CHARACTERS + 50
    ended = json.loads(served.log.read_text().splitlines()[-2])
    assert (ended["event"], ended["job"]) == ("attempt.ended", job[-32:])
    assert (ended["shape"], ended["peak_bytes"], ended["fault"]) == ([3, 2], 5, "input")


def test_of_the_progress_only_plain_figures_are_kept():
    """It goes into the database and each list of jobs."""
    odd = {"stage": "s" * 999, "fraction": 0.5, "iteration": "x" * 999, "damping": {}, "rate": [1], "y" * 999: 1}
    odd |= {"a": True, "b": None, "c": 3, "\x1b[2J": "\x1b"} | {f"x{i}": i for i in range(999)}
    said = messages_in(json.dumps({"progress": odd}).encode() + b"\n")[0]["progress"]
    assert len(said) == MAX_PROGRESS_NAMES and len(json.dumps(said)) < 2000
    assert {"damping", "rate", "y" * 999, "\x1b[2J"}.isdisjoint(said)
    expected = {"stage": "s" * 200, "fraction": 0.5, "iteration": "x" * 200, "a": True, "b": None, "c": 3}
    assert {name: said[name] for name in expected} == expected and said["\\x1b[2J"] == "\\x1b"


@pytest.mark.slow
@pytest.mark.parametrize("line", [b"{}\n", b'{"progress": {"x": [' + b"0," * 30_000 + b"0]}}\n"])
def test_what_is_written_without_end_is_read_as_the_runner_can(served, line):
    """A pipe at each step: the process waits, and the runner sees that the job is cancelled."""
    job = served.submit(ENDLESS.format(line * max(1, 60_000 // len(line))))
    served.wait(lambda: served.runner._running and served.runner._running[0].heartbeats > 20)
    before, steps = time.process_time(), 0
    end = time.monotonic() + 2
    while time.monotonic() < end:
        served.runner.step()
        time.sleep(0.1)
        steps += 1
    assert (time.process_time() - before) / steps < 0.1
    served.http.post(f"{job}/cancel")
    served.wait(lambda: not served.runner._running)
    assert served.http.get(job).json()["state"] == "CANCELLED"


def test_warnings_are_few_short_and_printable():
    line = json.dumps({"scores": {}, "warnings": ["\x1b" + "x" * 999] * 50}).encode() + b"\n"
    (said,) = messages_in(line)
    assert said["warnings"] == ["\\x1b" + "x" * 499] * 8


@pytest.mark.parametrize("part", [1, 1000, 64 << 10])
def test_what_attempts_say(part):
    """Also after hours in which the runner was stopped, and in parts; a killed process may leave half a line."""
    said = [
        {"progress": {"stage": "fit", "fraction": 0.5, "elapsed": 3, "stage_rate": None, "n_clusters": 4, "x": 1.5}},
        *[{}] * 20_000,
        {
            "scores": {"n_clusters": 4, "x": None, "y": [2.5, True]},
            "warnings": ["n_clusters=4 is a guess; give another."],
            "facts": {"shape": [3, 2], "peak_bytes": 1 << 34},
        },
        {},
    ]
    lines = b"".join(json.dumps(each).encode() + b"\n" for each in said) + b'{"progr'
    messages = AttemptMessages()
    found = [each for k in range(0, len(lines), part) for each in messages.parse(lines[k : k + part])]
    assert found == said


def test_bounds_of_lines_and_messages():
    progress = b'{"progress": {}}\n'
    assert len(messages_in(progress * MAX_MESSAGES)) == MAX_MESSAGES
    with pytest.raises(InputError, match="more than 1000 messages at once"):
        messages_in(progress * (MAX_MESSAGES + 1))
    messages = AttemptMessages()
    assert list(messages.parse(b"x" * (MAX_LINE_BYTES - 1))) == []
    with pytest.raises(InputError, match="a line of more than 65536 bytes"):
        list(messages.parse(b"x"))
    with pytest.raises(InputError, match="a line of more than 65536 bytes"):
        messages_in(b"x" * MAX_LINE_BYTES + b"\n")


# In place of a reader: it answers a line that is in a file.
HOSTILE_READER = """
import sys
from pathlib import Path
from mgclust.service.confined.fork_server import run_child
def answer():
    sys.stdin.readline()
    with open(1, "wb") as pipe:
        pipe.write(Path({!r}).read_bytes() + b"\\n")
run_child(answer)
"""


@pytest.fixture(scope="module")
def read(tmp_path_factory):
    """Ask for what a reader computes; it gives the answer that the test sets."""
    folder = tmp_path_factory.mktemp("read")
    settings = Settings(data=folder / "data", cpu=True)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mgclust.service.confined.reader_pool.READERS", 1)
        app, engine, id_ = create_app(settings), open_database(settings.database), "e" * 32
    access.add_user(engine, "ann", "user")
    job = {"method": "density-peaks", "request": {"sources": [], "parameters": {}}, "attempt": 1, "created": 1.0}
    with writing(engine) as session:
        session.add(Job(id=id_, owner="ann", state="SUCCEEDED", **job))
    rows = np.random.default_rng(0).normal(size=(60, 2))
    settings.attempt_folder(id_, 1).mkdir(parents=True)
    DensityPeaks(2, client=None, device="cpu").fit(rows).result_.save(settings.attempt_folder(id_, 1) / "result")
    popen, token = psutil.Popen, access.new_token(engine, "ann")[1]

    def hostile(command, **options):
        return popen([sys.executable, "-c", HOSTILE_READER.format(str(folder / "answer")), *command[4:]], **options)

    def ask(answer, path):
        (folder / "answer").write_bytes(answer)
        given = ("GET", None) if path == "points" else ("POST", {})
        told = http.request(given[0], f"/api/v1/jobs/{id_}/{path}", json=given[1])
        assert http.get("/api/v1/jobs").status_code == 200
        return told

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fork_server.psutil, "Popen", hostile)
        shown = {"Authorization": f"Bearer {token}"}
        with TestClient(app, headers=shown, raise_server_exceptions=False) as http:
            yield ask


def deep(depth):
    return b'{"answer": {"scores": {"x": ' + b"[" * depth + b"]" * depth + b"}}}"


@pytest.mark.slow
@pytest.mark.parametrize("path", ["centers", "centers/save", "points"])
@pytest.mark.parametrize(
    "answer",
    [
        b"hello", b"3", b"{}", b"[]", b'{"answer": 3}', b'{"answer": null}', b'{"answer": {"scores": [1]}}', deep(20),
        deep(400), deep(100_000), b'{"answer": {"scores": {"x": "' + b"x" * 70_000 + b'"}}}',
        b'{"answer": {"index": [0], "x": [NaN], "y": [1]}}',
        b'{"answer": {"n_clusters": 1, "centers": [[]], "sizes": []}}', b'{"error": {}, "kind": "input"}',
        b'{"error": "x", "kind": []}', b'{"error": "x", "kind": "none"}',
    ],
)  # fmt: skip
def test_what_no_reader_answers(answer, path, read):
    told = read(answer, path)
    assert told.json()["error"] == "the process that read the data answered as if the data had taken control."
    assert told.status_code == 400


@pytest.mark.slow
def test_answers_of_readers_are_limited(read):
    told = read(rb'{"error": "\u001b\ud800' + b"y" * 9999 + b'", "kind": "input"}', "centers").json()["error"]
    assert told.startswith("\\x1b?yyy") and len(told) < MAX_ERROR_CHARACTERS + 50
    assert read(b'{"answer": "' + b"x" * MAX_READING_BYTES + b'"}', "centers").status_code == 400
    assert "taken control" in read(b'{"answer": 1}\n{"answer": 2}', "centers").json()["error"]
    answer = {
        "n_clusters": 1, "centers": [3], "sizes": [60], "places": [], "colors": [], "warnings": [], "labels": None
    }  # fmt: skip
    assert read(json.dumps({"answer": answer}).encode(), "centers").json() == answer
    odd = rb'{"answer": {"scores": {"x": NaN, "y": 1e999, "\ud800": 2.5}}}'
    assert read(odd, "centers/save").json()["scores"] == {"x": None, "y": None, "?": 2.5}
