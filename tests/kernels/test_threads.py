"""Tasks and threads: each task once, whatever their number, and an error of one ends all."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

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
