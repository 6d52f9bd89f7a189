"""The pool of `mgclust.service.reader_process` processes, as the web process uses it.

A request that finds all of them busy waits for some seconds, unless too many others wait; then it is rejected. No
process works longer for a request than its time limit, whatever it reads.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mgclust.errors import InputError, printable
from mgclust.service.child_messages import MAX_ERROR_CHARACTERS, MAX_READING_BYTES, parse_object
from mgclust.service.confine import environment
from mgclust.service.settings import Settings

__all__ = ["Busy", "LimitExceeded", "Readers"]

MAX_WAITING = 16  # requests that wait for a process
WAIT_SECONDS = 10.0  # of such a request
START_TIMEOUT_SECONDS = 60.0  # of the imports of a new process
TIMEOUT_MARGIN_SECONDS = 5.0  # beyond its own limit, after which a process is killed
KILL_SECONDS = 5.0  # for the end of a killed process
CLOSE_CHECK_SECONDS = 0.2
ENDED = "reading failed: its process ended."
# A process with threads of mathematical libraries cannot fork safely.
ONE_THREAD_ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

Answer = TypeVar("Answer")


class Busy(Exception):
    """All processes, or all memory for requests, are in use, and enough requests wait."""

    after = 5  # seconds until the next request may come

    def __init__(
        self, sentence: str = "the service reads as much as it can at once; ask again in a few seconds."
    ) -> None:
        super().__init__(sentence)


class LimitExceeded(InputError):
    """A request exceeds the limits of memory or time for reading."""


READERS = 2  # processes

ERRORS: dict[str, Callable[[str], Exception]] = {
    "input": InputError, "limit": LimitExceeded, "space": partial(OSError, errno.ENOSPC), "mgclust": RuntimeError,
}  # fmt: skip


class Readers:
    """The pool of reader processes.

    Parameters
    ----------
    settings : Settings
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._lock = threading.Lock()
        self._free: list[_Reader | None] = [None] * READERS
        self._waiting = 0
        self._closing = threading.Event()

    def close(self) -> None:
        """End all processes, and the requests that wait for them."""
        self._closing.set()
        with self._lock:
            free, self._free = self._free, []
        for reader in free:
            if reader is not None:
                reader.kill()

    def serve(self, order: dict[str, Any], check: Callable[[Any], Answer], writable: Sequence[Path] = ()) -> Answer:
        """Carry out an order.

        Parameters
        ----------
        order : dict
            See `mgclust.service.reader_process`.
        check : callable
            Returns the answer as it may be passed on, and raises an error for any other one: the data may have taken
            the process over.
        writable : sequence of Path
            Folders that the process may write to.

        Raises
        ------
        InputError
            An error of the request; `LimitExceeded` for one of its limits.
        Busy
        """
        settings = self._settings
        order = {
            "writable": list(map(str, writable)),
            "hidden": settings.concealed,
            "seconds": settings.reader_seconds,
            "memory": settings.reader_memory,
            **order,
        }
        reader = self._take()
        try:
            if reader is None or reader.exited():
                reader = _Reader(self._closing)
            line = reader.ask(order, settings.reader_seconds + TIMEOUT_MARGIN_SECONDS)
        except BaseException:
            if reader is not None:
                reader.kill()
            reader = None
            raise
        finally:
            with self._lock:
                self._free.append(reader)
        try:
            answer = parse_object(line)
            if "answer" in answer:
                return check(answer["answer"])
            error = ERRORS[answer["kind"]](printable(answer["error"][:MAX_ERROR_CHARACTERS]))
        except (ValueError, KeyError, TypeError):
            raise InputError("the process that read the data answered as if they had taken it over.") from None
        raise error

    def _take(self) -> _Reader | None:
        end = time.monotonic() + WAIT_SECONDS
        with self._lock:
            if self._waiting >= MAX_WAITING:
                raise Busy
            self._waiting += 1
        try:
            while True:
                with self._lock:
                    if self._free:
                        return self._free.pop()
                if time.monotonic() > end or self._closing.wait(0.02):
                    raise Busy
        finally:
            with self._lock:
                self._waiting -= 1


class _Reader:
    def __init__(self, closing: threading.Event) -> None:
        self._closing = closing
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "mgclust.service.reader_process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
            bufsize=0,
            env=environment() | ONE_THREAD_ENVIRONMENT,
        )
        assert self._process.stdin is not None
        os.set_blocking(self._process.stdin.fileno(), False)
        try:
            self._line(time.monotonic() + START_TIMEOUT_SECONDS)
        except BaseException:
            self.kill()
            raise

    def exited(self) -> bool:
        return self._process.poll() is not None

    def ask(self, order: dict[str, Any], seconds: float) -> bytes:
        assert self._process.stdin is not None
        number, end, line = self._process.stdin.fileno(), time.monotonic() + seconds, json.dumps(order).encode() + b"\n"
        while line:  # longer than a pipe perhaps
            self._await(number, select.POLLOUT, end)
            try:
                line = line[os.write(number, line) :]
            except BrokenPipeError:
                raise LimitExceeded(ENDED) from None
        return self._line(end)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with contextlib.suppress(OSError):
                end.close()
        with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel holds it, in a file system perhaps
            self._process.wait(KILL_SECONDS)

    def _line(self, end: float) -> bytes:
        assert self._process.stdout is not None
        number, found = self._process.stdout.fileno(), bytearray()
        while not found.endswith(b"\n"):
            self._await(number, select.POLLIN, end)
            part = os.read(number, 1 << 16)
            if not part or len(found) > MAX_READING_BYTES:
                raise LimitExceeded(ENDED)
            found += part
        return bytes(found)

    def _await(self, number: int, event: int, end: float) -> None:
        """Wait until a pipe is ready; the process ends each order in time, unless it is stopped or hangs itself."""
        poll = select.poll()
        poll.register(number, event)
        while not self._closing.is_set() and (left := end - time.monotonic()) > 0:
            if poll.poll(1000 * min(left, CLOSE_CHECK_SECONDS)):
                return
        raise Busy("the process that reads the data does not answer and is replaced; ask again.")
