"""One loop over tasks, divided among threads of this process.

The kernels release the GIL, so plain threads are enough. Compared with kernels that use Numba's `prange`, they compile
several times faster, need no OpenMP runtime (which does not survive a fork), balance the load if other processes use
the cores, and allow Ctrl-C between tasks. Each task takes ~10 us in addition to its work, so it should process at least
a million pairs.

A thread without work waits `KEPT_SECONDS` for more, because starting a thread takes as long as a pass over the pairs of
a thousand rows.

The number of threads is the share of a rank on a Dask worker (`share`), else OMP_NUM_THREADS if it is set, else the
number of cores on which this process may run.

A Dask nanny sets OMP_NUM_THREADS for the worker that it starts, in the environment of its own process, and does not
remove the variable afterwards. A process that has started a ``LocalCluster`` would then compute on one core until it
ends. So this module ignores the variable if a nanny of this process has set it. The variable's value shows this, and so
does its position in the environment, which keeps the order in which variables were set.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
import sys
import threading
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from pathlib import Path
from typing import ClassVar

__all__ = ["rows_of_a_task", "run_tasks", "share", "thread_count"]

TASK_ELEMENTS = 1 << 20
VARIABLE = "OMP_NUM_THREADS"
KEPT_SECONDS = 10.0
_SHARE: ContextVar[int] = ContextVar("share", default=0)


class _Helper:
    """A thread that runs the functions it is given, one after the other."""

    idle: ClassVar[list[_Helper]] = []  # append, pop and remove of a list are atomic

    def __init__(self) -> None:
        self._given: queue.SimpleQueue[tuple[Callable[[], None], Callable[[None], None]]] = queue.SimpleQueue()
        threading.Thread(target=self._work, name="mgclust-kernels", daemon=True).start()

    @classmethod
    def begin(cls, work: Callable[[], None], done: Callable[[None], None]) -> None:
        """Let an idle or a new thread call `work`, which must not raise an error, and then `done`."""
        try:
            helper = cls.idle.pop()
        except IndexError:
            helper = cls()
        helper._given.put((work, done))

    def _work(self) -> None:
        while True:
            try:
                work, done = self._given.get(timeout=KEPT_SECONDS)
            except queue.Empty:
                try:
                    self.idle.remove(self)
                except ValueError:  # this thread has just been taken, and its work will arrive
                    continue
                return
            work()
            del work  # which also frees the arrays
            self.idle.append(self)
            done(None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_Helper.idle.clear)  # a child has only the thread that forked


def thread_count() -> int:
    """Return the number of threads that a kernel uses."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    if _SHARE.get():
        return min(_SHARE.get(), cores)
    asked = os.environ.get(VARIABLE, "")
    number = asked.split(",")[0].strip()
    counts = number.isdigit() and int(number) > 0 and not _left_by_a_nanny(asked)
    return min(int(number), cores) if counts else cores


@contextlib.contextmanager
def share(threads: int) -> Iterator[None]:
    """Let kernels called in the ``with`` block use this number of threads, whatever the environment requests.

    Parameters
    ----------
    threads : int
        Number of threads, at least 1.
    """
    token = _SHARE.set(threads)
    try:
        yield
    finally:
        _SHARE.reset(token)


def _left_by_a_nanny(asked: str) -> bool:
    dask = sys.modules.get("dask.config")
    nannys = dask.get("distributed.nanny.pre-spawn-environ", None) if dask else None
    if not isinstance(nannys, dict) or asked != str(nannys.get(VARIABLE)) or _started_with_limit():
        return False
    names = list(os.environ)
    earlier = names[: names.index(VARIABLE)]  # a nanny sets variables in the order of its configuration
    before = list(itertools.takewhile(lambda name: name != VARIABLE, nannys))
    return bool(before) and set(before) <= set(earlier)


@functools.cache
def _started_with_limit() -> bool:
    """Return whether the variable was set when this process began, as in workers and other children of a nanny."""
    try:
        return f"\0{VARIABLE}=".encode() in b"\0" + Path("/proc/self/environ").read_bytes()
    except OSError:
        return False


def rows_of_a_task(columns: int) -> int:
    """Return the number of rows of a matrix per task, so that waking a thread for a task pays."""
    return max(1, TASK_ELEMENTS // max(columns, 1))


def run_tasks(count: int, task: Callable[[int, int], None], most: int | None = None) -> None:
    """Call ``task(index, thread)`` for every index below count, each once, in any order.

    Parameters
    ----------
    count : int
        Number of tasks.
    task : callable
        A function that writes only to places to which no other task writes, or which belong to its thread number.
    most : int, optional
        Largest number of threads; by default, the result of `thread_count`.
    """
    threads = min(most or thread_count(), count) if count > 1 else count
    if threads <= 1:
        for index in range(count):
            task(index, 0)
        return
    indices = itertools.count()  # next(indices) is atomic
    failures: list[BaseException] = []

    def work(thread: int) -> None:
        try:
            while not failures and (index := next(indices)) < count:
                task(index, thread)
        except BaseException as error:
            failures.append(error)

    done: queue.SimpleQueue[None] = queue.SimpleQueue()  # one per call, as an interrupted call does not empty it
    for number in range(1, threads):
        _Helper.begin(functools.partial(work, number), done.put)
    work(0)
    for _ in range(1, threads):
        done.get()
    if failures:
        raise failures[0]
