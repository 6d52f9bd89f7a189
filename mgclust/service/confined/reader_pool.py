"""Orders of the web process to read users' data, which are carried out by `mgclust.service.confined.reader_process`.

If all readers are busy, a request waits in the queue of its user (`mgclust.service.confined.turns`). If too many
requests wait already, the user with the most waiting requests loses one of them. A process that exceeds the
time limit of its request is killed, whatever it reads.
"""

from __future__ import annotations

import copy
import errno
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self, TypeVar

from mgclust.base.errors import InputError, printable
from mgclust.service.confined.child_messages import MAX_ERROR_CHARACTERS, MAX_READING_BYTES, TOO_LARGE, parse_object
from mgclust.service.confined.fork_server import ForkServer
from mgclust.service.confined.turns import Busy, Turns
from mgclust.service.settings import Settings

__all__ = ["Busy", "LimitExceeded", "Readers"]

MAX_WAITING = 16  # requests that may wait for their turn
WAIT_SECONDS = 30.0  # wait limit of such a request
CLOSE_CHECK_SECONDS = 0.2
MODULE = "mgclust.service.confined.reader_process"
# One thread per library, so that a reader computes within its limits of memory and time.
ONE_THREAD_ENVIRONMENT = dict.fromkeys(
    ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"), "1"
)

Answer = TypeVar("Answer")


class LimitExceeded(InputError):
    """A request exceeds the limits of memory or time for reading."""


READERS = 3  # processes at once, of which one user may have two

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
        self._settings, self._user = settings, ""
        self._server = ForkServer(MODULE, adopt=False, variables=ONE_THREAD_ENVIRONMENT)
        self._turns = Turns(READERS, MAX_WAITING, WAIT_SECONDS)
        self._closing = threading.Event()

    def begin(self) -> None:
        """Start to load the modules of readers; otherwise, the first request would wait seconds for this."""
        self._server.begin()

    def close(self) -> None:
        """End all readers, and reject the requests that wait for them."""
        self._closing.set()
        self._server.close()

    def of(self, user: str) -> Self:
        """Return the same readers for the orders of one user, which wait in the queue of this user."""
        mine = copy.copy(self)
        mine._user = user
        return mine

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
        with self._turns.turn(self._user):
            line = self._ask(order)
        try:
            answer = parse_object(line)
            if "answer" in answer:
                return check(answer["answer"])
            error = ERRORS[answer["kind"]](printable(answer["error"][:MAX_ERROR_CHARACTERS]))
        except (ValueError, KeyError, TypeError):
            raise InputError("the process that read the data answered as if the data had taken control.") from None
        raise error

    def _ask(self, order: dict[str, Any]) -> bytes:
        """Return the line that a new reader answers."""
        if self._closing.is_set():
            raise Busy
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
