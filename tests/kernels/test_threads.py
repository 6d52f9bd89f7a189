"""Tasks and threads: each task once, whatever their number, and an error of one ends all."""

from __future__ import annotations

import gc
import os
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
import weakref

import numpy as np
import pytest

from mgclust.kernels.toolkit import threads

NANNYS = ("MALLOC_TRIM_THRESHOLD_", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("", 4), ("1", 1), ("3", 3), (" 2 , 8", 2), ("99", 4), ("0", 4), ("-1", 4), ("many", 4)],
)
def test_number_of_threads(asked, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6}, raising=False)
    for name in NANNYS:  # a nanny may have left them, and their place tells
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads.thread_count() == expected
    with threads.share(3):
        assert threads.thread_count() == 3
    assert threads.thread_count() == expected


@pytest.mark.parametrize(
    ("earlier", "counts"),
    [
        ({}, False),
        ({"OMP_NUM_THREADS": "1"}, True),
        ({"OMP_NUM_THREADS": "2"}, True),
        ({"MALLOC_TRIM_THRESHOLD_": "0", "OPENBLAS_NUM_THREADS": "2"}, False),
    ],
)
def test_what_a_nanny_leaves_does_not_limit_the_process_that_started_it(earlier, counts, monkeypatch):
    from distributed.nanny import _get_env_variables

    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6}, raising=False)
    for name in NANNYS:
        monkeypatch.delenv(name, raising=False)
    for name, value in earlier.items():
        monkeypatch.setenv(name, value)
    for name, value in _get_env_variables("distributed.nanny.pre-spawn-environ").items():  # as a nanny does
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(threads, "_started_with_limit", lambda: False)
    assert threads.thread_count() == (int(os.environ["OMP_NUM_THREADS"]) if counts else 4)
    monkeypatch.setattr(threads, "_started_with_limit", lambda: True)  # as in the worker itself
    assert threads.thread_count() == int(os.environ["OMP_NUM_THREADS"])


@pytest.mark.slow
def test_a_local_cluster_leaves_its_process_all_cores():
    script = """if __name__ == "__main__":
        import os
        from distributed import Client, LocalCluster
        from mgclust.kernels.toolkit.threads import thread_count
        with LocalCluster(n_workers=1, threads_per_worker=1, dashboard_address=None) as own, Client(own) as client:
            print(os.environ["OMP_NUM_THREADS"], thread_count(), client.submit(thread_count).result())
        """
    environment = {name: value for name, value in os.environ.items() if name not in NANNYS}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == ["1", str(len(os.sched_getaffinity(0))), "1"], done.stderr


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 300])
def test_each_task_once(count, monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    done, numbers, together = [], {}, threading.Barrier(3, timeout=60)

    def task(index, thread):
        if count == 300:
            together.wait()  # so that all threads have their turn
        done.append(index)
        numbers.setdefault(thread, set()).add(threading.get_ident())

    threads.run_tasks(count, task)
    assert sorted(done) == list(range(count))
    assert set(numbers) <= set(range(min(3, count)))
    assert all(len(threads_of_number) == 1 for threads_of_number in numbers.values())  # what it writes is its own


def test_threads_are_kept_for_a_while(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 3)
    monkeypatch.setattr(threads, "KEPT_SECONDS", 0.5)
    held, kept = np.empty(4), set()
    freed = weakref.ref(held)
    for _ in range(20):
        together = threading.Barrier(3, timeout=60)

        def task(*_, together=together, held=held):
            together.wait()
            kept.add(threading.get_ident())

        threads.run_tasks(3, task)
    assert len(kept) == 3
    del task, held
    gc.collect()
    assert freed() is None  # a thread that waits holds nothing
    deadline = time.monotonic() + 60
    while threads._Helper.idle and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not threads._Helper.idle
    threads.run_tasks(3, lambda *_: None)  # new ones


def test_an_interrupted_call_leaves_nothing_to_later_ones(monkeypatch):
    """One thread is still at work when its call has been given up; no later call may take its end for its own."""
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    late, begun = threading.Event(), threading.Event()
    usual = queue.SimpleQueue
    count = 0

    class Interrupted:
        def __init__(self):
            self.own = usual()
            self.put = self.own.put

        def get(self, *arguments, **options):
            raise KeyboardInterrupt

    def task(index, _):
        if index == 0:
            assert begun.wait(60)
        else:
            begun.set()
            assert late.wait(60)

    threads.run_tasks(2, lambda *_: None)  # so that one is idle
    monkeypatch.setattr(threads.queue, "SimpleQueue", Interrupted)
    with pytest.raises(KeyboardInterrupt):
        threads.run_tasks(2, task)
    monkeypatch.setattr(threads.queue, "SimpleQueue", usual)
    late.set()
    for _ in range(50):
        done = []
        threads.run_tasks(2, lambda index, _, done=done: (time.sleep(0.001), done.append(index)))
        count += len(done)
    assert count == 100


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows has no fork")
def test_a_forked_process_has_threads_of_its_own(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    threads.run_tasks(2, lambda *_: None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        done = []
        threads.run_tasks(2, lambda index, _: done.append(index))
        os._exit(sorted(done) != [0, 1])
    deadline, ended = time.monotonic() + 60, (0, 0)
    while ended == (0, 0) and time.monotonic() < deadline:
        ended = os.waitpid(child, os.WNOHANG)
        time.sleep(0.01)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
    assert ended == (child, 0)


def test_no_task_begins_after_an_error(monkeypatch):
    monkeypatch.setattr(threads, "thread_count", lambda: 2)
    begun, failed = [], threading.Event()

    def task(index, _):
        begun.append(index)
        if index == 0:
            failed.set()
            raise ZeroDivisionError("the first")
        assert failed.wait(60)
        threading.Event().wait(0.2)  # the other thread notes its error meanwhile

    with pytest.raises(ZeroDivisionError, match="the first"):
        threads.run_tasks(20, task)
    assert len(begun) < 10


@pytest.mark.parametrize(
    ("columns", "expected"), [(0, 1 << 20), (1, 1 << 20), (1 << 20, 1), (1 << 21, 1), (1000, 1048)]
)
def test_rows_of_a_task(columns, expected):
    assert threads.rows_of_a_task(columns) == expected
