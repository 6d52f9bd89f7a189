"""Histograms of weighted pairs against sums of Python's integers."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels.pairs.weighted_histogram import MOST_WEIGHT, add_pair_weights


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("largest", [3, MOST_WEIGHT // 40])
def test_equals_sums_of_integers(dtype, largest, xp):
    rng = np.random.default_rng(0)
    s = np.round(rng.random((20, 19)), 1).astype(dtype)
    rows, columns = (rng.integers(0, largest, size) for size in s.shape)
    bits = s.view(f"int{8 * s.itemsize}")
    low = int(np.array(0.25, dtype).view(bits.dtype))
    shift = 20 if dtype == "float32" else 50
    expected = [0] * 9
    for (i, j), value in np.ndenumerate(bits):
        at = 0 if value < low else 1 + ((int(value) - low) >> shift)
        if at < 9:
            expected[at] += int(rows[i]) * int(columns[j])
    out = xp.zeros(9, dtype="int64")
    for part in (slice(0, 7), slice(7, 20)):
        add_pair_weights(
            xp.asarray(s[part]), xp.asarray(rows[part]), xp.asarray(columns), low=low, shift=shift, out=out, xp=xp
        )
    assert out.tolist() == expected
