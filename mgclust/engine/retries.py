"""Retries of a run that loses a worker: it is tried again without that worker, from its last checkpoint.

The run first waits for replacement workers, for as long as the attempt had taken, but at most `REPLACEMENT_SECONDS`.
Then it takes the workers that are there. If the user requested a number of workers, or if the run needs as many workers
as before, it waits like a new run.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from mgclust.base.errors import ClusterUnavailableError, RetryWarning, WorkerLost, warn_caller
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.run_spec import RunSpec

__all__ = ["AttemptStart", "HeldCheckpoint", "RunAttempts"]

REPLACEMENT_SECONDS = 10.0  # seconds; a nanny of Dask starts a worker in two or three seconds
REMEDIES = (" End it, and run again.", " Run again.")  # the ends of messages on lost workers


@dataclass(frozen=True)
class HeldCheckpoint:
    """A checkpoint in memory, held by the caller of a run."""

    files: dict[str, Any]  # files of all ranks, by name
    saved: float  # time at which it was saved, by `time.monotonic`


@dataclass(frozen=True)
class AttemptStart:
    """Start of an attempt: its checkpoint and its workers."""

    checkpoint: HeldCheckpoint | None = None  # checkpoint in memory from which it resumes
    without: frozenset[str] = frozenset()  # identities of workers that it does not use
    patience: float = inf  # wait limit for workers, in seconds


class RunAttempts:
    """The attempts of one run.

    Parameters
    ----------
    allowed : int
        Number of retries.
    least, most : int
        Smallest and largest number of ranks.
    n_workers : int or None
        Number of workers that the user requested.

    Attributes
    ----------
    least, most : int
        Smallest and largest number of ranks of the next attempt.
    start : AttemptStart
        Where the next attempt starts.
    used : int
        Number of retries so far.
    """

    def __init__(self, allowed: int, least: int, most: int, n_workers: int | None) -> None:
        self._allowed, self._n_workers, self._any = allowed, n_workers, (least, most)
        self._lost: WorkerLost | None = None
        self._size = 0  # number of ranks before the first loss
        self.least, self.most = least, most
        self.start, self.used = AttemptStart(), 0

    def after_loss(
        self,
        error: WorkerLost,
        spec: RunSpec,
        size: int,
        kept: HeldCheckpoint | None,
        silent: frozenset[str],
        seconds: float,
    ) -> None:
        """Plan the next attempt and warn of it; raise the error if no retries are left.

        Parameters
        ----------
        error : WorkerLost
            Error that ended the attempt.
        spec : RunSpec
            Description of the run.
        size : int
            Number of ranks of the attempt.
        kept : HeldCheckpoint or None
            Last checkpoint of the attempt in memory.
        silent : frozenset of str
            Identities of workers that exist, but do not answer.
        seconds : float
            Duration of the attempt.
        """
        if self.used == self._allowed:
            if not self.used:
                raise error
            raise WorkerLost(f"{error} retries={self._allowed} had been used up.") from self._lost
        self.used += 1
        self._lost, self._size = error, max(self._size, size)
        self.least = self.most = size
        patience = min(REPLACEMENT_SECONDS, max(1.0, seconds)) if self._may_shrink else inf
        self.start = AttemptStart(kept, self.start.without | silent, patience)
        where = "restarts from its beginning"
        if isinstance(spec.checkpoint, CheckpointConfig):
            where = f"resumes from its last checkpoint in {str(spec.checkpoint.folder)!r}"
        elif kept is not None:
            where = f"resumes from its checkpoint ({max(0.0, time.monotonic() - kept.saved):.0f} s old)"
        if self._n_workers is not None:
            where += f" once n_workers={self._n_workers} workers are free"
        warn_caller(f"{_cause(error)} The run {where} (retry {self.used} of {self._allowed}).", RetryWarning)

    def after_wait(self, error: ClusterUnavailableError) -> None:
        """Plan an attempt with the present workers if no replacement came and fewer suffice; else raise an error."""
        if self._lost is None:
            raise error
        if not self._may_shrink:
            raise WorkerLost(f"{_cause(self._lost)} The run could not be tried again: {error}") from self._lost
        self.least, self.most = self._any
        self.start = replace(self.start, patience=inf)

    @property
    def _may_shrink(self) -> bool:
        """Return whether fewer workers than in the last attempt would suffice."""
        return self._n_workers is None and (self.least, self.most) != self._any

    def not_replaced(self, size: int) -> int:
        """Return the number of lost workers that were not replaced.

        Parameters
        ----------
        size : int
            Number of ranks of the last attempt.
        """
        return max(0, self._size - size)


def _cause(error: WorkerLost) -> str:
    """Return the message on a lost worker without its remedy."""
    text = str(error)
    return next((text.removesuffix(each) for each in REMEDIES if text.endswith(each)), text)
