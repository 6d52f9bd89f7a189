"""Retries of a run that loses a worker: it is tried again without that worker, from its last checkpoint.

Workers that replace it are waited for, as long as the attempt had taken and `REPLACEMENT_SECONDS` at most. Afterwards
the run takes those that are there, or, if it was asked for a number of workers, waits as a run that begins does.
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

REPLACEMENT_SECONDS = 10.0  # seconds; a nanny of Dask starts a worker in two or three
REMEDIES = (" End it, and run again.", " Run again.")  # of the sentences of losses


@dataclass(frozen=True)
class HeldCheckpoint:
    """A checkpoint in memory that the caller of a run has."""

    files: dict[str, Any]  # of all ranks, by name
    saved: float  # when, by `time.monotonic`


@dataclass(frozen=True)
class AttemptStart:
    """Start of an attempt: its checkpoint and its workers."""

    checkpoint: HeldCheckpoint | None = None  # in memory
    without: frozenset[str] = frozenset()  # identities of workers that it does not take
    patience: float = inf  # seconds to wait for workers


class RunAttempts:
    """Attempts of one run.

    Parameters
    ----------
    allowed : int
        How often it is tried again.
    least, most : int
        How many ranks it may have.
    n_workers : int or None
        Number of workers that it was asked for.

    Attributes
    ----------
    least, most : int
        How many ranks the next attempt may have.
    start : AttemptStart
        Where it starts.
    used : int
        How often the run was tried again.
    """

    def __init__(self, allowed: int, least: int, most: int, n_workers: int | None) -> None:
        self._allowed, self._n_workers, self._any = allowed, n_workers, (least, most)
        self._lost: WorkerLost | None = None
        self._size = 0  # ranks before the first loss
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
        """Plan the next attempt and warn of it; raise the error if none is left.

        Parameters
        ----------
        error : WorkerLost
            What ended the attempt.
        spec : RunSpec
        size : int
            Ranks of the attempt.
        kept : HeldCheckpoint or None
            Its last checkpoint in memory.
        silent : frozenset of str
            Identities of the workers that are there, but do not answer.
        seconds : float
            How long the attempt took.
        """
        if self.used == self._allowed:
            if not self.used:
                raise error
            raise WorkerLost(f"{error} retries={self._allowed} had been used up.") from self._lost
        self.used += 1
        self._lost, self._size = error, max(self._size, size)
        self.least = self.most = size
        patience = inf if self._n_workers is not None else min(REPLACEMENT_SECONDS, max(1.0, seconds))
        self.start = AttemptStart(kept, self.start.without | silent, patience)
        where = "restarts from its beginning"
        if isinstance(spec.checkpoint, CheckpointConfig):
            where = f"resumes from its last checkpoint in {str(spec.checkpoint.folder)!r}"
        elif kept is not None:
            where = f"resumes from its checkpoint of {max(0.0, time.monotonic() - kept.saved):.0f} s ago"
        if self._n_workers is not None:
            where += f" once n_workers={self._n_workers} are free"
        warn_caller(f"{_cause(error)} The run {where} (retry {self.used} of {self._allowed}).", RetryWarning)

    def after_wait(self, error: ClusterUnavailableError) -> None:
        """Plan the next attempt with the workers that are there, if none has come; raise the error if that is all."""
        if self._lost is None:
            raise error
        if self._n_workers is not None or (self.least, self.most) == self._any:
            raise WorkerLost(f"{_cause(self._lost)} The run could not be tried again: {error}") from self._lost
        self.least, self.most = self._any
        self.start = replace(self.start, patience=inf)

    def not_replaced(self, size: int) -> int:
        """Number of lost workers that were not replaced.

        Parameters
        ----------
        size : int
            Ranks of the last attempt.
        """
        return max(0, self._size - size)


def _cause(error: WorkerLost) -> str:
    """The sentence of a loss without its remedy."""
    text = str(error)
    return next((text.removesuffix(each) for each in REMEDIES if text.endswith(each)), text)
