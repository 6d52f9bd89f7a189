"""Orders of the web process to read users' data, which are carried out by `mgclust.service.confined.reader_process`.

If all readers are busy, a request waits for some seconds. If too many other requests wait already, the request is
rejected. A process that exceeds the time limit of its request is killed, whatever it reads.
"""

from __future__ import annotations

import contextlib
import errno
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from mgclust.base.errors import InputError, printable
from mgclust.service.confined.child_messages import MAX_ERROR_CHARACTERS, MAX_READING_BYTES, TOO_LARGE, parse_object
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.settings import Settings

__all__ = ["Busy", "LimitExceeded", "Readers"]

MAX_WAITING = 16  # requests that may wait for their turn
WAIT_SECONDS = 10.0  # wait limit of such a request
CLOSE_CHECK_SECONDS = 0.2
MODULE = "mgclust.service.confined.reader_process"
# One thread per library, so that a reader computes within its limits of memory and time.
ONE_THREAD_ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

Answer = TypeVar("Answer")


class Busy(Exception):
    """The limit of processes, or of memory for requests, is reached, and enough requests wait already."""

    after = 5  # seconds after which to send the request again

    def __init__(self, sentence: str = "the service is busy reading other data; try again in a few seconds.") -> None:
        super().__init__(sentence)


class LimitExceeded(InputError):
    """A request exceeds the limits of memory or time for reading."""


READERS = 2  # processes at once

ERRORS: dict[str, Callable[[str], Exception]] = {
    "input": InputError, "limit": LimitExceeded, "space": partial(OSError, errno.ENOSPC), "mgclust": RuntimeError,
}  # fmt: skip


class Readers:
    """Readers of users' data, `READERS` at once.

    Parameters
    ----------
    settings : Settings
        Settings of the service.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._server = ForkServer(MODULE, adopt=False, variables=ONE_THREAD_ENVIRONMENT)
        self._turns = threading.Semaphore(READERS)
        self._lock = threading.Lock()
        self._waiting = 0
        self._closing = threading.Event()

    def close(self) -> None:
        """End all readers, and reject the requests that wait for them."""
        self._closing.set()
        self._server.close()

    def serve(self, order: dict[str, Any], check: Callable[[Any], Answer], writable: Sequence[Path] = ()) -> Answer:
        """Carry out an order in a new reader process.

        Parameters
        ----------
        order : dict
            The order; see `mgclust.service.confined.reader_process`.
        check : callable
            Function that returns the answer in a form that is safe to pass on, or raises an error, because the data may
            have taken over the process.
        writable : sequence of Path
            Folders that the process may write to.

        Raises
        ------
        InputError
            The request has an error, or exceeds a limit (`LimitExceeded`).
        Busy
            Too many requests wait already.
        """
        settings = self._settings
        order = {
            "writable": list(map(str, writable)),
            "hidden": settings.concealed,
            "seconds": settings.reader_seconds,
            "memory": settings.reader_memory,
            **order,
        }
        with self._turn():
            line = self._ask(order)
        try:
            answer = parse_object(line)
            if "answer" in answer:
                return check(answer["answer"])
            error = ERRORS[answer["kind"]](printable(answer["error"][:MAX_ERROR_CHARACTERS]))
        except (ValueError, KeyError, TypeError):
            raise InputError("the process that read the data answered as if the data had taken control.") from None
        raise error

    @contextlib.contextmanager
    def _turn(self) -> Iterator[None]:
        with self._lock:
            if self._waiting >= MAX_WAITING:
                raise Busy
            self._waiting += 1
        try:
            taken = self._turns.acquire(timeout=WAIT_SECONDS)
        finally:
            with self._lock:
                self._waiting -= 1
        if not taken:
            raise Busy
        try:
            yield
        finally:
            self._turns.release()

    def _ask(self, order: dict[str, Any]) -> bytes:
        """Return the line that a new reader answers."""
        self._server.begin()
        while self._server.is_loading() and not self._closing.wait(0.02):
            pass
        if self._closing.is_set():
            raise Busy
        reader, found, end = self._server.start(), bytearray(), time.monotonic() + order["seconds"]
        try:
            reader.send(order)
            while not found.endswith(b"\n"):
                if self._closing.is_set():
                    raise Busy
                if (left := end - time.monotonic()) <= 0:
                    raise _limit(f"took more than the {order['seconds']:g} s that a request may take")
                found += reader.exchange(min(left, CLOSE_CHECK_SECONDS))
                if reader.silenced or len(found) > MAX_READING_BYTES:
                    raise _limit(
                        f"ended without an answer; it may need more than reader_memory={order['memory']} bytes"
                    )
            return bytes(found)
        finally:
            reader.close(at_once=True)  # before its folders are used


def _limit(what: str) -> LimitExceeded:
    return LimitExceeded(TOO_LARGE.format(what))
