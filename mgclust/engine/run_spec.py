"""Description of a run: one for the caller, for every rank, and for what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import inf, isinf
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.checkpoint_memory import MemoryCheckpoint
from mgclust.engine.memory import EstimateFunction

__all__ = ["RunSpec", "Work"]

TIMEOUT = 300.0  # seconds
STARTING_SECONDS = 5.0  # seconds of work that a worker should have to be started: about as long as a start takes
MAX_STARTED = 16  # workers that a run asks for by itself: a cluster may have no maximum


@dataclass(frozen=True)
class Work:
    """Work of a run, and the least of it for each rank: with less, several ranks take longer than fewer.

    Parameters
    ----------
    amount : float
        Of the whole run.
    unit : str
        In words, in the plural: ``"edges"``.
    least : mapping of str to float
        Of a rank, by the kind of device; as measured. Infinite where a run on one rank is the fastest, whatever it has.
    per_second : mapping of str to float
        What one rank does in a second, roughly, by the kind of device; without it no worker is started for the run.
    """

    amount: float
    unit: str
    least: Mapping[str, float]
    per_second: Mapping[str, float] = field(default_factory=dict)

    def ranks(self, device: str) -> int:
        """Most ranks that each have enough work; at least one.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Kind of theirs.
        """
        return max(1, int(self.amount // self.least[device]))

    def growth(self, device: str) -> int:
        """Number of workers to which an adaptive cluster should grow: each has `STARTING_SECONDS` of work or more.

        Parameters
        ----------
        device : {"auto", "cpu", "cuda"}
            Kind of theirs; "auto" if it is not known yet, which asks for no more than either would.
        """
        if device == "auto":
            return min(self.growth("cpu"), self.growth("cuda"))
        seconds = self.amount / self.per_second.get(device, inf)
        return min(max(1, int(seconds // STARTING_SECONDS)), self.ranks(device), MAX_STARTED)

    def sentence(self, device: str) -> str:
        """Reason for which a run takes no more ranks than `ranks`.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Kind of the ranks' devices.
        """
        least = self.least[device]
        if isinf(least):
            return f"more ranks take longer for any number of {self.unit}; n_workers= asks for more"
        return (
            f"of {self.amount:,.0f} {self.unit}, each rank should have {least:,.0f}: with fewer of them a run takes "
            "longer than on fewer ranks; n_workers= asks for more"
        )


@dataclass(frozen=True)
class RunSpec:
    """Run ``function(context, **arguments, **row_arguments)`` on every rank; all of it is sent to the ranks.

    Parameters
    ----------
    function : callable
        Importable by name: workers import it. Its value on rank 0 is returned; host arrays only. What
        has a row for each row of the data, it delivers (`mgclust.engine.context.Context.deliver`).
    arguments : mapping
        Its keyword arguments. One that is a Dask array reaches each rank whole, as a NumPy array, from the workers that
        have it.
    estimate : callable, optional
        ``(shape, itemsize, size, room) -> Estimate``, importable: what the method takes beside the rows, a part of
        the sum that is compared with the memory of every rank before a row is read.
    dtype : {"float32", "float64", "int32"}
        Type of the rows on the device.
    memory_limit : int, optional
        Bytes by which each rank may grow. Rows that take more than half of them, or do not fit, are streamed.
    timeout : float
        Seconds that one rank waits for the others in a collective. Dead ranks are noticed at once; this is for those
        that hang.
    metric : str
        The answer depends on distances between rows alone, by this metric: from float64 rows, before they become
        float32, is subtracted what changes no distance (``mgclust.engine.rows``); nothing, if it is not in ``METRICS``.
    typical : int array, optional
        Numbers of the rows near which the origin should lie; None: any.
    resident : bool
        Rows that fit stay in memory. False: each is read when it is asked for, as suits a function that asks once.
    checkpoint : CheckpointConfig or MemoryCheckpoint, optional
        Where the function may save its state, and where it resumes from: ``context.checkpoint``. A run on workers that
        may be tried again has a MemoryCheckpoint, unless it is given another.
    work : Work, optional
        Bounds the ranks of a run that asks for no number of workers.
    row_arguments : mapping
        More arguments: one-dimensional arrays with a number for each row of the data. Each rank is given the numbers
        of its rows, as a NumPy array; those of a Dask array go there from the workers that have them.
    first_calls : mapping
        For `mgclust.kernels.Kernels.compile_ahead`, while rows load: functions that take a GPU longest to compile.
    """

    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)
    estimate: EstimateFunction | None = None
    dtype: str = "float32"
    memory_limit: int | None = None
    timeout: float = TIMEOUT
    metric: str = ""
    typical: np.ndarray | None = None
    resident: bool = True
    checkpoint: CheckpointConfig | MemoryCheckpoint | None = None
    work: Work | None = None
    row_arguments: Mapping[str, Any] = field(default_factory=dict)
    first_calls: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64", "int32"):
            raise InputError(
                f"dtype={self.dtype!r} should be 'float32', 'float64', or 'int32' for the edges of a graph."
            )
