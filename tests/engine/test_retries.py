"""Runs that lose workers and are tried again: the same bits, a warning, and nothing to be done by the user."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import signal
import threading
import time
import warnings

import numpy as np
import pytest

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    Canopy,
    Communities,
    DensityPeaks,
    FuzzyCMeans,
    kneighbors_graph,
    nearest_neighbors,
    silhouette_samples,
)
from mgclust.algorithms import base
from mgclust.base.errors import ClusterUnavailableError, RetryWarning, WorkerLost
from mgclust.cli import run_command
from mgclust.data import open_dataset
from mgclust.engine import checkpoint_memory, retries, spmd
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.checkpoint_memory import MemoryCheckpoint, files_of
from mgclust.engine.dask import run_monitor
from mgclust.engine.dask.cluster import connect
from mgclust.engine.retries import HeldCheckpoint, RunAttempts
from support import lease_cases, rank_jobs
from support.checkpoint_cases import groups
from support.waiting import wait_for

N = 4500  # five blocks
STEPS = 400


def expected(steps=STEPS):
    """What `count_up` finds, in one process."""
    rows, total = np.arange(N), np.zeros(2, np.int64)
    for done in range(1, steps + 1):
        rows = (3 * rows + done) % 1009
        total = np.array([total[1], (7 * total[0] + 5 * total[1] + rows.sum()) % 1013])
    return total.tolist(), rows


# In this process.


def in_process(checkpoint, folder, steps):
    dataset = open_dataset(np.zeros((N, 2), np.float32))
    with connect(None, "cpu") as cluster:
        spec = spmd.RunSpec(rank_jobs.count_up, {"folder": str(folder), "steps": steps}, checkpoint=checkpoint)
        return spmd.run(spec, dataset, cluster)


def test_a_rank_resumes_from_what_its_caller_has_taken(tmp_path):
    in_process(MemoryCheckpoint("a", seconds=0.0, share=1.0), tmp_path, 9)
    assert checkpoint_memory.take("a", 0, 8) is None  # older than what it holds
    files = checkpoint_memory.take("a", 0, 9)
    assert checkpoint_memory.take("a", 0, 9) is None
    for array in files.values():  # as those that Dask has sent
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
    outcome = in_process(MemoryCheckpoint("b", files_of(files, range(5))), tmp_path, 12)
    assert outcome.value == (expected(12)[0], 9) and np.array_equal(outcome.arrays["rows"], expected(12)[1])
    assert sorted(files_of(files, [1, 3])) == ["control.json", "rows.00001.npy", "rows.00003.npy", "total.npy"]
    checkpoint_memory.forget("b", 0)


@pytest.mark.parametrize("limit", ["LARGEST", "SMALL"])
def test_a_state_that_is_too_large_is_not_held(limit, tmp_path, monkeypatch):
    monkeypatch.setattr(checkpoint_memory, limit, 100)
    monkeypatch.setattr(checkpoint_memory.MemoryCheckpointer, "_room", lambda self: 0, raising=False)
    monkeypatch.setattr("mgclust.engine.rank._room", lambda assignment: 0)
    in_process(MemoryCheckpoint("large", seconds=0.0, share=1.0), tmp_path, 3)
    assert not checkpoint_memory._HELD


LOST = "worker tcp://1 of rank 1 was lost during the run: its process died. Run again."


@pytest.mark.parametrize(
    ("kept", "checkpoint", "n_workers", "where"),
    [
        (None, None, None, r"rank 1 was lost during the run: its process died\. The run restarts from its beginning"),
        (
            HeldCheckpoint({}, time.monotonic()),
            None,
            2,
            r"resumes from its checkpoint \(\d+ s old\) once n_workers=2 workers are free",
        ),
        (None, CheckpointConfig("/kept"), None, r"resumes from its last checkpoint in '/kept' \(retry 1 of 2\)"),
    ],
)
def test_each_retry_is_one_warning_and_the_last_loss_is_raised(kept, checkpoint, n_workers, where):
    attempts, spec = RunAttempts(2, 1, 4, n_workers), spmd.RunSpec(rank_jobs.count_up, checkpoint=checkpoint)
    with pytest.warns(RetryWarning, match=where) as told:
        attempts.after_loss(WorkerLost(LOST), spec, 3, kept, frozenset({"a"}), 99.0)
    assert len(told) == 1 and attempts.least == attempts.most == 3 and attempts.start.checkpoint is kept
    assert attempts.start.patience == (retries.REPLACEMENT_SECONDS if n_workers is None else float("inf"))
    with pytest.warns(RetryWarning, match="retry 2 of 2"):
        attempts.after_loss(WorkerLost(LOST), spec, 3, kept, frozenset({"b"}), 0.1)
    assert attempts.start.without == {"a", "b"} and attempts.used == 2
    with pytest.raises(WorkerLost, match=r"rank 1 was lost .* retries=2 had been used up"):
        attempts.after_loss(WorkerLost(LOST), spec, 3, kept, frozenset(), 1.0)
    missing = ClusterUnavailableError("2 are needed; start some.")
    if n_workers is None:  # first on fewer workers
        attempts.after_wait(missing)
        assert (attempts.least, attempts.most, attempts.start.patience) == (1, 4, float("inf"))
        assert attempts.not_replaced(1) == 2
    with pytest.raises(WorkerLost, match=r"could not be tried again: 2 are needed; start some\."):
        attempts.after_wait(missing)


def test_a_run_of_one_rank_waits_for_a_replacement():
    """No fewer workers could do: the limit is that of a new run."""
    attempts = RunAttempts(1, 1, 1, None)
    with pytest.warns(RetryWarning):
        attempts.after_loss(WorkerLost(LOST), spmd.RunSpec(rank_jobs.count_up), 1, None, frozenset(), 0.1)
    assert attempts.start.patience == float("inf")
    with pytest.raises(WorkerLost, match="could not be tried again: 1 are needed"):
        attempts.after_wait(ClusterUnavailableError("1 are needed."))


def test_without_retries_a_loss_is_raised_as_it_is():
    error = WorkerLost(LOST)
    with pytest.raises(WorkerLost) as raised:
        RunAttempts(0, 1, 2, None).after_loss(error, spmd.RunSpec(rank_jobs.count_up), 2, None, frozenset(), 1.0)
    assert raised.value is error


def test_a_lease_leaves_out_workers_that_are_silent():
    plugin = lease_cases.leases_of([lease_cases.worker(each) for each in ("tcp://a:1", "tcp://b:1")], ("c",))
    assert lease_cases.ask(plugin, "1", "c", 1, without=["of tcp://a:1"]) == {"tcp://b:1": "of tcp://b:1"}
    assert lease_cases.ask(plugin, "2", "c", 2, without=["of tcp://a:1"]) == {}
    assert lease_cases.ask(plugin, "3", "c", 1) == {"tcp://a:1": "of tcp://a:1"}  # "2" does not delay it


def test_the_command_line_hands_retries_over(monkeypatch, tmp_path):
    given = []
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(60, 2)))
    monkeypatch.setattr(base, "connect", lambda **how: given.append(how["retries"]) or connect(None, "cpu"))
    run = ["run", "fuzzy-c-means", str(tmp_path / "x.npy"), "--cpu", "--no-report", "--n-clusters", "2"]
    for options in (["--retries", "3"], []):
        assert run_command([*run, "-o", str(tmp_path / f"out{len(options)}"), *options]) == 0
    assert given == [3, 1]


# On workers.


@pytest.fixture
def often(monkeypatch):
    """Checkpoints in memory as often as can be."""
    monkeypatch.setattr(spmd, "MemoryCheckpoint", functools.partial(MemoryCheckpoint, seconds=0.0, share=1.0))
    # A nanny on a busy machine may take longer than half a minute to start a worker.
    monkeypatch.setattr("mgclust.engine.dask.cluster.WORKERS_TIMEOUT", 120.0)


@pytest.fixture
def own_client():
    """A client of three workers that may be retired."""
    import distributed

    with (
        distributed.LocalCluster(
            n_workers=3, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=logging.CRITICAL
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@contextlib.contextmanager
def once(condition, action):
    """Do something in a thread as soon as a condition holds."""

    def act():
        wait_for(condition)
        action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join()


def names(folder, pattern):
    return sorted(path.name for path in folder.glob(pattern))


def pid(folder, rank):
    return int((folder / f"pid-{rank}").read_text())


def run_and_lose(client, folder, lose, n_workers=None, size=3, checkpoint=None):
    """Run `count_up` on some workers, and lose some once it has computed for a while; where it resumed."""

    def ready():
        return len(names(folder, "from-0-*")) == size

    def late():
        time.sleep(1.0)
        lose()

    spec = spmd.RunSpec(
        rank_jobs.count_up, {"folder": str(folder), "steps": STEPS, "pause": 0.01}, checkpoint=checkpoint
    )
    dataset = open_dataset(np.zeros((N, 2), np.float32))
    with (
        connect(client, "cpu", n_workers=n_workers, retries=1) as cluster,
        once(ready, late),
        pytest.warns(RetryWarning, match=r"\(retry 1 of 1\)") as told,
    ):
        outcome = spmd.run(spec, dataset, cluster)
    total, began = outcome.value
    assert total == expected()[0] and np.array_equal(outcome.arrays["rows"], expected()[1])
    assert len(told) == 1 and outcome.hardware["retries"] == 1
    return began, outcome, str(told[0].message)


@pytest.mark.slow
@pytest.mark.parametrize("victims", [[0], [2], [0, 1]])
def test_killed_workers(client, often, tmp_path, victims):
    def kill():
        for rank in victims:
            os.kill(pid(tmp_path, rank), signal.SIGKILL)

    began, outcome, told = run_and_lose(client, tmp_path, kill, n_workers=3)
    assert began > 0 and outcome.ranks == 3
    assert "was lost during the run" in told and "resumes from its checkpoint (" in told


@pytest.mark.slow
def test_a_killed_worker_of_a_run_with_checkpoints_on_disk(client, tmp_path):
    kept = CheckpointConfig(tmp_path / "kept", 0.0, 1.0)
    began, _, told = run_and_lose(client, tmp_path, lambda: os.kill(pid(tmp_path, 1), signal.SIGKILL), 3, 3, kept)
    assert began > 0 and f"resumes from its last checkpoint in {str(tmp_path / 'kept')!r}" in told


@pytest.mark.slow
def test_a_stopped_worker_is_left_out(client, often, tmp_path, monkeypatch):
    monkeypatch.setattr(run_monitor, "HEARTBEAT_TIMEOUT_SECONDS", 5.0)
    stopped = []

    def stop():
        stopped.append(pid(tmp_path, 1))
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        began, outcome, told = run_and_lose(client, tmp_path, stop, n_workers=3)
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    assert began > 0 and outcome.ranks == 3 and "has not answered for" in told
    wait_for(lambda: set(client.run(rank_jobs.kept).values()) == {0})


@pytest.mark.slow
def test_a_stopped_worker_whose_place_none_takes_ends_the_run(client, tmp_path, monkeypatch):
    """The scheduler still has the worker, but a run that needs all workers does not wait for it for ever."""
    monkeypatch.setattr(run_monitor, "HEARTBEAT_TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr("mgclust.engine.dask.cluster.WORKERS_TIMEOUT", 2.0)
    stopped = []

    def stop():
        stopped.append(pid(tmp_path, 1))
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        with pytest.raises(WorkerLost, match=r"has not answered for .* could not be tried again"):
            run_and_lose(client, tmp_path, stop, n_workers=4, size=4)
    finally:
        os.kill(stopped[0], signal.SIGCONT)
    wait_for(lambda: set(client.run(rank_jobs.kept).values()) == {0})


@pytest.mark.slow
@pytest.mark.parametrize("how", ["scale", "retire"])
def test_workers_that_the_cluster_gives_up(own_client, often, tmp_path, how):
    def lose():
        if how == "scale":
            own_client.cluster.scale(1)
        else:
            address = {value: key for key, value in own_client.run(os.getpid).items()}[pid(tmp_path, 2)]
            own_client.retire_workers([address])

    began, outcome, _ = run_and_lose(own_client, tmp_path, lose)
    assert began > 0 and outcome.ranks == (1 if how == "scale" else 2)
    assert "were not replaced" in outcome.hardware["fewer_because"]


@pytest.mark.slow
@pytest.mark.parametrize("how", ["kill", "restart"])
def test_the_only_worker_of_a_run(own_client, often, tmp_path, how):
    def lose():
        if how == "kill":
            os.kill(pid(tmp_path, 0), signal.SIGKILL)
        else:
            own_client.restart()

    own_client.cluster.scale(1)
    wait_for(lambda: len(own_client.scheduler_info()["workers"]) == 1)
    _, outcome, _ = run_and_lose(own_client, tmp_path, lose, size=1)
    assert outcome.ranks == 1


@pytest.mark.slow
def test_restart_of_all_workers(own_client, often, tmp_path):
    began, _, _ = run_and_lose(own_client, tmp_path, own_client.restart)
    assert began > 0


@pytest.mark.slow
def test_a_number_of_workers_that_does_not_come_back(own_client, often, tmp_path, monkeypatch):
    monkeypatch.setattr("mgclust.engine.dask.cluster.WORKERS_TIMEOUT", 2.0)
    with pytest.raises(WorkerLost, match=r"of rank \d was lost .* could not be tried again: .* 3 are needed"):
        run_and_lose(own_client, tmp_path, functools.partial(own_client.cluster.scale, 2), n_workers=3)


@pytest.mark.slow
def test_a_worker_that_is_lost_again(client, tmp_path):
    dataset = open_dataset(np.zeros((N, 2), np.float32))
    with (
        connect(client, "cpu", n_workers=2, retries=1) as cluster,
        pytest.raises(WorkerLost, match="retries=1 had been used up"),
        pytest.warns(RetryWarning),
    ):
        spmd.run(spmd.RunSpec(rank_jobs.die, {"rank": 1}), dataset, cluster)


@pytest.mark.slow
def test_errors_of_the_run_and_interruptions_are_no_losses(client):
    dataset = open_dataset(np.zeros((N, 2), np.float32))
    with connect(client, "cpu", n_workers=2, retries=3) as cluster, warnings.catch_warnings():
        warnings.simplefilter("error", RetryWarning)
        with pytest.raises(ZeroDivisionError):
            spmd.run(spmd.RunSpec(rank_jobs.fail_on, {"rank": 1, "kind": "code"}), dataset, cluster)


def rows():
    return groups((1500, 900, 700), 6, 3, 0)


# Methods by name: what is computed, how, and the stages in which a worker is lost, or the question whether to save.
METHODS = {
    "density peaks": (
        lambda **how: DensityPeaks(3, algorithm="brute", halo=True, **how).fit(rows()),
        ("dc", "rho", "delta", "halo", 3),
    ),
    "fuzzy c-means": (
        lambda **how: FuzzyCMeans(5, n_init=2, tol=0, max_iter=40, **how).fit(rows()),
        ("init", "labels", 3),
    ),
    "canopies": (
        lambda **how: Canopy(t1=0.2, t2=0.1, **how).fit(np.random.default_rng(0).normal(size=(30_000, 3))),
        ("centers", "memberships", 3),
    ),
    "affinity propagation": (lambda **how: AffinityPropagation(**how).fit(rows()[:1500]), ("messages", 2)),
    "adaptive": (lambda **how: AdaptiveAffinityPropagation(max_iter=400, **how).fit(rows()[:1100]), ("scan", 3)),
    "communities": (
        lambda **how: Communities(**how).fit(kneighbors_graph(rows(), 8, client=None, device="cpu")),
        ("communities",),
    ),
    "silhouettes": (lambda **how: silhouette_samples(rows(), np.arange(3100) % 3, **how), ("silhouette",)),
    "nearest neighbours": (lambda **how: nearest_neighbors(rows(), 5, **how), ("neighbors",)),
}


def cases():
    return [(method, stage) for method, (_, stages) in METHODS.items() for stage in stages]


def arrays_of(found):
    """All arrays of what a method has found; of sparse ones their parts."""
    if hasattr(found, "result_"):
        each = found.result_
        found = (each.labels, *(each.arrays[name] for name in sorted(each.arrays)))
    parts = found if isinstance(found, tuple) else (found,)
    sparse = ("indptr", "indices", "data")
    return [getattr(part, name) for part in parts for name in (sparse if hasattr(part, "indptr") else ("real",))]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::mgclust.ClusteringWarning")
@pytest.mark.parametrize(("method", "stage"), cases())
def test_methods_find_the_same_bits(client, often, method, stage):
    call = METHODS[method][0]
    right = arrays_of(call(client=None, device="cpu"))
    victim = sorted(client.run(os.getpid))[1]
    client.run(rank_jobs.die_at, stage, workers=[victim])
    try:
        with pytest.warns(RetryWarning, match=f"{victim} of rank .* was lost"):
            found = arrays_of(call(client=client, device="cpu", n_workers=4, retries=1))
    finally:
        client.run(rank_jobs.die_at, None)
    for ours, theirs in zip(found, right, strict=True):
        np.testing.assert_array_equal(ours, theirs)
