"""One loop over tasks, shared by this process's threads.

The kernels release the GIL, so plain threads do; compared with Numba's own `prange` this compiles several
times faster, needs no OpenMP runtime (which does not survive a fork), balances the load when other processes
use the cores, and lets Ctrl-C in between tasks. A task costs ~10 us, so make it do at least a million pairs.

Threads: OMP_NUM_THREADS if set (dask's nannies set it), else the cores this process may run on.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable

__all__ = ["rows_of_a_task", "run_tasks", "thread_count"]

TASK_ELEMENTS = 1 << 20


def thread_count() -> int:
    """Number of threads that a kernel uses."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    asked = os.environ.get("OMP_NUM_THREADS", "").split(",")[0].strip()
    return min(int(asked), cores) if asked.isdigit() and int(asked) > 0 else cores


def rows_of_a_task(columns: int) -> int:
    """Number of rows of a matrix that make a task worth waking a thread for."""
    return max(1, TASK_ELEMENTS // max(columns, 1))


def run_tasks(count: int, task: Callable[[int, int], None]) -> None:
    """Call ``task(index, thread)`` for every index below count, each once, in any order.

    Parameters
    ----------
    count : int
        Number of tasks.
    task : callable
        Writes where no other task does, or into what belongs to its thread's number.
    """
    threads = min(thread_count(), count)
    if threads <= 1:
        for index in range(count):
            task(index, 0)
        return
    indices = itertools.count()  # next() on it is atomic
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            while not failures and (index := next(indices)) < count:
                task(index, thread)
        except BaseException as error:
            failures.append(error)

    others = [threading.Thread(target=work, args=(t,), daemon=True) for t in range(1, threads)]
    for other in others:
        other.start()
    work(0)
    for other in others:
        other.join()
    if failures:
        raise failures[0]
