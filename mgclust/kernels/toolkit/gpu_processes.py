"""Programs compiled side by side, by processes of their own; see `nvrtc_process`."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cupy_backends.cuda.libs import nvrtc

__all__ = ["Compile", "Process", "Task", "idle_cores", "share_out"]

Compile = Callable[[str, Sequence[str]], bytes]  # `Process.machine_code`
Task = tuple["Future[Any]", Callable[[Compile], Any]]
FEW_CORES = 2  # on which further processes would wait for each other
PATIENCE = 60.0  # seconds for a program
END_SECONDS = 5.0  # for a process that has nothing to do
PASSED_ON = ("TMPDIR", "CUDA_CACHE_PATH", "CUDA_CACHE_DISABLE")  # where NVRTC puts files


def idle_cores() -> int:
    """Number of cores that further processes may have."""
    cores = len(os.sched_getaffinity(0))
    return cores if cores > FEW_CORES else 0


def share_out(tasks: Iterable[Task], processes: int, begin: Callable[[], object] | None = None) -> None:
    """Have tasks done by threads that have a process each, while this thread continues.

    Parameters
    ----------
    tasks : iterable of (Future, callable)
        Begun in this order: a promise, and what keeps it, given what compiles a program. One that was cancelled is
        left out.
    processes : int
    begin : callable, optional
        Called in each thread before its first task.
    """
    left = deque(tasks)

    def work() -> None:
        if begin:
            begin()
        with Process() as process:
            while left:
                with contextlib.suppress(IndexError):  # another thread was faster
                    _keep(*left.popleft(), process.machine_code)

    started = 0
    with contextlib.suppress(RuntimeError):  # no more threads, or Python ends
        for _ in range(min(processes, len(left))):
            threading.Thread(target=work).start()
            started += 1
    if not started:
        for promise, _ in left:
            promise.cancel()


def _keep(promise: Future[Any], make: Callable[[Compile], Any], compile_: Compile) -> None:
    if not threading.main_thread().is_alive():  # this process ends, and would wait for what nobody asks for any more
        promise.cancel()
    if promise.set_running_or_notify_cancel():
        try:
            promise.set_result(make(compile_))
        except BaseException as error:
            promise.set_exception(error)


class Process:
    """A process that compiles programs one after the other; started for the first, ended with the block."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._works = True

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        process = self._process
        if process is None:
            return
        # It ends at a size of 0, not by the end of its input alone, which forked processes may hold; NVRTC removes its
        # files then.
        with contextlib.suppress(Exception):
            if self._works:
                process.communicate(bytes(8), timeout=END_SECONDS)
        process.kill()
        with contextlib.suppress(Exception):
            process.communicate()

    def machine_code(self, program: str, options: Sequence[str]) -> bytes:
        """Return the machine code of a program.

        Parameters
        ----------
        program : str
        options : sequence of str
            NVRTC's.

        Returns
        -------
        bytes
            Empty where there is none to be had, or no core for it: what is wrong is for the caller to find out.
        """
        if self._works:
            with contextlib.suppress(Exception):
                return self._answer(program.encode(), "\0".join(options).encode())
            self._works = False
        return b""

    def _answer(self, program: bytes, options: bytes) -> bytes:
        process = self._process = self._process or _start()
        to, answers = process.stdin, process.stdout
        assert to
        assert answers
        patience = threading.Timer(PATIENCE, process.kill)
        patience.daemon = True
        patience.start()
        try:
            to.write(b"".join(len(each).to_bytes(8, "little") + each for each in (options, program)))
            to.flush()
            head = answers.read(8)
            size = int.from_bytes(head, "little")
            code = answers.read(size)
        finally:
            patience.cancel()
        if len(head) < 8 or len(code) < size:
            raise EOFError
        return code


def _start() -> subprocess.Popen[bytes]:
    library = _library()
    if not library or not idle_cores():
        raise EOFError
    command = [sys.executable, "-I", "-S", str(Path(__file__).with_name("nvrtc_process.py")), library]
    # The compiler looks for a second library where the loader does.
    paths = [str(Path(library).parent), *filter(None, [os.environ.get("LD_LIBRARY_PATH")])]
    # And little else: the environment of this process may hold keys.
    environment = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    environment["LD_LIBRARY_PATH"] = os.pathsep.join(paths)
    pipe, null = subprocess.PIPE, subprocess.DEVNULL
    # In a group of its own: an interrupt from the keyboard is not for it.
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=null, env=environment, process_group=0)


@functools.cache
def _library() -> str:
    """Path of NVRTC's library as this process has loaded it; none where it has two, as beside another package."""
    nvrtc.getVersion()
    with open("/proc/self/maps") as maps:
        found = {line.split(maxsplit=5)[-1].strip() for line in maps if "/libnvrtc.so" in line}
    return found.pop() if len(found) == 1 else ""
