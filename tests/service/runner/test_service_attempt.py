"""What an attempt's process says, and to whom."""

from __future__ import annotations

import errno
import json
import subprocess
import sys

import pytest

from mgclust.base.errors import ClusterUnavailableError, InputError, InsufficientMemoryError, WorkerLost
from mgclust.service.runner import attempt


class Full:
    """A log on a disk without space."""

    def write(self, text):
        raise OSError(errno.ENOSPC, "No space left on device")

    def flush(self):
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_line_of_the_log_is_not_worth_a_job(monkeypatch):
    monkeypatch.setattr(sys, "stderr", Full())
    attempt._log("rho 10%")


def test_a_full_disk_is_given_time(monkeypatch, tmp_path):
    def fill(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    slept, said = [], []
    monkeypatch.setattr(attempt, "_compute", fill)
    monkeypatch.setattr(attempt.os, "dup2", lambda *_: None)
    monkeypatch.setattr(attempt.time, "sleep", slept.append)
    order = {"folder": tmp_path, "checkpoint": tmp_path / "none", "files": {}, "request": {"sources": []}}
    answer = attempt._run(order, said.append)
    assert "no space left" in answer["error"] and answer["fault"] == "cluster"
    assert slept == [attempt.FULL_DISK_WAIT_SECONDS] and said == [{"stage": "waiting for space on the disk"}]


def test_whose_fault_it_is():
    faults = {
        InputError("bad"): "input",
        ClusterUnavailableError("away"): "cluster",
        InsufficientMemoryError("too much"): "memory",
        WorkerLost("one died"): "cluster",
        OSError(errno.ENOSPC, "No space left on device"): "cluster",
        KeyboardInterrupt(): "cluster",
        ZeroDivisionError(): "mgclust",
    }
    for error, fault in faults.items():
        assert attempt.fault_of(error) == fault
    assert "no space left" in attempt.message_of(OSError(errno.ENOSPC, "No space left on device"))


@pytest.mark.slow
def test_the_log_of_a_job_is_its_own(tmp_path):
    """One job a process: a later order is not read, nor what the process writes at its end."""
    code = "from mgclust.service.runner import attempt; attempt._compute = lambda *_: {'scores': {}}; attempt.main();"
    code += "print('out of turn')"
    (tmp_path / "taken").touch()
    answers = {}
    for name in ("first", "taken"):
        order = {
            "folder": str(tmp_path / name), "checkpoint": str(tmp_path / "kept"), "files": {},
            "request": {"sources": []},
        }  # fmt: skip
        with subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, umask=0o022
        ) as process:
            process.stdin.write(2 * (json.dumps(order) + "\n"))
            process.stdin.flush()
            answers[name] = [said for line in process.stdout if (said := json.loads(line))]  # but for heartbeats
            assert process.wait(60) == 0  # before its input ends, which would interrupt it
    (done,), (failed,) = answers.values()
    assert done.pop("facts")["peak_bytes"] > 1 << 20 and done == {"scores": {}}
    assert "taken" in failed["error"]
    assert (tmp_path / "first" / "log.txt").read_text() == ""
    assert (tmp_path / "first").stat().st_mode & 0o777 == 0o700  # other accounts read nothing of it
    assert (tmp_path / "first" / "log.txt").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("deep", [0, 150])
def test_the_temporary_folder_has_a_short_name(tmp_path, deep):
    # NVIDIA's compiler ends with an error where TMPDIR has 127 bytes or more.
    folder = tmp_path / ("d" * deep or "d") / "attempt-1"
    folder.mkdir(parents=True)
    order = {"folder": str(folder), "checkpoint": str(tmp_path / "checkpoints" / "x")}
    (tmp_path / "checkpoints").mkdir()
    code = (
        "import json, os, subprocess, sys, tempfile\n"
        "from mgclust.service.runner.attempt import _writable\n"
        "_writable(json.loads(sys.argv[1]))\n"
        "there = 'import os, tempfile; print(os.path.realpath(tempfile.gettempdir()))'\n"
        "print(subprocess.check_output([sys.executable, '-c', there], text=True).strip())\n"
        "print(os.path.realpath(tempfile.gettempdir()), os.environ['TMPDIR'])\n"
    )
    done = subprocess.run([sys.executable, "-c", code, json.dumps(order)], capture_output=True, text=True)
    of_children, own, named = done.stdout.split()
    assert of_children == own == str((folder / "tmp").resolve()), done.stderr
    assert len(named) < 127
