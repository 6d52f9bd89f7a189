"""`DensityPeaks.fit(X, sample_weight=w)` against sums in float64, and against rows that are repeated."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mgclust import DensityPeaks
from mgclust.algorithms import base
from mgclust.algorithms.common.weights import RowWeights
from mgclust.algorithms.density_peaks.cutoff_distance.row_sample import draw_sample
from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect
from mgclust.engine.memory import Residency
from oracles.density_peaks import check_nearest_higher, distances
from support.points import load_points

few = settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
lattices = st.tuples(st.integers(3, 30), st.integers(1, 3)).flatmap(
    lambda shape: arrays("float64", shape, elements=st.integers(-4, 4).map(float))
)


def fit(X, weights, device="cpu", **parameters):
    return DensityPeaks(**{"device": device, "client": None, **parameters}).fit(X, sample_weight=weights)


def kernel(d, dc, density):
    return np.exp(-((d / dc) ** 2)) if density == "gaussian" else (d < dc).astype("float64")


def densities(D, dc, weights, density):
    """As the class says: what lies at distance 0 counts less one unit, the row itself."""
    here = D == 0
    others = np.where(here, 0, kernel(D, dc, density)) @ weights
    return np.maximum(here @ weights - 1, 0) + others


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "precomputed"])
@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
def test_equals_the_definition(density, metric, device):
    X = load_points("wide032")[0][:1030].astype("float64")
    X[1000:1010] = X[5]
    rng = np.random.default_rng(0)
    weights = rng.random(len(X)) * rng.integers(0, 4, len(X))
    D = distances(X, X, "manhattan" if metric == "precomputed" else metric)
    np.fill_diagonal(D, 0)
    nearly = 1e-12 * D.max()
    D[nearly > D] = 0
    products = np.triu(weights[:, None] * weights, 1)
    of_one = np.maximum(weights * (weights - 1), 0).sum() / 2  # pairs of a row and itself, at distance 0
    order = np.argsort(D, axis=None)
    within = of_one + products.ravel()[order].cumsum()
    dc = D.ravel()[order][np.searchsorted(within, 0.02 * within[-1])]
    for dtype, tolerance in (("float64", 1e-9), ("float32", 1e-5)):
        rows = D if metric == "precomputed" else X
        model = fit(rows, weights, device, n_clusters=8, density=density, metric=metric, dtype=dtype)
        assert model.dc_ == pytest.approx(dc, rel=1e-6)
        exact = model.dc_ if density == "gaussian" else np.nextafter(dc, 0) * (1 - 1e-7 * (dtype == "float32"))
        np.testing.assert_allclose(model.rho_, densities(D, exact, weights, density), rtol=tolerance, atol=1e-9)
        if metric != "precomputed":
            some = weights > 0
            place = np.cumsum(some) - 1
            nearest = model.nearest_higher_[some]
            check_nearest_higher(
                X[some], model.rho_[some], model.delta_[some], np.where(nearest < 0, -1, place[nearest]), metric,
                atol=1e-5 * D.max(),
            )  # fmt: skip
            assert some[model.nearest_higher_[model.nearest_higher_ >= 0]].all()


@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
@few
@given(lattices, st.data())
def test_whole_weights_are_repeated_rows(density, X, data):
    counts = data.draw(arrays("int64", len(X), elements=st.integers(0, 3)).filter(lambda counts: counts.any()))
    options = {"n_clusters": 1, "density": density, "dc": 1.5, "dtype": "float64"}
    rho = fit(X, counts, **options).rho_
    _, same = np.unique(X, axis=0, return_inverse=True)
    assert all(len(set(rho[same.ravel() == group])) == 1 for group in range(same.max() + 1))
    if counts.sum() > 1:
        repeated = fit(np.repeat(X, counts, axis=0), None, **options)
        np.testing.assert_allclose(np.repeat(rho, counts), repeated.rho_, rtol=1e-12)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("seed", [28, 38, *range(4)])
def test_dc_of_whole_weights_is_bitwise_that_of_repeated_rows(seed, dtype):
    """Rounded to float32 near the same point: near the plain mean, seeds 28 and 38 differ in the last bit."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(40, 300)), int(rng.integers(1, 6))
    X = rng.normal(size=(n, d)) * 10 ** rng.uniform(-2, 2) + rng.normal() * 3
    counts = rng.integers(1, 4, n) - (np.arange(n) % 7 == 6) * (seed != 28 and seed != 38)
    repeated = np.repeat(X, counts, axis=0)
    options = {"n_clusters": 3, "dtype": dtype}
    assert fit(X, counts, **options).dc_ == fit(repeated, None, **options).dc_
    if seed < 28:  # some weights are 0
        assert fit(X, counts, **options).dc_ == fit(repeated[rng.permutation(len(repeated))], None, **options).dc_


@pytest.mark.parametrize("algorithm", ["brute", "grid"])
def test_ones_are_no_weights(algorithm):
    X = load_points("overlap1")[0][::4]
    ones, none = (fit(X, w, n_clusters=15, algorithm=algorithm) for w in (np.ones(len(X)), None))
    for name in ("rho_", "delta_", "nearest_higher_", "labels_"):
        np.testing.assert_array_equal(getattr(ones, name), getattr(none, name))
    np.testing.assert_array_equal(ones.predict(X[:9] + 1), none.predict(X[:9] + 1))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["2-D", "40-D", "grid", "cutoff", "precomputed"])
def test_same_bits_on_any_number_of_ranks(case, ranks, monkeypatch, tmp_path):
    X = np.random.default_rng(3).normal(size=(2800, 40 if case == "40-D" else 2)).astype("float32")
    parameters = {"grid": {"algorithm": "grid"}, "cutoff": {"density": "cutoff"}}.get(case, {"algorithm": "brute"})
    if case == "precomputed":
        X, parameters = distances(X, X).astype("float32"), {"metric": "precomputed"}
    weights = np.random.default_rng(4).exponential(size=len(X))
    np.save(tmp_path / "weights.npy", weights)
    alone = fit(X, weights, n_clusters=5, **parameters)
    for size in (2, 3, 4):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        model = fit(X, tmp_path / "weights.npy", n_clusters=5, **parameters)
        for name in ("rho_", "delta_", "nearest_higher_", "labels_"):
            np.testing.assert_array_equal(getattr(model, name), getattr(alone, name), err_msg=f"{name} on {size}")
    monkeypatch.undo()
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    np.testing.assert_array_equal(fit(X, weights, n_clusters=5, **parameters).rho_, alone.rho_)


@pytest.mark.parametrize("density", ["gaussian", "cutoff"])
def test_new_rows(density, device):
    X = load_points("overlap1")[0][::5].astype("float64")
    rng = np.random.default_rng(0)
    weights, new = rng.random(len(X)), X[:200] + 0.1 * X.std() * rng.normal(size=(200, 2))
    model = fit(X, weights, device, n_clusters=15, density=density, dtype="float64")
    expected = []
    for d in distances(new, X):
        denser = np.union1d(
            np.flatnonzero(model.rho_ >= kernel(d, model.dc_, density) @ weights), model.cluster_centers_indices_
        )
        expected.append(model.labels_[denser[d[denser].argmin()]])
    np.testing.assert_array_equal(model.predict(new), expected)


@pytest.mark.parametrize(
    ("weights", "parameters", "message"),
    [
        ([1, 2, -1, 1], {}, "sample_weight holds 1 values that are negative, .* at row 2"),
        ([1, 2, 1], {}, r"sample_weight has shape \(3,\)"),
        (
            "nowhere.npy",
            {},
            "sample_weight='nowhere.npy' cannot be read as an array .* give the path of a .npy, or an array",
        ),
        (
            [1, 2, 1, 1],
            {"density": "knn", "k": 1},
            "density='knn' takes no sample_weight: .* use 'gaussian' or 'cutoff'",
        ),
        ([1e30, 2, 1, 1], {}, r"the largest sample_weight=1e\+30 should be from 1e-20 to 1e\+20"),
    ],
)
def test_what_is_refused(weights, parameters, message):
    with pytest.raises(InputError, match=message):
        fit(np.eye(4), weights, **parameters)


def test_arrays_of_any_kind():
    dask_array = pytest.importorskip("dask.array")
    X, weights = load_points("blobs")[0], np.arange(load_points("blobs")[0].shape[0]) % 3
    expected = fit(X, weights, n_clusters=7).rho_
    for given_weights in (weights.tolist(), dask_array.from_array(weights, chunks=100)):
        np.testing.assert_array_equal(fit(X, given_weights, n_clusters=7).rho_, expected)


def test_it_says_how_the_densities_were_found():
    X = np.random.default_rng(0).normal(size=(300, 2))
    model = fit(X, np.full(300, 2.0), algorithm="grid", n_clusters=2)
    assert (model.exactness_["algorithm"], model.exactness_["rho"]) == ("grid", "all pairs")
    assert ("density", "summed over all pairs") in model.presentation.exactness(model.result_)
    assert "rho" not in fit(X, None, algorithm="grid", n_clusters=2).exactness_


@pytest.mark.parametrize("bad", [-1.0, np.nan])
def test_bad_weights_in_chunks_of_which_some_are_empty(bad):
    da = pytest.importorskip("dask.array")
    weights = np.ones(30)
    weights[17] = bad
    chunks = ((0, 10, 0, 20, 0),)
    with pytest.raises(InputError, match=r"holds 1 values that are negative, NaN or infinite, .* at row 17"):
        RowWeights.of(da.from_array(weights, chunks=10).rechunk(chunks))
    weights[17] = 5.0
    heaviest = RowWeights.of(da.from_array(weights, chunks=10).rechunk(chunks)).heaviest(2)
    np.testing.assert_array_equal(heaviest, [0, 17])


def test_a_sample_of_weighted_rows_stands_for_all():
    """Priority sampling: rows lighter than the threshold have its weight, heavier ones their own."""
    rng = np.random.default_rng(2)
    weights = rng.uniform(0.5, 1.5, 900)
    weights[:5] = [200.0, 300.0, 100.0, 400.0, 250.0]
    weights[5:50] = 0.0

    def function(context):
        return draw_sample(context, 1, weights, given=False, most=300)

    with connect(None, "cpu") as cluster:
        sample = spmd.run(
            spmd.RunSpec(function, dtype="float64"), open_dataset(rng.normal(size=(900, 2))), cluster
        ).value
    assert len(sample) == 300 and not sample.complete and set(range(5)) <= set(sample.numbers.tolist())
    heavy = sample.numbers < 5
    threshold = weights[sample.numbers[heavy]] / sample.weights[heavy]
    np.testing.assert_allclose(threshold, threshold[0])
    assert 1.5 < threshold[0] < 5 and (sample.weights[~heavy] == 1).all() and (weights[sample.numbers] > 0).all()
    assert threshold[0] * sample.weights.sum() == pytest.approx(weights.sum(), rel=0.1)


def test_weighted_rows_are_not_sent_to_a_test_that_takes_no_weights():
    X, weights = np.random.default_rng(0).random((400, 2)), np.random.default_rng(1).uniform(0.5, 2, 400)
    for some, advised in ((None, True), (weights, False)):
        model = DensityPeaks(dc=0.1, device="cpu", client=None).fit(X, sample_weight=some)
        (said,) = (text for text in model.result_.warnings if "do not stand out" in text)
        assert ("significance" in said) == advised
