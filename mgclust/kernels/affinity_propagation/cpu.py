"""Affinity propagation on the CPU: similarities, their noise, and one iteration of messages."""

from __future__ import annotations

from typing import Any

import numpy as np

from mgclust.kernels.affinity_propagation.cpu_messages import pass_columns, pass_rows
from mgclust.kernels.affinity_propagation.cpu_similarities import jitter, similarities_of_rows

__all__ = ["jitter", "pass_columns", "pass_rows", "similarities"]

Array = Any


def similarities(
    x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
) -> None:
    numbers = np.arange(first_row, first_row + len(x))
    similarities_of_rows(x, numbers, y, norm=norm, factor=factor, y_start=y_start, seed=seed, out=out)
