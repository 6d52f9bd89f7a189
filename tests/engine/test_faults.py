"""What happens to a run when a worker dies, hangs, or the caller goes away."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import distributed
import numpy as np
import pytest

from mgclust import DensityPeaks, FuzzyCMeans
from mgclust.base.errors import CollectiveTimeout, RetryWarning, RunFailed, WorkerLost
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask import driver, run_monitor
from mgclust.engine.dask.cluster import connect
from support import rank_jobs
from support.waiting import wait_for

pytestmark = pytest.mark.slow

SOON = 60.0  # seconds, on a busy machine; what is not noticed lasts for minutes
ENDLESS = 6000  # steps of a run of some minutes


@pytest.fixture
def dataset():
    return open_dataset(np.random.default_rng(3).normal(size=(4500, 3)).astype(np.float32))


def names(folder, pattern):
    return sorted(path.name for path in folder.glob(pattern))


@contextlib.contextmanager
def when(condition, action):
    """Do something in a thread as soon as a condition holds."""

    def act():
        wait_for(condition)
        action()

    thread = threading.Thread(target=act, daemon=True)
    thread.start()
    yield
    thread.join()


@pytest.mark.parametrize("victim", [0, 2])
def test_killed_worker_ends_the_run_and_is_named(client, dataset, tmp_path, victim):
    """The others come back and can be used at once; the nanny's new worker does not disturb."""
    killed = []

    def kill():
        os.kill(int((tmp_path / f"pid-{victim}").read_text()), signal.SIGKILL)
        killed.append(time.monotonic())

    with connect(client, "cpu") as cluster, when(lambda: len(names(tmp_path, "pid-*")) == 4, kill):
        with pytest.raises(WorkerLost, match=rf"rank {victim} was lost") as caught:
            spmd.run(spmd.RunSpec(rank_jobs.slow, {"folder": str(tmp_path), "tiles": ENDLESS}), dataset, cluster)
        assert time.monotonic() - killed[0] < SOON
        assert cluster.workers[victim] in str(caught.value)
    survivors = [f"left-{rank}" for rank in range(4) if rank != victim]
    assert names(tmp_path, "left-*") == survivors
    with connect(client, "cpu", n_workers=3) as cluster:
        spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster)
    client.wait_for_workers(4, timeout=SOON)
    with connect(client, "cpu") as cluster:
        assert spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster).ranks == 4


@pytest.mark.parametrize("n_workers", [1, 3])
def test_a_task_that_a_client_cancels_is_no_lost_worker(client, dataset, tmp_path, n_workers):
    """The message named a dead worker, which often "ran out of memory"."""

    def tasks(dask_scheduler):
        return [key for key in dask_scheduler.tasks if str(key).startswith("mgclust-slow")]

    def cancel():
        with distributed.Client(client.scheduler.address, set_as_default=False) as other:
            futures = [distributed.Future(key, other) for key in other.run_on_scheduler(tasks)]
            other.cancel(futures, force=True, reason="a mistake")

    begun = when(lambda: len(names(tmp_path, "pid-*")) == n_workers, cancel)
    said = r"task of rank \d was cancelled by a client of the cluster \(Client.cancel, reason: a mistake\)\. Run again"
    with warnings.catch_warnings(), connect(client, "cpu", n_workers=n_workers, retries=1) as cluster, begun:
        warnings.simplefilter("error", RetryWarning)
        with pytest.raises(RunFailed, match=said) as caught:
            spmd.run(spmd.RunSpec(rank_jobs.slow, {"folder": str(tmp_path), "tiles": ENDLESS}), dataset, cluster)
    assert not isinstance(caught.value, WorkerLost)
    wait_for(lambda: len(names(tmp_path, "left-*")) == n_workers)
    with connect(client, "cpu") as cluster:
        assert spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster).ranks == 4


def test_worker_that_dies_in_a_collective(client, dataset):
    began = time.monotonic()
    with connect(client, "cpu") as cluster, pytest.raises(WorkerLost, match="rank 3"):
        spmd.run(spmd.RunSpec(rank_jobs.die, {"rank": 3}), dataset, cluster)
    assert time.monotonic() - began < SOON


def test_worker_that_dies_while_it_loads(client, dataset):
    with connect(client, "cpu") as cluster, pytest.raises(WorkerLost):
        spmd.run(spmd.RunSpec(rank_jobs.where), rank_jobs.Deadly((5000, 2)), cluster)


def run_with_a_stopped_worker(client, dataset, folder, timeout):
    """Stop the process of rank 1 once all ranks compute; it continues afterwards."""
    stopped, given = [], {"folder": str(folder), "tiles": ENDLESS}

    def freeze():
        stopped.append(int((folder / "pid-1").read_text()))
        os.kill(stopped[0], signal.SIGSTOP)

    try:
        with connect(client, "cpu") as cluster, when(lambda: len(names(folder, "pid-*")) == 4, freeze):
            spmd.run(spmd.RunSpec(rank_jobs.slow, given, timeout=timeout), dataset, cluster)
    finally:
        os.kill(stopped[0], signal.SIGCONT)


def check_that_the_next_run_works(client, dataset, folder):
    wait_for(lambda: "left-1" in names(folder, "left-*"))
    with connect(client, "cpu") as cluster:
        spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster)


def test_worker_that_hangs(client, dataset, tmp_path, monkeypatch):
    monkeypatch.setattr(driver, "STOP_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(driver, "NOTIFY_LIMIT_SECONDS", 0.5)
    with pytest.raises(CollectiveTimeout, match=r"rank 1 .* timeout=5 s"):
        run_with_a_stopped_worker(client, dataset, tmp_path, timeout=5.0)
    check_that_the_next_run_works(client, dataset, tmp_path)


def test_worker_that_is_stopped(client, dataset, tmp_path, monkeypatch):
    """It is named long before the ranks that wait for it give up."""
    monkeypatch.setattr(run_monitor, "HEARTBEAT_TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr(driver, "STOP_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(driver, "NOTIFY_LIMIT_SECONDS", 0.5)
    with pytest.raises(WorkerLost, match=r"of rank 1 has not answered for \d+ s: its process is stopped or hangs"):
        run_with_a_stopped_worker(client, dataset, tmp_path, timeout=80.0)
    check_that_the_next_run_works(client, dataset, tmp_path)


@pytest.mark.parametrize("rows", ["of the data", "to predict"])
def test_worker_that_is_stopped_while_it_is_sent_rows(client, monkeypatch, rows):
    monkeypatch.setattr(run_monitor, "HEARTBEAT_TIMEOUT_SECONDS", 5.0)
    monkeypatch.setattr(driver, "STOP_GRACE_SECONDS", 0.5)
    monkeypatch.setattr(driver, "NOTIFY_LIMIT_SECONDS", 0.5)
    many = np.random.default_rng(0).normal(size=(1 << 19, 2))
    model = DensityPeaks(2, client=client, device="cpu", n_workers=4, retries=0).fit(many[:900])
    stopped = next(iter(client.run(os.getpid).values()))
    os.kill(stopped, signal.SIGSTOP)
    again = threading.Timer(SOON, os.kill, (stopped, signal.SIGCONT))
    again.start()
    began = time.monotonic()
    try:
        with pytest.raises(WorkerLost, match=r"has not answered for \d+ s: its process is stopped or hangs"):
            FuzzyCMeans(2, client=client, n_workers=4, retries=0).fit(many) if rows == "of the data" else model.predict(
                many
            )
        assert time.monotonic() - began < SOON / 2
    finally:
        again.cancel()
        os.kill(stopped, signal.SIGCONT)
    assert len(model.predict(many[:900])) == 900


def test_ctrl_c_stops_all_ranks_before_it_is_raised(client, dataset, tmp_path):
    def interrupt():
        os.kill(os.getpid(), signal.SIGINT)

    with connect(client, "cpu") as cluster, when(lambda: len(names(tmp_path, "pid-*")) == 4, interrupt):
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            spmd.run(spmd.RunSpec(rank_jobs.slow, {"folder": str(tmp_path), "tiles": ENDLESS}), dataset, cluster)
        assert time.monotonic() - began < SOON
        assert len(names(tmp_path, "left-*")) == 4
        assert not names(tmp_path, "done-*")
        spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster)


def test_two_runs_at_once_wait_for_each_other(client, dataset, tmp_path):
    """From two threads of one client, and from a second client."""
    import distributed

    def one(which):
        folder = tmp_path / str(which)
        folder.mkdir()
        parameters = {"folder": str(folder), "tiles": 10, "seconds": 0.02}
        with connect(other if which % 2 else client, "cpu", n_workers=2 + which % 3) as cluster:
            spmd.run(spmd.RunSpec(rank_jobs.slow, parameters), dataset, cluster)
            return len(names(folder, "done-*")) == cluster.size

    address = client.scheduler.address
    with distributed.Client(address, set_as_default=False) as other, ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(6)))


def test_a_caller_that_dies_frees_ranks_and_lock(client, dataset, tmp_path):
    code = (
        "import numpy as np, support.rank_jobs as rank_jobs\n"
        "from mgclust.data import open_dataset\n"
        "from mgclust.engine import spmd\n"
        "from mgclust.engine.dask.cluster import connect\n"
        f"with connect({client.scheduler.address!r}, 'cpu') as cluster:\n"
        f"    spec = spmd.RunSpec(rank_jobs.slow, dict(folder={str(tmp_path)!r}, tiles={ENDLESS}))\n"
        "    spmd.run(spec, open_dataset(np.ones((9, 2))), cluster)\n"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    caller = subprocess.Popen([sys.executable, "-c", code], env=environment)
    try:
        wait_for(lambda: len(names(tmp_path, "pid-*")) == 4)
    finally:
        caller.kill()
        caller.wait()
    began = time.monotonic()
    with connect(client, "cpu") as cluster:
        spmd.run(spmd.RunSpec(rank_jobs.collectives), dataset, cluster)
    assert time.monotonic() - began < SOON
    assert len(names(tmp_path, "left-*")) == 4
    assert not names(tmp_path, "done-*")


def test_nothing_is_kept_on_workers_afterwards(client, dataset):
    assert set(client.run(rank_jobs.kept).values()) == {0}


SCRIPT = """
import sys, numpy as np, support.rank_jobs as rank_jobs
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect
if __name__ == "__main__":
    with connect("local", "cpu", n_workers=2) as cluster:
        spec = spmd.RunSpec(rank_jobs.slow, {"folder": sys.argv[1], "tiles": 6000})
        spmd.run(spec, open_dataset(np.ones((9, 2))), cluster)
"""


def test_ctrl_c_in_a_terminal_reaches_a_local_cluster_in_order(tmp_path):
    """A terminal interrupts the workers, too: they should leave it to the caller."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    caller = subprocess.Popen(
        [sys.executable, script, tmp_path],
        env={**os.environ, "PYTHONPATH": ":".join(sys.path)},
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        wait_for(lambda: len(names(tmp_path, "pid-*")) == 2)
        os.killpg(caller.pid, signal.SIGINT)
        _, noise = caller.communicate(timeout=SOON)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(caller.pid, signal.SIGKILL)
    assert noise.strip().endswith("KeyboardInterrupt")
    assert "distributed" not in noise.replace("/distributed/", "")
    assert names(tmp_path, "left-*") == ["left-0", "left-1"]
    assert not names(tmp_path, "done-*")
