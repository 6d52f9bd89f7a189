"""Directions of rows, whatever their length."""

import numpy as np
import pytest

from mgclust.kernels.pairs.metrics import METRICS


@pytest.mark.parametrize("name", ["cosine", "correlation"])
def test_directions_of_rows_whose_squares_float64_does_not_hold(name, device, xp):
    """A power of two leaves every bit of a direction as it is."""
    measure, x = METRICS[name], np.random.default_rng(0).normal(size=(50, 6))
    x[7] = 0.0
    unit = measure.prepare(None)(xp.asarray(np.delete(x, 7, axis=0)))
    for power in (2.0**-900, 2.0**700, 2.0**1000):
        scaled = xp.asarray(x * power)
        assert xp.flatnonzero(measure.undefined(scaled)).tolist() == [7]
        kept = xp.asarray(np.delete(x * power, 7, axis=0))
        assert bool((measure.prepare(None)(kept) == unit).all())


@pytest.mark.parametrize("name", ["cosine", "correlation"])
def test_rows_without_a_direction(name):
    """Zero rows; for a correlation constant ones, too, also where their mean is rounded."""
    x = np.array([[0.0] * 3, [0.1] * 3, [0.1, 0.1, 0.2]])
    for dtype in ("float32", "float64"):
        undefined = METRICS[name].undefined(x.astype(dtype)).tolist()
        assert undefined == [True, name == "correlation", False]
