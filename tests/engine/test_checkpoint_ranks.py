"""Runs that are interrupted and resumed, on the same or another number of ranks: the same bits as undisturbed."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from mgclust import AffinityPropagation, kneighbors_graph, load_result
from mgclust.algorithms.fuzzy_c_means import run_spec
from mgclust.base.errors import InputError, RunCancelled
from mgclust.cli import run_command
from mgclust.data import open_dataset
from mgclust.data.sparse import open_sparse
from mgclust.engine import spmd
from mgclust.engine.checkpoint import CheckpointConfig
from support import rank_jobs
from support.checkpoint_cases import CASES, bits, fit, go_through, groups, numbers
from support.points import load_points
from support.waiting import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


# Begun on the first number of ranks, resumed on the last.
ON_RANKS = {
    "restarts": (1, 2),
    "a range of clusters": (2,),
    "affinity": (1, 2),
    "scan": (1, 2),
    "neighbours": (1, 2),
    "grid": (2,),
    "canopies": (1, 2),
}


@pytest.fixture
def fit_on(ranks, monkeypatch, request):
    """Fit a case on a number of ranks."""
    clients = []

    def call(case, size, folder=None, stop_at=None):
        if size > 1 and not clients:
            clients.append(request.getfixturevalue("client"))
            clients[0].run(rank_jobs.report_everything)
            clients[0].run(rank_jobs.wait_for_the_disk)
        return fit(case, ranks(size), "cpu", monkeypatch, folder, stop_at)

    yield call
    for client in clients:
        client.run(rank_jobs.report_everything, 0.1)
        client.run(rank_jobs.wait_for_the_disk, False)


@pytest.fixture(scope="module")
def undisturbed() -> dict:
    """What one rank found without checkpoints, by the name of the case."""
    return {}


def cases():
    for case in CASES:
        yield case, 1, 1
        yield from ((case, 3, size) for size in ON_RANKS.get(case, ()))


@pytest.mark.parametrize(("case", "first", "last"), list(cases()))
def test_same_bits(case, first, last, fit_on, undisturbed, tmp_path):
    if case not in undisturbed:
        undisturbed[case] = bits(fit_on(case, 1)[0])
    assert bits(go_through(fit_on, case, first, last, tmp_path / "kept")) == undisturbed[case]


def test_single_precision_of_fuzzy_c_means(fit_on, monkeypatch, tmp_path):
    """`fit` computes small data in float64 whatever is asked."""
    monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)
    expected = bits(fit_on("fuzzy c-means", 1)[0])
    assert bits(go_through(fit_on, "fuzzy c-means", 3, 2, tmp_path / "kept")) == expected


def test_sparse_pairs(fit_on, monkeypatch, tmp_path):
    """For which only CPUs have lists."""
    graph = kneighbors_graph(groups((900, 700), 3, 6, 0), 20, mode="distance", client=None, device="cpu")
    parameters = {"affinity": "precomputed_nearest_neighbors", "damping": 0.9, "preference_quantile": 0.05}
    case = AffinityPropagation, lambda: open_sparse(graph, distances=True), parameters, (1, 4)
    monkeypatch.setitem(CASES, "sparse pairs", case)
    expected = bits(fit_on("sparse pairs", 1)[0])
    assert bits(go_through(fit_on, "sparse pairs", 3, 2, tmp_path / "kept")) == expected


def test_other_parameters_data_and_precision_are_refused(fit_on, monkeypatch, tmp_path):
    folder = tmp_path / "kept"
    with pytest.raises(RunCancelled):
        fit_on("affinity", 1, folder, 1)
    estimator, make, parameters, points = CASES["affinity"]
    others = {
        "damping=0.9 there, 0.8 here": (make, {"damping": 0.8}),
        'dtype="float32" there, "float64" here': (make, parameters | {"dtype": "float64"}),
        "seed=5 there, 6 here": (make, parameters | {"random_state": 6}),
        "data=": (lambda: make() + 1, parameters),
    }
    for expected, (rows, changed) in others.items():
        monkeypatch.setitem(CASES, "changed", (estimator, rows, changed, points))
        for size in (1, 2):
            with pytest.raises(InputError, match=expected):
                fit_on("changed", size, folder)
    # Where rows are and how much memory they may take is no part of a run.
    monkeypatch.setitem(CASES, "changed", (estimator, make, parameters | {"memory_limit": "1 GiB"}, points))
    assert "resume" in fit_on("changed", 1, folder)[1]


# The engine's side, on several ranks.


@pytest.fixture
def run(ranks, tmp_path):
    rows = np.random.default_rng(3).normal(size=(6500, 3)).astype(np.float32)  # seven blocks

    def call(function, size, seconds=0.0, **parameters):
        events = []
        with ranks(size) as cluster:
            outcome = spmd.run(
                spmd.RunSpec(function, parameters, checkpoint=CheckpointConfig(tmp_path / "kept", seconds, 1.0)),
                open_dataset(rows),
                cluster,
                events.append,
            )
        return outcome.value, [event["warning"] for event in events if "warning" in event]

    return call


@pytest.mark.parametrize("size", [1, 3, 4])
def test_any_number_of_ranks_finds_its_rows(size, run):
    run(rank_jobs.save_rows, size, numbers=[1, 2])
    for other in (1, 2, 4):
        (ids, wide, found), warnings = run(rank_jobs.load_rows, other)
        assert ids.tolist() == list(range(6500)) and not warnings
        assert wide[:, 0].tolist() == list(range(6500)) and (wide[:, 1] - wide[:, 0] == 2).all()
        assert found.tolist() == 2 * other * [2]


def test_one_rank_that_cannot_write_is_a_warning(run, tmp_path):
    _, warnings = run(rank_jobs.save_rows, 3, numbers=[1, 2], broken=(2, 2))
    assert len(warnings) == 1 and "No space left on device" in warnings[0]
    assert numbers(tmp_path / "kept") == [1] and os.listdir(tmp_path / "kept") == ["checkpoint-1"]
    assert run(rank_jobs.load_rows, 2)[0][2].tolist() == 4 * [1]


def test_damage_that_one_rank_sees(run, tmp_path):
    run(rank_jobs.save_rows, 2, numbers=[1, 2])
    path = tmp_path / "kept" / "checkpoint-2" / "ids.00006.npy"
    path.write_bytes(path.read_bytes()[:-1])
    found, warnings = run(rank_jobs.load_rows, 3)
    assert found[2].tolist() == 6 * [1] and len(warnings) == 1


def test_all_ranks_come_to_the_same_answers(run):
    began = time.monotonic()
    answers, _ = run(rank_jobs.same_answers, 3, seconds=0.3)
    most = 1 + (time.monotonic() - began) / 0.3
    assert answers.shape == (3, 3000) and 1 <= answers[0].sum() <= most and (answers == answers[0]).all()


# The command line.


def test_killed_and_run_again(tmp_path, monkeypatch, capsys):
    """kill -9 in the midst of a scan; the same command then ends with what an undisturbed one has found."""
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", load_points("wine")[0])
    command = ["run", "adaptive-affinity-propagation", "points.npy", "--cpu", "--dtype", "float64", "--no-report"]
    kept = ["--checkpoint", "kept", "--checkpoint-seconds", "0"]
    for _ in range(10):  # a run may be over, or writing its result, before this process has its turn
        for left in set(os.listdir()) - {"points.npy"}:
            shutil.rmtree(left)
        with subprocess.Popen(
            [sys.executable, "-m", "mgclust", *command, "-o", "out", *kept], stderr=subprocess.DEVNULL
        ) as process:
            wait_for(lambda process=process: numbers(Path("kept")) or process.poll() is not None, pause=0.005)
            process.kill()
        if sorted(os.listdir()) == ["kept", "points.npy"]:
            break
    assert process.returncode == -signal.SIGKILL and not Path("out").exists() and numbers(Path("kept"))
    capsys.readouterr()
    assert run_command([*command, "-o", "out", *kept]) == 0
    assert " resume" in capsys.readouterr().err
    assert sorted(os.listdir()) == ["out", "points.npy"]  # no longer needed
    assert run_command([*command, "-o", "undisturbed"]) == 0
    assert bits(load_result("out")) == bits(load_result("undisturbed"))


def test_another_run_is_refused_in_one_sentence(run, tmp_path, monkeypatch, capsys):
    run(rank_jobs.save_rows, 1, numbers=[1])
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", load_points("wine")[0])
    assert run_command(["run", "canopy", "points.npy", "--cpu", "-o", "out", "--checkpoint", "kept"]) == 2
    errors = [line for line in capsys.readouterr().err.splitlines() if line.startswith("error")]
    assert len(errors) == 1 and "another run" in errors[0] and errors[0].endswith("or remove this one.")
    assert sorted(os.listdir()) == ["kept", "points.npy"] and numbers(Path("kept")) == [1]


def test_a_method_that_begins_anew_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", load_points("wine")[0])
    assert run_command(["run", "canopy", "points.npy", "--cpu", "-o", "out", "--checkpoint", "kept"]) == 0
    assert sorted(os.listdir()) == ["out", "points.npy"]


def test_seconds_without_a_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    np.save("points.npy", load_points("wine")[0])
    assert run_command(["run", "canopy", "points.npy", "--cpu", "-o", "out", "--checkpoint-seconds", "5"]) == 2
    assert "--checkpoint-seconds needs --checkpoint" in capsys.readouterr().err
