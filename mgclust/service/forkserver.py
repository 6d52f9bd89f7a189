"""A process that has loaded what attempts need, and makes a copy of itself for each of them.

Loading takes seconds, which each job would have to wait for: it has a process of its own, since that process gives up
its rights before it reads any data. The fork server reads nothing of users; orders do not pass through it. It is given
the two pipes of an attempt, and answers with the number of a copy that has nothing else open. A copy leads a session of
its own and is a child of the runner, which adopts it (Linux), so that it outlives the fork server and the runner hears
how it ended.

`multiprocessing` has a fork server as well, which carries out whatever comes by a socket with a name in a temporary
folder. This one has a nameless pair of sockets, of which no attempt has an end.

A copy has only the thread that made it. The fork server therefore runs no others: it loads, and computes nothing;
OpenBLAS ends its threads before a fork and starts them again where they are needed. It does not load CuPy.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import logging
import multiprocessing.util
import os
import select
import socket
import subprocess
import sys
import time
import weakref

import psutil

from mgclust.service.confine import become_subreaper, exit_with_parent
from mgclust.service.supervisor import without_settings

__all__ = ["OPTION", "ForkServer", "serve"]

OPTION = "--fork-server"
LOAD_TIMEOUT_SECONDS = 30.0  # seconds that jobs wait for a new fork server; then their processes load for themselves
ANSWER_TIMEOUT_SECONDS = 5.0  # seconds for a copy
# What most attempts need; of what only some need, each loads its own.
PRELOADED = (
    "mgclust.algorithms", "mgclust.file_run", "mgclust.kernels.pairs.cpu", "mgclust.plots", "mgclust.report",
    "mgclust.service.fetch", "pyarrow.csv", "pyarrow.parquet",
)  # fmt: skip
# A thread of the allocator that comes with Arrow, which tidies up.
ONE_THREAD_ENVIRONMENT = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkServer:
    """The runner's side of it; the process ends with the runner."""

    def __init__(self) -> None:
        become_subreaper()
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = psutil.Popen(
                [sys.executable, "-m", "mgclust.service.attempt", OPTION],
                stdin=theirs.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=ONE_THREAD_ENVIRONMENT | without_settings(),
            )
        self.closed = self._ready = False
        self._load_deadline = time.monotonic() + LOAD_TIMEOUT_SECONDS

    @property
    def pid(self) -> int:
        """Its number."""
        return int(self._process.pid)

    def is_alive(self) -> bool:
        """Whether it runs, and is not stopped."""
        with contextlib.suppress(psutil.Error):
            return bool(self._process.poll() is None and self._process.status() != psutil.STATUS_STOPPED)
        return False

    def is_ready(self) -> bool:
        """Whether it has loaded everything."""
        if not self._ready and self._readable(0):
            self._ready = self._receive() == "ready"
        return self._ready

    def is_loading(self) -> bool:
        """Whether it is worth waiting for."""
        return not self.is_ready() and self.is_alive() and time.monotonic() < self._load_deadline

    def has_failed(self) -> bool:
        """Whether it has ended or is stopped, and another should take its place; one that loads has its time first.

        Without that time, one that cannot load would be started again and again.
        """
        return not self.is_alive() and (self.is_ready() or time.monotonic() > self._load_deadline)

    def fork(self, orders: int, answers: int) -> int | None:
        """Start an attempt.

        Parameters
        ----------
        orders, answers : int
            Descriptors of its standard input and output.

        Returns
        -------
        int or None
            Number of the process, and of its session; or that there is none, and the fork server was ended.
        """
        with contextlib.suppress(OSError, ValueError):
            if self.is_ready() and self.is_alive():
                socket.send_fds(self._socket, [b"copy\n"], [orders, answers])
                if self._readable(ANSWER_TIMEOUT_SECONDS) and (pid := int(self._receive())):
                    return pid
        self.close()
        return None

    def close(self) -> None:
        """End it; its copies live on."""
        self.closed = True
        self._socket.close()
        with contextlib.suppress(psutil.Error):
            self._process.kill()
            self._process.wait(ANSWER_TIMEOUT_SECONDS)

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._socket, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def _receive(self) -> str:
        with contextlib.suppress(OSError):
            return self._socket.recv(64).decode().strip()
        return ""


def serve() -> None:
    """Load, and make copies, until the other end of the standard input is closed; returns in each copy."""
    control = socket.socket(fileno=os.dup(0))
    exit_with_parent(os.getppid(), hide=False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    _load()
    _end_threads()
    gc.collect()
    gc.freeze()  # pages that the collector does not write to stay common
    control.sendall(b"ready\n")
    while True:
        said, pipes, _, _ = socket.recv_fds(control, 64, 2)
        if not said:
            sys.exit()
        if (pid := _fork()) is None:
            os.dup2(pipes[0], 0)
            os.dup2(pipes[1], 1)
            os.dup2(nowhere, 2)
            control.detach()
            os.closerange(3, os.sysconf("SC_OPEN_MAX"))
            _reset_inherited()
            return
        for number in pipes:
            os.close(number)
        control.sendall(b"%d\n" % pid)


def _load() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    from numba import njit

    # Any function will do: with the first, Numba sets up all that it knows, and no threads.
    njit("int64(int64)")(lambda x: x)
    from mgclust.result import installed_versions

    installed_versions()  # each copy would search the packages' metadata again


def _end_threads() -> None:
    """Those of libraries that end them when the process is copied."""
    if not (copy := os.fork()):
        os._exit(0)
    os.waitpid(copy, 0)


def _fork() -> int | None:
    """Make a copy that is the runner's child and leads a session; None in the copy itself."""
    ours, theirs = os.pipe()
    between = os.fork()
    if not between:
        with contextlib.suppress(BaseException):
            if not os.fork():
                os.setsid()
                os.write(theirs, b"%d" % os.getpid())
                return None
        os._exit(0)
    os.close(theirs)
    os.waitpid(between, 0)  # from then on the copy is the runner's
    try:
        return int(os.read(ours, 64) or 0)
    finally:
        os.close(ours)


def _reset_inherited() -> None:
    """What copies must not have in common: NumPy's random numbers, and what is done at the fork server's end.

    `random` sees to its own. What Python itself does at the end of any process stays.
    """
    import numpy as np

    np.random.seed()
    for finalizer in list(weakref.finalize._registry):  # type: ignore[attr-defined]  # temporary folders, for one
        finalizer.atexit = False
    multiprocessing.util._finalizer_registry.clear()  # type: ignore[attr-defined]  # as its own children do
    atexit._clear()
    for each in (logging.shutdown, multiprocessing.util._exit_function, weakref.finalize._exitfunc):  # type: ignore[attr-defined]
        atexit.register(each)
    for name in ONE_THREAD_ENVIRONMENT:
        os.environ.pop(name, None)
