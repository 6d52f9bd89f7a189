"""Gaussian sums from each pair once, for both of its rows: against float64; no split of the pairs changes a bit."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load

UNIT = 2.0**50


def blobs(m, d, *, condition=1.0):
    """Rows about the origin, and a scale at which the largest |x|^2 is so many times dc^2."""
    rng = np.random.default_rng([m, d])
    X = (rng.normal(size=(m, d)) + 0.5 * rng.integers(0, 3, (m, 1))).astype("float32")
    X -= X.mean(axis=0)
    return X, float(condition / (X.astype("float64") ** 2).sum(axis=1).max())


def wanted(X, Y, scale):
    wide, other = X.astype("float64"), Y.astype("float64")
    return np.exp(-scale * ((wide**2).sum(axis=1)[:, None] + (other**2).sum(axis=1) - 2 * wide @ other.T))


def both_ways(kernels, X, Y, scale, *, diagonal=False):
    """The sums of the rows and of the columns, on the host."""
    x = kernels.memory.to_device(X)
    y = x if diagonal else kernels.memory.to_device(Y)
    sums = [kernels.xp.zeros(len(rows), dtype="int64") for rows in (X, Y)]
    kernels.pairs.gaussian_both_ways(x, y, scale=scale, diagonal=diagonal, unit=UNIT, x_out=sums[0], y_out=sums[1])
    return [kernels.memory.to_host(each) for each in sums]


@pytest.mark.parametrize("d", [17, 64, 100, 513])
@pytest.mark.parametrize("condition", [1, 2, 8])
def test_sums_of_a_triangle(device, d, condition):
    kernels = load(device)
    X, scale = blobs(700, d, condition=condition)
    below, above = both_ways(kernels, X, X, scale, diagonal=True)
    terms = wanted(X, X, scale)
    np.fill_diagonal(terms, 0)
    # The sum of squares is rounded to float32: at the worst condition no pair's exponent is better than 2e-6.
    np.testing.assert_allclose((below + above) / UNIT, terms.sum(axis=1), rtol=1e-6 if condition < 8 else 4e-6)
    assert not below[-1] and not above[0]  # the last row has no column after it, the first column no row before it


@pytest.mark.parametrize(("m", "k"), [(1, 1), (0, 5), (4, 0), (3, 300), (129, 127), (128, 640), (700, 2)])
def test_sums_of_rows_and_of_columns(device, m, k):
    kernels = load(device)
    Y, scale = blobs(700, 40)
    X, Y = Y[:m][::-1].copy(), Y[700 - k :]
    rows, columns = both_ways(kernels, X, Y, scale)
    terms = wanted(X, Y, scale)
    np.testing.assert_allclose(rows / UNIT, terms.sum(axis=1), rtol=1e-6)
    np.testing.assert_allclose(columns / UNIT, terms.sum(axis=0), rtol=1e-6)


@pytest.mark.parametrize("d", [17, 100, 300])
def test_no_split_and_no_exchange_changes_a_bit(device, d):
    kernels = load(device)
    X, scale = blobs(1500, d)
    X[1400:] = X[:100]  # equal rows, equal bits
    below, above = both_ways(kernels, X, X, scale, diagonal=True)
    whole = below + above
    np.testing.assert_array_equal(whole[1400:], whole[:100])
    cut = 611
    parts = np.zeros(1500, "int64")
    for part in (slice(0, cut), slice(cut, 1500)):
        parts[part] += sum(both_ways(kernels, X[part], X[part], scale, diagonal=True))
    columns, rows = both_ways(kernels, X[cut:], X[:cut], scale)  # later rows, earlier columns
    parts[:cut] += rows
    parts[cut:] += columns
    np.testing.assert_array_equal(parts, whole)


def test_a_scale_that_is_infinite_in_halves(device):
    """Rows that no halves can hold are summed by direct differences."""
    kernels = load(device)
    X, scale = blobs(200, 20)
    X[7] *= np.float32(1e8)
    below, above = both_ways(kernels, X, X, scale, diagonal=True)
    terms = wanted(X, X, scale)
    np.fill_diagonal(terms, 0)
    assert not (below + above)[7]
    np.testing.assert_allclose((below + above) / UNIT, terms.sum(axis=1), rtol=1e-6)
