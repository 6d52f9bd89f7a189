"""Description of a run: the same for the caller, for every rank, and for the code between them."""

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

TIMEOUT = 300.0  # seconds that a rank waits for others in a collective
STARTING_SECONDS = 5.0  # a worker is started only for this many seconds of work, about as long as a start takes
MAX_STARTED = 16  # largest number of workers that a run requests by itself, because a cluster may have no maximum


@dataclass(frozen=True)
class Work:
    """Amount of work of a run, and the smallest amount per rank: with less work per rank, fewer ranks are faster.

    Parameters
    ----------
    amount : float
        Work of the whole run.
    unit : str
        Name of the unit in the plural, e.g. "edges".
    least : mapping of str to float
        Smallest amount per rank, by the kind of device, from measurements. Infinite if a run on one rank is always the
        fastest.
    per_second : mapping of str to float
        Approximate work of one rank per second, by the kind of device. Without it, no worker is started for the run.
    """

    amount: float
    unit: str
    least: Mapping[str, float]
    per_second: Mapping[str, float] = field(default_factory=dict)

    def ranks(self, device: str) -> int:
        """Largest number of ranks that each have enough work; at least one.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Kind of the ranks' devices.
        """
        return max(1, int(self.amount // self.least[device]))

    def growth(self, device: str) -> int:
        """Number of workers to which an adaptive cluster should grow: each has at least `STARTING_SECONDS` of work.

        Parameters
        ----------
        device : {"auto", "cpu", "cuda"}
            Kind of the workers' devices. "auto": the kind is not known yet; the smaller of both numbers is returned.
        """
        if device == "auto":
            return min(self.growth("cpu"), self.growth("cuda"))
        seconds = self.amount / self.per_second.get(device, inf)
        return min(max(1, int(seconds // STARTING_SECONDS)), self.ranks(device), MAX_STARTED)

    def sentence(self, device: str) -> str:
        """Reason why a run uses no more ranks than `ranks`.

        Parameters
        ----------
        device : {"cpu", "cuda"}
            Kind of the ranks' devices.
        """
        least = self.least[device]
        if isinf(least):
            return f"more ranks take longer for any number of {self.unit}; set n_workers= to use more ranks"
        return (
            f"for {self.amount:,.0f} {self.unit}, more ranks would take longer: each rank should have at least "
            f"{least:,.0f}; set n_workers= to use more ranks"
        )


@dataclass(frozen=True)
class RunSpec:
    """Description of a run of ``function(context, **arguments, **row_arguments)`` on every rank.

    The whole description is sent to the ranks.

    Parameters
    ----------
    function : callable
        Function that workers can import by name. The result of the run is the return value on rank 0, which may hold
        only host arrays. Arrays with one row per row of the data are delivered separately
        (`mgclust.engine.context.Context.deliver`).
    arguments : mapping
        Keyword arguments of the function. If an argument is a Dask array, each rank gets the whole array as a NumPy
        array, from the workers that hold it.
    estimate : callable, optional
        Importable function ``(shape, itemsize, size, room) -> Estimate``: the memory that the method needs in addition
        to the rows. This memory is a part of the sum that is compared with the memory of every rank before a row is
        read.
    dtype : {"float32", "float64", "int32"}
        Type of the rows on the device.
    memory_limit : int, optional
        Bytes by which each rank may grow. Rows that take more than half of these bytes, or do not fit, are streamed.
    timeout : float
        Seconds that a rank waits for the others in a collective. Dead ranks are noticed at once; this limit is for
        ranks that hang.
    metric : str
        Metric, if the result depends only on distances between rows. If it is in ``METRICS``, a value that changes no
        distance is subtracted from float64 rows before they are converted to float32 (``mgclust.engine.rows``).
    typical : int array, optional
        Numbers of rows near which the subtracted value should lie; None: any rows.
    resident : bool
        True: rows that fit stay in memory. False: each row is read on demand, for functions that read rows only once.
    checkpoint : CheckpointConfig or MemoryCheckpoint, optional
        Where ``context.checkpoint`` saves the state of the function, and from where the function resumes. If a run on
        workers may be retried, it has a MemoryCheckpoint, unless another checkpoint is given.
    work : Work, optional
        Limits the number of ranks of a run without a number of workers.
    row_arguments : mapping
        More arguments: one-dimensional arrays with one number per row of the data. Each rank gets the numbers of its
        rows, as a NumPy array. If an argument is a Dask array, the workers that hold its numbers send them.
    first_calls : mapping
        Functions that take longest to compile for a GPU, for `mgclust.kernels.Kernels.compile_ahead`, which compiles
        them while rows load.
    any_dtype : bool
        Whether the user may choose the type of the rows; messages then recommend float64 if it helps.
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
    any_dtype: bool = True

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64", "int32"):
            raise InputError(
                f"dtype={self.dtype!r} should be 'float32', 'float64', or 'int32' for the edges of a graph."
            )
