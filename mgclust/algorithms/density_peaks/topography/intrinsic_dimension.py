"""Intrinsic dimension of rows by their two nearest rows (TwoNN; Facco et al., Scientific Reports 7:12140, 2017).

With r_1 and r_2 the distances of a row to its two nearest ones, mu = r_2 / r_1 has the distribution
``F(mu) = 1 - mu^(-d)`` where the density hardly changes within r_2, whatever the density is. So d is the slope of
``-log(1 - F)`` over ``log(mu)``, a line through the origin, with F the share of the rows that have no larger mu. The
tenth of the rows with the largest mu is left out: there the density does change.
"""

from __future__ import annotations

import numpy as np

__all__ = ["two_nearest_dimension"]

KEPT = 0.9  # of the rows, those of least mu


def two_nearest_dimension(log_ratios: np.ndarray) -> float:
    """Find the dimension from log(mu).

    Parameters
    ----------
    log_ratios : ndarray of shape (m,), float64
        Of the rows whose nearest row is not equal to them.

    Returns
    -------
    float
        Infinite where there is no row, or each has its two nearest at the same distance.
    """
    m = len(log_ratios)
    kept = int(KEPT * m)
    x = np.sort(log_ratios)[:kept]
    y = -np.log1p(-np.arange(1, kept + 1) / m)
    squares = float(x @ x)
    return float(x @ y) / squares if squares > 0 else float("inf")
