"""Intrinsic dimension from the two nearest rows of each row (TwoNN; Facco et al., Scientific Reports 7:12140, 2017).

r_1 and r_2 are the distances of a row to its two nearest rows. If the density hardly changes within r_2,
mu = r_2 / r_1 has the distribution ``F(mu) = 1 - mu^(-d)``, whatever the density is. So d is the slope of
``-log(1 - F)`` against ``log(mu)``, a line through the origin, where F is the fraction of the rows that have at most
this mu. The tenth of the rows with the largest mu is left out, because the density changes there.
"""

from __future__ import annotations

import numpy as np

__all__ = ["two_nearest_dimension"]

KEPT = 0.9  # fraction of the rows that is used: the rows with the smallest mu


def two_nearest_dimension(log_ratios: np.ndarray) -> float:
    """Find the dimension from log(mu).

    Parameters
    ----------
    log_ratios : ndarray of shape (m,), float64
        log(mu) of the rows that have no duplicate.

    Returns
    -------
    float
        Infinite if every row has a duplicate, or if the two nearest rows of every row are at the same distance.
    """
    m = len(log_ratios)
    kept = int(KEPT * m)
    x = np.sort(log_ratios)[:kept]
    y = -np.log1p(-np.arange(1, kept + 1) / m)
    squares = float(x @ x)
    return float(x @ y) / squares if squares > 0 else float("inf")
