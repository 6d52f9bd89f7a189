"""Checkpoints in memory, from which a run resumes that has lost a worker.

::

    rank      save ──> its files by name, as `mgclust.engine.checkpoint_files` would write them, held in this process
              ──> rank 0 says the checkpoint's number
    caller    takes the files of all ranks, and keeps them in place of those before
    retry     each rank is sent the files of its rows

A checkpoint is there once the caller has the files of all ranks. Then any number of workers may be lost at once.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from mgclust.engine.checkpoint import Array, Checkpointer, Found
from mgclust.engine.checkpoint_files import CONTROL, Ragged, Saved, block_of

__all__ = ["LARGEST", "MemoryCheckpoint", "MemoryCheckpointer", "files_of", "forget", "take"]

SECONDS = 5.0  # seconds between two checkpoints: about what a loss costs, beside the new start
LARGEST = 64 << 20  # bytes of a checkpoint on all ranks; a run with a larger state restarts from its beginning
BYTES_PER_SECOND = 4 << 20  # that a run may send to its caller
SMALL = 1 << 20  # bytes of a rank's files for which there is always memory

Files = dict[str, Any]  # arrays, and the text of `CONTROL`, by name

# The last checkpoint of this process's ranks that nobody has taken; by run and rank.
_HELD: dict[tuple[str, int], tuple[int, Files]] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class MemoryCheckpoint:
    """Have a run's checkpoints sent to its caller.

    Parameters
    ----------
    run : str
        Name of the run.
    saved : mapping of str to object, optional
        The files of the rank from which it resumes.
    seconds, share : float
        See `mgclust.engine.checkpoint.CheckpointConfig`.
    """

    run: str
    saved: Mapping[str, Any] | None = None
    seconds: float = SECONDS
    share: float = 0.02
    poll: ClassVar[float] = 1.0


class MemoryCheckpointer(Checkpointer):
    """A `Checkpointer` whose files the caller of the run fetches; its plan is a `MemoryCheckpoint`."""

    def save(
        self,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        rows: Mapping[str, Array | Ragged] | None = None,
        *,
        background: bool = False,
    ) -> None:
        """Hold a checkpoint for the caller; nothing if it is too large for the caller or for this rank's memory."""
        began = time.perf_counter()
        self._number += 1
        arrays, rows = arrays or {}, rows or {}
        own = sum(each.nbytes for each in rows.values())
        if self._comm.rank == 0:
            own += sum(each.nbytes for each in arrays.values())
        without_room = own > max(SMALL, self._room())
        total, refused = self._comm.all_reduce(np.array([own, without_room], np.int64))
        if total <= LARGEST and not refused:
            files: Files = dict(self._own_arrays(arrays, rows, True))
            if self._comm.rank == 0:
                files[CONTROL] = json.dumps(control)
            with _LOCK:
                _HELD[self._plan.run, self._comm.rank] = self._number, files
            self._comm.barrier()
            self._say(checkpoint=self._number)
        self._asked = time.perf_counter()
        self._cost = max(self._asked - began, self._plan.share * total / BYTES_PER_SECOND)
        self._set_next()

    def load(self) -> Saved | None:
        """The checkpoint from which a retry resumes."""
        saved = self._plan.saved
        if saved is None:
            return None

        def read(name: str) -> Any:  # what Dask has sent cannot be written to
            return saved[name] if name == CONTROL else np.array(saved[name])

        with self._stage("resume"):
            return Saved(read, saved, self._partition, self._comm.rank)

    def _open(self, plan: Any) -> tuple[list[Found], int]:
        return [], 0


def take(run: str, rank: int, number: int) -> Files | None:
    """The files of a rank in this process, which it holds no longer; None if it has others by now.

    Parameters
    ----------
    run : str
    rank : int
    number : int
        Number of the checkpoint.
    """
    with _LOCK:
        if _HELD.get((run, rank), (0, None))[0] != number:
            return None
        return _HELD.pop((run, rank))[1]


def forget(run: str, rank: int) -> None:
    """Hold nothing of a rank that has ended.

    Parameters
    ----------
    run : str
    rank : int
    """
    with _LOCK:
        _HELD.pop((run, rank), None)


def files_of(files: Mapping[str, Any], blocks: Collection[int]) -> Files:
    """The files of a checkpoint that a rank with these blocks reads.

    Parameters
    ----------
    files : mapping of str to object
        Those of all ranks.
    blocks : collection of int
    """
    return {name: each for name, each in files.items() if (block := block_of(name)) is None or block in blocks}
