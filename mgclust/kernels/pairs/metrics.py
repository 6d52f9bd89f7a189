"""Metrics, and the reduced distances that the kernels compute for them.

A kernel never computes a distance. It computes a *reduced distance* s, which is cheaper and grows with the distance:

=============  ==========================================  ================  =============
metric         rows are first                              s                 distance
=============  ==========================================  ================  =============
euclidean      centred near the mean of all rows           sum (x - y)^2     sqrt(s)
sqeuclidean    centred near the mean of all rows           sum (x - y)^2     s
manhattan      centred near the mean of all rows           sum |x - y|       s
cosine         scaled to unit length                       sum (x - y)^2     s / 2
correlation    centred each by its own mean, unit length   sum (x - y)^2     s / 2
=============  ==========================================  ================  =============

Centring changes no distance and keeps float32 accurate for data far from the origin. For unit rows
``1 - x.y = |x - y|^2 / 2`` without the cancellation that the left side suffers for near rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

__all__ = ["METRICS", "Metric"]

Array = Any


@dataclass(frozen=True)
class Metric:
    """A metric: one row of the table in the docstring of this module."""

    name: str  # the name that users write
    norm: str = "l2"  # {"l2", "l1"}: sum that defines the reduced distance
    unit_rows: bool = False  # whether rows are first scaled to unit length
    center_rows: bool = False  # whether each row is centred by its own mean before it is scaled (correlation)
    squared: bool = True  # whether the distance is proportional to s, instead of to its square root

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "l1"):
            raise ValueError(f"norm={self.norm!r} should be 'l2' or 'l1'; the kernels have no other norm.")

    @property
    def factor(self) -> float:
        """Distance divided by reduced distance, if they are proportional."""
        return 0.5 if self.unit_rows else 1.0

    @property
    def is_square(self) -> bool:
        """Return whether the distance is the square of another metric, up to a factor."""
        return self.squared and self.norm == "l2"

    @property
    def power(self) -> int:
        """Exponent p in ``(d / dc)^2 = scale * s^p``."""
        return 2 if self.squared else 1

    def scale(self, dc: float) -> float:
        """Return the factor of ``s^power`` in ``(d / dc)^2``; see `power`."""
        return (self.factor / dc) ** 2 if self.squared else 1.0 / dc**2

    def distance(self, s: float) -> float:
        """Return the distance for a reduced distance."""
        return s * self.factor if self.squared else math.sqrt(s)

    def distances(self, s: Array, xp: Any) -> Array:
        """Return the distances for an array of reduced distances, in its type."""
        return s * self.factor if self.squared else xp.sqrt(s)

    def reduced(self, distance: float) -> float:
        """Return the reduced distance for a distance."""
        return distance / self.factor if self.squared else distance**2

    def prepare(self, center: Array) -> Callable[[Array], Array]:
        """Make the transform that is applied to every row before kernels use it.

        Parameters
        ----------
        center : array of shape (n_features,), float64
            A point near the mean of all rows. Metrics that scale rows do not use it.

        Returns
        -------
        callable
            Maps rows (m, n_features) to rows of the same shape and dtype. The result for a row depends only on this
            row, and so not on how rows are split. For rows that cannot be mapped, see `undefined`.
        """
        if not self.unit_rows:
            return lambda x: (x - center).astype(x.dtype)
        return self._to_unit_rows

    def undefined(self, x: Array) -> Array:
        """Return the mask of rows without a direction, whose distances are undefined.

        Parameters
        ----------
        x : array of shape (m, n_features)
            The rows.

        Returns
        -------
        bool array of shape (m,)
            False for all rows, if the metric does not scale rows.
        """
        if not self.unit_rows:
            return x[:, 0] != x[:, 0]
        wide = _scaled(x)
        _, length = self._direction(wide)
        # Centring a constant row leaves only rounding errors, which do not define a direction.
        smallest = 1e-12 * abs(wide).max(axis=1) * x.shape[1] ** 0.5
        return length[:, 0] <= smallest

    def _to_unit_rows(self, x: Array) -> Array:
        wide, length = self._direction(_scaled(x))
        return (wide / length).astype(x.dtype)

    def _direction(self, wide: Array) -> tuple[Array, Array]:
        if self.center_rows:
            wide = wide - wide.mean(axis=1, keepdims=True)
        return wide, (wide * wide).sum(axis=1, keepdims=True) ** 0.5


def _scaled(x: Array) -> Array:
    """Return rows as float64; float64 rows are scaled by powers of two, so that squares cannot overflow or vanish.

    The scale does not change the bits of a row's direction.
    """
    if x.dtype.itemsize < 8:
        return x.astype("float64")
    exponents = np.frexp(abs(x).max(axis=1, keepdims=True))[1]
    return np.ldexp(x, -exponents)


METRICS = {
    metric.name: metric
    for metric in (
        Metric("euclidean", squared=False),
        Metric("sqeuclidean"),
        Metric("manhattan", norm="l1"),
        Metric("cosine", unit_rows=True),
        Metric("correlation", unit_rows=True, center_rows=True),
    )
}
