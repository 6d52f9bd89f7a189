"""What a run is: one description, for the caller, for every rank, and for what lies between them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.memory import EstimateFunction
from mgclust.errors import InputError

__all__ = ["RunSpec"]

TIMEOUT = 300.0  # seconds


@dataclass(frozen=True)
class RunSpec:
    """Run ``function(context, **arguments)`` on every rank; all of it is sent to the ranks."""

    # importable by name (workers import it). Its value on rank 0 is returned; host arrays only.
    function: Callable[..., Any]
    arguments: Mapping[str, Any] = field(default_factory=dict)  # its keyword arguments
    # ``(shape, itemsize, size, resident_limit) -> Estimate``, importable: compared with the memory that is free on
    # every rank before the run
    estimate: EstimateFunction | None = None
    dtype: str = "float32"  # {"float32", "float64", "int32"}: type of the rows on the device
    # bytes of its device that each rank may use. Rows that do not fit into half of them are streamed.
    memory_limit: int | None = None
    # seconds that one rank waits for the others in a collective. Dead ranks are noticed at once; this is for those that
    # hang.
    timeout: float = TIMEOUT
    # the function's answer does not change when one point is subtracted from all rows: float64 rows may be moved to the
    # origin before they become float32 (`mgclust.engine.rows.offset_of`)
    shift: bool = False
    # int array or None: numbers of the rows near which the origin should lie; None: any
    typical: np.ndarray | None = None
    # rows that fit stay in memory; False: each is read when it is asked for, as suits a function that asks once
    resident: bool = True
    # where the function may save its state, and where it resumes from (`Context.checkpoint`)
    checkpoint: CheckpointConfig | None = None

    def __post_init__(self) -> None:
        if self.dtype not in ("float32", "float64", "int32"):
            raise InputError(
                f"dtype={self.dtype!r} should be 'float32', 'float64', or 'int32' for the edges of a graph."
            )
