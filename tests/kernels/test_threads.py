"""Tasks and threads: each task once, whatever their number, and an error of one ends all."""

from __future__ import annotations

import os
import threading

import pytest

from mgclust.kernels.toolkit import threads


@pytest.mark.parametrize(
    ("asked", "expected"),
    [("", 4), ("1", 1), ("3", 3), (" 2 , 8", 2), ("99", 4), ("0", 4), ("-1", 4), ("many", 4)],
)
def test_number_of_threads(asked, expected, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 2, 4, 6}, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", asked)
    assert threads.thread_count() == expected


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
