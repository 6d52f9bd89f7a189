"""The fuzzers for some seconds; how a failure says what to run again. For longer: ``python -m tests.support.fuzz``."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from support import fuzz

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(170)
def test_for_some_seconds():
    command = [sys.executable, "-m", "tests.support.fuzz", "--seconds", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert [line.split(":")[0] for line in done.stdout.splitlines()] == list(fuzz.TARGETS)


def test_a_failure_can_be_run_again(monkeypatch, capsys):
    drawn = []

    @contextlib.contextmanager
    def failing():
        def case(rng):
            drawn.append(rng.randrange(1000))
            assert drawn[-1] < 900

        yield case

    monkeypatch.setitem(fuzz.TARGETS, "api", failing)
    monkeypatch.setattr(sys, "argv", ["fuzz", "--target", "api", "--seed", "7"])
    assert fuzz.main() == 1
    again = capsys.readouterr().out.splitlines()[-1].partition("python -m tests.support.fuzz ")[2].split()
    monkeypatch.setattr(sys, "argv", ["fuzz", *again])
    assert fuzz.main() == 1
    assert drawn[-1] == drawn[-2] >= 900
