"""Equal rows have equal densities, bit for bit, wherever they are, so that ties follow the rule."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.algorithms import base
from mgclust.algorithms.density_peaks.passes import duplicate_rows, near_linear
from mgclust.engine.memory import Residency
from oracles.density_peaks import density
from support import duplicate_cases

pytestmark = pytest.mark.xdist_group("workers")


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(size, X, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        return DensityPeaks(**{"n_clusters": 10, "algorithm": "brute", "device": "cpu", **parameters}).fit(X)

    return fit


@pytest.mark.quick("few-*")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(("features", "metric", "parameters"), duplicate_cases.cases())
def test_equal_rows_have_equal_densities(features, metric, parameters, dtype, fit_on):
    X = duplicate_cases.rows(features)
    duplicate_cases.assert_ties_follow_the_rule(fit_on(1, X, metric=metric, dtype=dtype, **parameters), X)


@pytest.mark.quick("few")
@pytest.mark.parametrize("features", ["few", "all"])
def test_on_any_number_of_ranks(features, fit_on):
    X = duplicate_cases.rows(features)
    alone = fit_on(1, X)
    for size in (2, 3, 4):
        model = fit_on(size, X)
        duplicate_cases.assert_ties_follow_the_rule(model, X)
        assert model.rho_.tobytes() == alone.rho_.tobytes(), f"on {size} ranks"


def test_streamed_rows(fit_on, monkeypatch):
    """One block of own rows at a time, as if they did not fit."""
    X = duplicate_cases.rows("few")
    resident = fit_on(1, X)
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    streamed = fit_on(1, X)
    duplicate_cases.assert_ties_follow_the_rule(streamed, X)
    assert streamed.rho_.tobytes() == resident.rho_.tobytes()


def test_rows_that_the_grid_leaves_to_direct_sums(fit_on, monkeypatch):
    """Near-linear, with a tolerance for which all rows are added up directly."""
    monkeypatch.setattr(near_linear, "RHO_TOLERANCE", 1e-16)
    X = duplicate_cases.rows("few")
    model = fit_on(1, X, algorithm="grid")
    assert model.exactness_["rho_recomputed_rows"] == len(X)
    duplicate_cases.assert_ties_follow_the_rule(model, X)


@pytest.mark.parametrize("seen", [0, 1], ids=["all hashes alike", "hashes of the first feature"])
@pytest.mark.parametrize("algorithm", ["brute", "grid"])
def test_rows_of_equal_hash_need_not_be_equal(seen, algorithm, fit_on, monkeypatch):
    X = duplicate_cases.rows("few")[:3000]
    hashes = duplicate_rows.row_hashes
    monkeypatch.setattr(duplicate_rows, "row_hashes", lambda x, xp: hashes(xp.ascontiguousarray(x[:, :1] * seen), xp))
    monkeypatch.setattr(near_linear, "RHO_TOLERANCE", 1e-16)
    model = fit_on(1, X, algorithm=algorithm)
    np.testing.assert_allclose(model.rho_, density(X, model.dc_), rtol=1e-6)


def test_far_rows_keep_the_digits_of_their_small_densities(fit_on):
    """Rows with others equal to them or not: densities down to 1e-20 and less."""
    rng = np.random.default_rng(5)
    X = np.concatenate([rng.normal(size=(1500, 2)), rng.normal(size=(300, 2)) * 12, rng.normal(size=(200, 2)) * 12])
    X[-100:] = X[-200:-100]
    model = fit_on(1, X, dc=1.0, dtype="float64")
    assert model.rho_.min() < 1e-20
    np.testing.assert_allclose(model.rho_, density(X, 1.0), rtol=1e-9)


def test_hashes_are_of_values(rng):
    x = rng.integers(-2, 3, (5000, 4)).astype("float32")
    x[x == 0] *= np.where(rng.random((x == 0).sum()) < 0.5, -1, 1)
    for dtype in ("float32", "float64"):
        hashes = duplicate_rows.row_hashes(x.astype(dtype), np)
        _, first, group = np.unique(x + 0, axis=0, return_index=True, return_inverse=True)
        np.testing.assert_array_equal(duplicate_rows.first_with_hash(hashes, np), first[group.ravel()])
        assert len(np.unique(hashes)) == len(first)


@pytest.mark.slow
def test_integers_of_many_rows_have_different_hashes():
    """Floats of small integers end in zeros, which a product of integers keeps."""
    grid = np.stack(np.meshgrid(np.arange(600), np.arange(600)), -1).reshape(-1, 2)
    for scale in (1.0, 1024.0, 0.25):
        for dtype in ("float32", "float64"):
            assert len(np.unique(duplicate_rows.row_hashes((grid * scale).astype(dtype), np))) == len(grid)
