"""The fork server: a process that has imported what attempts need, and forks a child for each of them.

Imports take seconds, and each attempt needs a new process, since it gives up its rights before it reads any data. The
fork server reads no data of users; orders do not pass through it. It receives the two pipes of an attempt, and answers
with the pid of a child that has nothing else open. The child leads a session of its own. It becomes a child of the
runner (a subreaper, Linux), so it outlives the fork server, and the runner receives its exit status.

The fork server of `multiprocessing` executes anything that arrives at a named socket in a temporary folder. This one
has a pair of unnamed sockets, which attempts cannot reach.

A forked child has only the thread that forked it, so the fork server has no others: it imports, and computes nothing.
OpenBLAS ends its threads before a fork and starts them again on demand. CuPy is not imported.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import socket
import subprocess
import sys
import time

import psutil

from mgclust.service.confine import become_subreaper, environment, exit_with_parent

__all__ = ["OPTION", "ForkServer", "serve"]

OPTION = "--fork-server"
LOAD_TIMEOUT_SECONDS = 30.0  # jobs wait so long for a new fork server; then their processes load for themselves
ANSWER_TIMEOUT_SECONDS = 5.0  # for a fork
# Needed by most attempts; what only some need, these import themselves.
PRELOADED = (
    "mgclust.algorithms", "mgclust.file_run", "mgclust.kernels.pairs.cpu", "mgclust.plots", "mgclust.report",
    "pyarrow.csv", "pyarrow.parquet",
)  # fmt: skip
# Without the background thread of Arrow's allocator.
ONE_THREAD_ENVIRONMENT = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkServer:
    """The fork server, as the runner sees it; its process ends with the runner."""

    def __init__(self) -> None:
        become_subreaper()
        self._socket, child_end = socket.socketpair()
        with child_end:
            self._process = psutil.Popen(
                [sys.executable, "-P", "-m", "mgclust.service.attempt", OPTION],
                stdin=child_end.fileno(),
                stdout=subprocess.DEVNULL,
                start_new_session=True,
                env=ONE_THREAD_ENVIRONMENT | environment(),
            )
        self.closed = self._ready = False
        self._load_deadline = time.monotonic() + LOAD_TIMEOUT_SECONDS

    @property
    def pid(self) -> int:
        """Process id."""
        return int(self._process.pid)

    def is_alive(self) -> bool:
        """Return whether it runs, and is not stopped."""
        with contextlib.suppress(psutil.Error):
            return bool(self._process.poll() is None and self._process.status() != psutil.STATUS_STOPPED)
        return False

    def is_ready(self) -> bool:
        """Return whether it has imported everything."""
        if not self._ready and self._readable(0):
            self._ready = self._receive() == "ready"
        return self._ready

    def is_loading(self) -> bool:
        """Return whether it is still importing, within its time."""
        return not self.is_ready() and self.is_alive() and time.monotonic() < self._load_deadline

    def has_failed(self) -> bool:
        """Return whether it has ended or is stopped, and should be replaced; while it imports, only after its time.

        Without that time, one that cannot import would be restarted again and again.
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
            Pid of the process, which is the id of its session; None if it failed, and the fork server was ended.
        """
        with contextlib.suppress(OSError, ValueError):
            if self.is_ready() and self.is_alive():
                socket.send_fds(self._socket, [b"copy\n"], [orders, answers])
                if self._readable(ANSWER_TIMEOUT_SECONDS) and (pid := int(self._receive())):
                    return pid
        self.close()
        return None

    def close(self) -> None:
        """Kill it; its children continue."""
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
    """Import, and fork children until the other end of the standard input is closed; return in each child."""
    control = socket.socket(fileno=os.dup(0))
    exit_with_parent(os.getppid(), hide=False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    _load()
    _end_threads()
    gc.collect()
    gc.freeze()  # pages that the collector does not write stay shared
    control.sendall(b"ready\n")
    while True:
        request, pipes, _, _ = socket.recv_fds(control, 64, 2)
        if not request:
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

    # Any function: the first compilation initializes Numba, without threads.
    njit("int64(int64)")(lambda x: x)
    from mgclust.versions import installed_versions

    installed_versions()  # cached: each child would search the metadata of packages again


def _end_threads() -> None:
    """End the threads of libraries that end them at a fork."""
    if not (copy := os.fork()):
        os._exit(0)
    os.waitpid(copy, 0)


def _fork() -> int | None:
    """Fork a process that becomes the runner's child and leads a session; its pid, or None in the process itself."""
    reading, writing = os.pipe()
    between = os.fork()
    if not between:
        with contextlib.suppress(BaseException):
            if not os.fork():
                os.setsid()
                os.write(writing, b"%d" % os.getpid())
                return None
        os._exit(0)
    os.close(writing)
    os.waitpid(between, 0)  # from now on the process is the runner's child
    try:
        return int(os.read(reading, 64) or 0)
    finally:
        os.close(reading)


def _reset_inherited() -> None:
    """Reset state that children must not share: NumPy's random numbers; `random` resets itself.

    Exit handlers of the fork server stay, so a child has to end without any.
    """
    import numpy as np

    np.random.seed()
    for name in ONE_THREAD_ENVIRONMENT:
        os.environ.pop(name, None)
