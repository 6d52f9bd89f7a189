"""Turns of users at a limited number of readers: a queue per user, served round robin.

One user can occupy neither all readers nor all places in the queue. If the queue is full, the user with the most
waiting requests loses the newest of them to a user with fewer waiting requests.
"""

from __future__ import annotations

import contextlib
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterator

__all__ = ["Busy", "Turns"]


class Busy(Exception):
    """The limit of processes, or of memory for requests, is reached, and enough requests wait already."""

    after = 5  # seconds after which to send the request again

    def __init__(self, sentence: str = "the service is busy reading other data; try again in a few seconds.") -> None:
        super().__init__(sentence)


class _Request:
    def __init__(self) -> None:
        self.decided, self.admitted = threading.Event(), False

    def decide(self, admitted: bool) -> None:
        self.admitted = admitted
        self.decided.set()


class Turns:
    """Turns at `number` readers, of which one user may have all but one at the same time.

    Parameters
    ----------
    number : int
        Number of readers.
    waiting : int
        Number of requests of all users that may wait.
    seconds : float
        Wait limit of a request.
    """

    def __init__(self, number: int, waiting: int, seconds: float) -> None:
        self._free, self._most_of_user = number, max(1, number - 1)
        self._most_waiting, self._seconds = waiting, seconds
        self._lock = threading.Lock()
        self._taken: Counter[str] = Counter()
        self._queues: OrderedDict[str, deque[_Request]] = OrderedDict()  # the user whose turn is next comes first

    @contextlib.contextmanager
    def turn(self, user: str) -> Iterator[None]:
        """Wait for a reader, and keep it for the block.

        Raises
        ------
        Busy
            No reader is free for this user within the wait limit, or too many requests wait already.
        """
        request = _Request()
        with self._lock:
            self._queues.setdefault(user, deque()).append(request)
            self._admit()
            if not request.decided.is_set() and sum(map(len, self._queues.values())) > self._most_waiting:
                self._drop_newest()
        request.decided.wait(self._seconds)
        with self._lock:
            if not request.decided.is_set():
                self._remove(user, request)
        if not request.admitted:
            raise Busy
        try:
            yield
        finally:
            with self._lock:
                self._free += 1
                self._taken[user] -= 1
                if not self._taken[user]:
                    del self._taken[user]
                self._admit()

    def _admit(self) -> None:
        """Give free readers to the users in turn."""
        while self._free:
            user = next((user for user in self._queues if self._taken[user] < self._most_of_user), None)
            if user is None:
                return
            request = self._queues[user][0]
            self._queues.move_to_end(user)
            self._remove(user, request)
            self._free -= 1
            self._taken[user] += 1
            request.decide(True)

    def _drop_newest(self) -> None:
        """Reject the newest request of the user with the most waiting requests."""
        user = max(reversed(self._queues), key=lambda each: len(self._queues[each]))
        request = self._queues[user][-1]
        self._remove(user, request)
        request.decide(False)

    def _remove(self, user: str, request: _Request) -> None:
        self._queues[user].remove(request)
        if not self._queues[user]:
            del self._queues[user]
