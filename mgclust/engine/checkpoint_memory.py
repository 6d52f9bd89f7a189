"""Checkpoints in memory, from which a run resumes after it has lost a worker.

::

    rank      save ──> its files by name, as `mgclust.engine.checkpoint_files` would write them, held in this process
              ──> rank 0 announces the number of the checkpoint
    caller    fetches the files of all ranks, and keeps them instead of the files of the previous checkpoint
    retry     each rank is sent the files of its rows

A checkpoint exists once the caller has the files of all ranks. Then any number of workers may be lost at the same time.
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

SECONDS = 5.0  # seconds between two checkpoints: about as long as a loss delays a run in addition to the new start
LARGEST = 64 << 20  # bytes of a checkpoint on all ranks; a run with a larger state restarts from its beginning
BYTES_PER_SECOND = 4 << 20  # rate at which a run may send checkpoints to its caller
SMALL = 1 << 20  # bytes of a rank's files that may always be held in memory

Files = dict[str, Any]  # arrays, and the text of `CONTROL`, by name

# The last checkpoint of each rank in this process that no caller has fetched yet, by run and rank.
_HELD: dict[tuple[str, int], tuple[int, Files]] = {}
_LOCK = threading.Lock()


@dataclass(frozen=True)
class MemoryCheckpoint:
    """Settings for checkpoints that are sent to the caller of a run.

    Parameters
    ----------
    run : str
        Name of the run.
    saved : mapping of str to object, optional
        Files of this rank, from which the run resumes.
    seconds, share : float
        See `mgclust.engine.checkpoint.CheckpointConfig`.
    """

    run: str
    saved: Mapping[str, Any] | None = None
    seconds: float = SECONDS
    share: float = 0.02
    poll: ClassVar[float] = 1.0


class MemoryCheckpointer(Checkpointer):
    """A `Checkpointer` whose files are fetched by the caller of the run; its plan is a `MemoryCheckpoint`."""

    def save(
        self,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        rows: Mapping[str, Array | Ragged] | None = None,
        *,
        background: bool = False,
    ) -> None:
        """Hold a checkpoint for the caller, unless it is too large for the caller or for the memory of this rank."""
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
        """Return the checkpoint from which a retry resumes; None if there is none."""
        saved = self._plan.saved
        if saved is None:
            return None

        def read(name: str) -> Any:  # copied, because arrays that Dask has sent are read-only
            return saved[name] if name == CONTROL else np.array(saved[name])

        with self._stage("resume"):
            return Saved(read, saved, self._partition, self._comm.rank)

    def _open(self, plan: Any) -> tuple[list[Found], int]:
        return [], 0


def take(run: str, rank: int, number: int) -> Files | None:
    """Take the files of a rank out of this process; None if the process holds another checkpoint by now.

    Parameters
    ----------
    run : str
        Name of the run.
    rank : int
        Number of the rank.
    number : int
        Number of the checkpoint.
    """
    with _LOCK:
        if _HELD.get((run, rank), (0, None))[0] != number:
            return None
        return _HELD.pop((run, rank))[1]


def forget(run: str, rank: int) -> None:
    """Discard the files of a rank that has ended.

    Parameters
    ----------
    run : str
        Name of the run.
    rank : int
        Number of the rank.
    """
    with _LOCK:
        _HELD.pop((run, rank), None)


def files_of(files: Mapping[str, Any], blocks: Collection[int]) -> Files:
    """Select the files of a checkpoint that a rank with these blocks reads.

    Parameters
    ----------
    files : mapping of str to object
        Files of all ranks.
    blocks : collection of int
        Numbers of the blocks that the rank owns.
    """
    return {name: each for name, each in files.items() if (block := block_of(name)) is None or block in blocks}
