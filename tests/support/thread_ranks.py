"""Ranks that are threads of the test, with those collectives of `Comm` in which every rank takes part."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from mgclust.engine.partition import Partition
from mgclust.engine.transport.comm import REDUCE, SoloComm


class ThreadComm:
    """Communication of one of several threads; `sent` is the number of bytes that `exchange` sent to other ranks."""

    def __init__(self, rank: int, size: int, barrier: threading.Barrier, slots: list) -> None:
        self.rank, self.size, self.sent = rank, size, 0
        self._barrier, self._slots = barrier, slots

    def _of_all(self, value):
        self._slots[self.rank] = value
        self._barrier.wait(60)
        values = list(self._slots)
        self._barrier.wait(60)
        return values

    def all_reduce(self, array, op="sum"):
        return REDUCE[op].reduce(self._of_all(array.copy()))

    def queue_reduce(self, array, op="sum", *, out=None):
        (array if out is None else out)[...] = self.all_reduce(array, op)

    def all_gather(self, array):
        return np.concatenate(self._of_all(array.copy()))

    def queue_gather(self, array, bounds):
        for rank, other in enumerate(self._of_all(array.copy())):
            own = slice(bounds[rank], bounds[rank + 1])
            array[own] = other[own]

    def exchange(self, parts):
        self.sent += sum(part.nbytes for rank, part in enumerate(parts) if rank != self.rank)
        received = [each[self.rank] for each in self._of_all(parts)]
        assert len({part.dtype for part in received}) == 1
        return np.concatenate(received)


def on_ranks(size: int, work) -> list:
    """Call ``work(comm)`` on each of several ranks; return what they return."""
    if size == 1:
        return [work(SoloComm(Partition(1, 1, 1), 1))]
    barrier, slots = threading.Barrier(size), [None] * size

    def run(rank):
        try:
            return work(ThreadComm(rank, size, barrier, slots))
        except BaseException:
            barrier.abort()
            raise

    with ThreadPoolExecutor(size) as pool:
        return list(pool.map(run, range(size)))
