"""The fork server: a process that has imported the modules of confined children, and forks each child.

Imports take seconds, and each child needs a new process, because a child gives up its rights before it reads any data.
The fork server reads no data of users, and orders do not pass through it. It receives the two pipes of a child, and
answers with the id of a process that has no other files open and leads its own session.

The children of a runner become its own children (the runner is a subreaper), so they outlive the fork server, and the
runner receives their exit status. A web process should adopt no children. Its children stay children of the fork
server, and the kernel kills them when the fork server ends.

The fork server of `multiprocessing` executes anything that arrives at a named socket in a temporary folder. This fork
server has a pair of unnamed sockets, which children cannot reach.

A forked child has only the thread that forked it, so the fork server must have no other threads: it imports modules,
and computes nothing. OpenBLAS ends its threads before a fork and starts them again on demand. CuPy is not imported.
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
# The forks are children of the process that started the fork server, or of the fork server itself.
ADOPTED, OWN = "adopted", "own"
LOAD_TIMEOUT_SECONDS = 30.0  # time that children wait for a new fork server; then they import the modules themselves
MAX_LOAD_SECONDS = 300.0  # time after which a fork server that has not imported everything is replaced
ANSWER_TIMEOUT_SECONDS = 5.0  # time for the answer to a fork
# Modules that most children need; other modules are imported by the children that need them.
PRELOADED = (
    "mgclust.algorithms", "mgclust.output.file_run", "mgclust.kernels.pairs.cpu", "mgclust.plots",
    "mgclust.output.report", "pyarrow.csv", "pyarrow.parquet", "zarr",
)  # fmt: skip
# Disables the background thread of Arrow's allocator.
ONE_THREAD_ENVIRONMENT = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}


class ForkServer:
    """Starter of child processes: forks of the fork server or, without it, processes that import the modules.

    A fork server that fails is replaced. It ends with the process that began it.

    Parameters
    ----------
    module : str
        Module that the children run; it calls `run_child`.
    adopt : bool
        Whether the children become children of this process, which then has to wait for each descendant. The thread
        that begins the fork server must not end before it.
    variables : mapping, optional
        Environment variables, in addition to the variables of `mgclust.service.confined.confine.environment`.
    """

    def __init__(self, module: str, *, adopt: bool, variables: Mapping[str, str] | None = None) -> None:
        self._module, self._adopt, self._variables = module, adopt, variables or {}
        self._lock = threading.RLock()
        self._process: psutil.Popen | None = None
        self._begun = self._ready = False

    def begin(self) -> None:
        """Start the fork server, unless it runs already."""
        with self._lock:
            if not self._begun:
                self._begun = True
                self._launch()

    @property
    def pid(self) -> int | None:
        """Process id of the fork server; None before `begin`."""
        return int(self._process.pid) if self._process is not None else None

    def is_alive(self) -> bool:
        """Return whether the fork server runs and is not stopped."""
        process = self._process
        with contextlib.suppress(psutil.Error):
            return process is not None and process.poll() is None and process.status() != psutil.STATUS_STOPPED
        return False

    def is_ready(self) -> bool:
        """Return whether the fork server has imported everything."""
        with self._lock:
            if self._begun and not self._ready and self._readable(0):
                self._ready = self._receive() == "ready"
            return self._ready

    def is_loading(self) -> bool:
        """Return whether the fork server is still importing, and children should wait for it."""
        return self._is_importing(LOAD_TIMEOUT_SECONDS)

    def start(self) -> ChildProcess:
        """Start a child. If the fork server hangs or is slow to load, this child imports the modules itself."""
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
        """Kill the fork server. Children that this process has adopted continue; others end."""
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
        self._launched = time.monotonic()

    def _is_importing(self, limit: float) -> bool:
        return self.is_alive() and not self.is_ready() and time.monotonic() < self._launched + limit

    def _kill(self) -> None:
        if self._process is not None:
            with contextlib.suppress(psutil.Error):
                # A child stopped right after its fork may not yet have asked the kernel to end it with its parent.
                own = [] if self._adopt else self._process.children()
                self._process.kill()
                for child in own:
                    with contextlib.suppress(psutil.Error):
                        child.kill()
                self._process.wait(ANSWER_TIMEOUT_SECONDS)
            self._control.close()  # not before: a fork server whose "ready" was not read would print an error

    def _popen(self, *options: str, **streams: Any) -> psutil.Popen:
        return psutil.Popen(
            [sys.executable, "-P", "-m", self._module, *options],
            start_new_session=True,
            env={**ONE_THREAD_ENVIRONMENT, **environment(), **self._variables},
            **streams,
        )

    def _fork(self, orders: int, answers: int) -> psutil.Process | None:
        """Fork a child that has these descriptors as standard input and output; replace a fork server that fails."""
        # A busy machine imports slowly: if each start replaced the fork server, none would ever be ready.
        if not self._begun or self._is_importing(MAX_LOAD_SECONDS):
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
    """Run `main` in this process or, if this is a fork server, in each of its forks.

    The forks run no exit handlers, because these belong to the fork server: one handler would remove the temporary
    folder of matplotlib, for example. To finalize all modules would also write to every page that the forks share,
    which takes 0.1 s per job.
    """
    if sys.argv[1:2] == [OPTION]:
        _serve(main, adopted=sys.argv[2] == ADOPTED)
    else:
        main()


def _serve(main: Callable[[], None], adopted: bool) -> None:
    """Import the modules, and fork children until the other end of the standard input is closed."""
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
    with contextlib.suppress(BrokenPipeError):  # if the other end is closed, the loop ends
        control.sendall(b"ready\n")
    while True:
        request, pipes = b"", list[int]()
        with contextlib.suppress(ConnectionResetError):  # the other end was closed with an answer that it did not read
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

    # Any function will do: the first compilation initializes Numba, without threads.
    njit("int64(int64)")(lambda x: x)
    from mgclust.results.versions import installed_versions

    installed_versions()  # cache the versions, because each child would search for them


def _end_threads() -> None:
    """End the threads of libraries that end their threads at a fork."""
    if not (copy := os.fork()):
        os._exit(0)
    os.waitpid(copy, 0)


def _fork(adopted: bool) -> int | None:
    """Fork a process that leads a session; return its process id, or None in the new process."""
    reading, writing = os.pipe()
    copy = os.fork()
    if not copy:
        with contextlib.suppress(BaseException):
            if not adopted or not os.fork():
                os.setsid()
                os.write(writing, b"%d" % os.getpid())
                return None
        os._exit(0)  # so that its child is adopted by the runner
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
        np.random.seed()  # forks must not share the state; `random` does this itself
        for name in ONE_THREAD_ENVIRONMENT:
            os.environ.pop(name, None)
        main()
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)
