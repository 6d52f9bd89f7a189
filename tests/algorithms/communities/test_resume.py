"""A fit that was interrupted resumes from the last cycle that was saved, with the same bits, on any number of ranks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from mgclust import Communities
from mgclust.algorithms import base
from mgclust.algorithms.communities import parallel
from mgclust.base.errors import RunCancelled
from mgclust.data import open_graph
from mgclust.engine.checkpoint import CheckpointConfig
from support import graphs
from support.checkpoint_cases import bits, numbers

pytestmark = [pytest.mark.xdist_group("workers"), pytest.mark.filterwarnings("ignore::UserWarning")]

EDGES = graphs.random_graph(4, 300, 900, "floats")
CASES = {
    "several starts": ({}, (3, 9)),
    "constant Potts model": ({"objective": "cpm", "resolution": 0.1}, (2, 30)),
    "resolutions": ({"resolutions": [1.0, 2.0]}, (5, 25)),
    "known communities": ({"init": np.arange(300) % 7}, (1, 2)),
    "evidence": ({"null": 1, "stability": 1, "consensus": 2}, (4, 40)),
}


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks, with a checkpoint after each cycle until there are so many; then the run is stopped."""

    def fit(size, parameters, folder=None, stop_at=None):
        stages = []

        def on_progress(event):
            stages.append(event["stage"])
            if stop_at is not None and max(numbers(folder), default=0) >= stop_at:
                raise RunCancelled("enough")

        monkeypatch.setattr("mgclust.engine.context.EMIT_EVERY", 0.0)
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        checkpoint = None if folder is None else CheckpointConfig(folder, 60.0 if stop_at is None else 0.0, 1.0)
        model = Communities(device="cpu", random_state=5, **parameters)
        return model.fit_dataset(open_graph((EDGES, 300)), on_progress, checkpoint=checkpoint), stages

    return fit


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_fit_resumes_with_the_same_bits(case, fit_on, tmp_path, monkeypatch):
    parameters, stops = CASES[case]
    cycles = []
    plain = parallel._cycle

    def counted(*arguments, **named):
        cycles.append(1)
        return plain(*arguments, **named)

    monkeypatch.setattr(parallel, "_cycle", counted)
    expected = bits(fit_on(1, parameters)[0])
    whole, cycles[:] = len(cycles), []
    for stop_at in stops:
        with pytest.raises(RunCancelled):
            fit_on(1, parameters, tmp_path / "saved", stop_at)
        assert max(numbers(tmp_path / "saved")) >= stop_at
        cycles.clear()
    result, stages = fit_on(1, parameters, tmp_path / "saved")
    assert "resume" in stages
    assert len(cycles) < whole
    assert bits(result) == expected


def test_other_ranks_resume_with_the_same_bits(fit_on, tmp_path):
    parameters, _ = CASES["several starts"]
    expected = bits(fit_on(1, parameters)[0])
    for stop_at, size in ((3, 2), (6, 4)):
        with pytest.raises(RunCancelled):
            fit_on(size, parameters, tmp_path / "saved", stop_at)
    result, stages = fit_on(3, parameters, tmp_path / "saved")
    assert "resume" in stages
    assert bits(result) == expected


@pytest.mark.slow
def test_a_killed_command_resumes(tmp_path):
    np.savez(tmp_path / "g.npz", edges=graphs.random_graph(4, 60_000, 250_000), n=60_000)
    command = [sys.executable, "-m", "mgclust", "run", "communities", "g.npz", "--cpu", "--no-report", "-o"]
    subprocess.run([*command, "plain"], cwd=tmp_path, check=True, capture_output=True)
    saved = ["--checkpoint", "saved", "--checkpoint-seconds", "0"]
    with subprocess.Popen([*command, "out", *saved], cwd=tmp_path, stderr=subprocess.DEVNULL) as killed:
        deadline = time.monotonic() + 120
        while max(numbers(tmp_path / "saved"), default=0) < 2 and killed.poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(killed.pid, signal.SIGKILL)
    assert not (tmp_path / "out" / "labels.npy").exists()
    again = subprocess.run([*command, "out", *saved], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert "resume" in again.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "out" / "labels.npy"), np.load(tmp_path / "plain" / "labels.npy"))
