"""The fork server: a process that has imported what confined children need, and forks each of them.

Imports take seconds, and each child needs a new process, since it gives up its rights before it reads any data. The
fork server reads no data of users; orders do not pass through it. It receives the two pipes of a child, and answers
with the pid of a process that has nothing else open and leads a session of its own.

The children of a runner become its own (the runner is a subreaper): they outlive the fork server, and the runner
receives their exit status. The children of a web process, which should adopt nobody, stay those of the fork server, and
the kernel kills them with it.

The fork server of `multiprocessing` executes anything that arrives at a named socket in a temporary folder. This one
has a pair of unnamed sockets, which children cannot reach.

A forked child has only the thread that forked it, so the fork server has no others: it imports, and computes nothing.
OpenBLAS ends its threads before a fork and starts them again on demand. CuPy is not imported.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

import psutil

from mgclust.service.confined.child_process import ChildProcess
from mgclust.service.confined.confine import become_subreaper, environment, exit_with_parent

__all__ = ["ForkServer", "run_child"]

OPTION = "--fork-server"
ADOPTED, OWN = "adopted", "own"  # whose children the forks are: of the process that started the fork server, or its own
LOAD_TIMEOUT_SECONDS = 30.0  # children wait so long for a new fork server; then they load for themselves
ANSWER_TIMEOUT_SECONDS = 5.0  # for a fork
# Needed by most children; modules that only some need, these import themselves.
PRELOADED = (
    "mgclust.algorithms", "mgclust.output.file_run", "mgclust.kernels.pairs.cpu", "mgclust.plots",
    "mgclust.output.report", "pyarrow.csv", "pyarrow.parquet", "zarr",
)  # fmt: skip
# Without the background thread of Arrow's allocator.
ONE_THREAD_ENVIRONMENT = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkServer:
    """Starts children: forks of the fork server or, while there is none, processes that load for themselves.

    It is replaced when it fails, and ends with the process that began it.

    Parameters
    ----------
    module : str
        What the children are: a module that calls `run_child`.
    adopt : bool
        Whether they become children of this process, which waits for each of its descendants. The thread that begins
        the fork server must then last.
    variables : mapping, optional
        Environment variables, in addition to those of `mgclust.service.confined.confine.environment`.
    """

    def __init__(self, module: str, *, adopt: bool, variables: Mapping[str, str] | None = None) -> None:
        self._module, self._adopt, self._variables = module, adopt, variables or {}
        self._lock = threading.RLock()
        self._process: psutil.Popen | None = None
        self._begun = self._ready = False

    def begin(self) -> None:
        """Start the process; does nothing if there is one already."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self._launch()

    @property
    def pid(self) -> int | None:
        """Process id; None before `begin`."""
        return int(self._process.pid) if self._process is not None else None

    def is_alive(self) -> bool:
        """Return whether it runs, and is not stopped."""
        process = self._process
        with contextlib.suppress(psutil.Error):
            return process is not None and process.poll() is None and process.status() != psutil.STATUS_STOPPED
        return False

    def is_ready(self) -> bool:
        """Return whether it has imported everything."""
        with self._lock:
            if not self._ready and self._process is not None and self._readable(0):
                self._ready = self._receive() == "ready"
            return self._ready

    def is_loading(self) -> bool:
        """Return whether it is still importing, within its time."""
        return self.is_alive() and not self.is_ready() and time.monotonic() < self._load_deadline

    def start(self) -> ChildProcess:
        """Start a child. None waits for a fork server that hangs: it is replaced, and this child loads for itself."""
        with contextlib.ExitStack() as of_child:
            stdin, orders = os.pipe()
            of_child.callback(os.close, stdin)
            orders_file = open(orders, "wb", buffering=0)  # noqa: SIM115 - `ChildProcess` closes it
            answers, stdout = os.pipe()
            of_child.callback(os.close, stdout)
            answers_file = open(answers, "rb", buffering=0)  # noqa: SIM115
            with self._lock:
                process = self._fork(stdin, stdout)
            if process is None:
                process = self._popen(stdin=stdin, stdout=stdout, stderr=subprocess.DEVNULL)
            return ChildProcess(process, orders_file, answers_file)

    def close(self) -> None:
        """Kill it; its adopted children continue, others end."""
        with self._lock:
            self._begun = False
            self._kill()

    def _launch(self) -> None:
        if self._adopt:
            become_subreaper()
        self._ready = False
        self._control, child_end = socket.socketpair()
        with child_end:
            whose = ADOPTED if self._adopt else OWN
            self._process = self._popen(OPTION, whose, stdin=child_end.fileno(), stdout=subprocess.DEVNULL)
        self._load_deadline = time.monotonic() + LOAD_TIMEOUT_SECONDS

    def _kill(self) -> None:
        if self._process is not None:
            self._control.close()
            with contextlib.suppress(psutil.Error):
                # A child that was stopped as soon as it was forked has not asked to end with its parent yet.
                own = [] if self._adopt else self._process.children()
                self._process.kill()
                for child in own:
                    with contextlib.suppress(psutil.Error):
                        child.kill()
                self._process.wait(ANSWER_TIMEOUT_SECONDS)

    def _popen(self, *options: str, **streams: Any) -> psutil.Popen:
        return psutil.Popen(
            [sys.executable, "-P", "-m", self._module, *options],
            start_new_session=True,
            env={**ONE_THREAD_ENVIRONMENT, **environment(), **self._variables},
            **streams,
        )

    def _fork(self, orders: int, answers: int) -> psutil.Process | None:
        """Fork a child with these descriptors as its standard input and output; replace a fork server that fails."""
        if not self._begun or self.is_loading():
            return None
        with contextlib.suppress(OSError, ValueError, psutil.Error):
            if self.is_ready() and self.is_alive():
                socket.send_fds(self._control, [b"copy\n"], [orders, answers])
                if self._readable(ANSWER_TIMEOUT_SECONDS) and (pid := int(self._receive())):
                    return psutil.Process(pid)
        self._kill()
        self._launch()
        return None

    def _readable(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._control, select.POLLIN)
        return bool(poll.poll(1000 * seconds))

    def _receive(self) -> str:
        with contextlib.suppress(OSError):
            return self._control.recv(64).decode().strip()
        return ""


def run_child(main: Callable[[], None]) -> None:
    """Run a child: `main` in this process or, if this is a fork server, in each of its forks.

    The forks run no exit handlers: these are the fork server's, as is the temporary folder of matplotlib, for example,
    which one of them would remove. Finalizing all modules would also write to each page that they share: 0.1 s a job.
    """
    if sys.argv[1:2] == [OPTION]:
        _serve(main, adopted=sys.argv[2] == ADOPTED)
    else:
        main()


def _serve(main: Callable[[], None], adopted: bool) -> None:
    """Import, and fork children until the other end of the standard input is closed."""
    control = socket.socket(fileno=os.dup(0))
    if adopted:
        exit_with_parent(os.getppid(), hide=False)
    nowhere = os.open(os.devnull, os.O_RDWR)
    os.dup2(nowhere, 0)
    _load()
    _end_threads()
    if not adopted:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the kernel reaps children
    gc.collect()
    gc.freeze()  # pages that the collector does not write stay shared
    control.sendall(b"ready\n")
    while True:
        request, pipes, _, _ = socket.recv_fds(control, 64, 2)
        if not request:
            sys.exit()
        pid = _fork(adopted)
        if pid is None:
            for number, copy in enumerate((*pipes, nowhere)):
                os.dup2(copy, number)
            control.detach()
            _run_fork(main)
        for number in pipes:
            os.close(number)
        control.sendall(b"%d\n" % pid)


def _load() -> None:
    for name in PRELOADED:
        importlib.import_module(name)
    from numba import njit

    # Any function: the first compilation initializes Numba, without threads.
    njit("int64(int64)")(lambda x: x)
    from mgclust.results.versions import installed_versions

    installed_versions()  # cached: each child would search the metadata of packages again


def _end_threads() -> None:
    """End the threads of libraries that end them at a fork."""
    if not (copy := os.fork()):
        os._exit(0)
    os.waitpid(copy, 0)


def _fork(adopted: bool) -> int | None:
    """Fork a process that leads a session; its pid, or None in the process itself."""
    reading, writing = os.pipe()
    copy = os.fork()
    if not copy:
        with contextlib.suppress(BaseException):
            if not adopted or not os.fork():
                os.setsid()
                os.write(writing, b"%d" % os.getpid())
                return None
        os._exit(0)  # which makes its child the runner's
    os.close(writing)
    try:
        if adopted:
            os.waitpid(copy, 0)
        return int(os.read(reading, 64) or 0)
    finally:
        os.close(reading)


def _run_fork(main: Callable[[], None]) -> NoReturn:
    """Run `main` in a fork, and exit."""
    code = 1
    try:
        import numpy as np

        os.closerange(3, os.sysconf("SC_OPEN_MAX"))
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        np.random.seed()  # forks should not share it; `random` does this itself
        for name in ONE_THREAD_ENVIRONMENT:
            os.environ.pop(name, None)
        main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
