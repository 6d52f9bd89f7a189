"""`FuzzyCMeans`: bad input is refused in a sentence, and what a run should not hide is a warning."""

from __future__ import annotations

import re

import numpy as np
import pytest

from mgclust import FuzzyCMeans
from mgclust.algorithms.fuzzy_c_means.run_spec import automatic_m
from mgclust.base.errors import ClusteringWarning, InputError
from oracles import fuzzy_c_means as reference
from support.points import load_points


def fit(X, device="cpu", sample_weight=None, **parameters):
    return FuzzyCMeans(device=device, client=None, **parameters).fit(X, sample_weight=sample_weight)


@pytest.fixture
def blobs(rng) -> np.ndarray:
    return rng.normal(size=(600, 3)) + 8 * rng.normal(size=(4, 3))[rng.integers(0, 4, 600)]


@pytest.mark.parametrize("m", [1, 1.0, 0.5, 0, -2, float("nan"), float("inf"), "two"])
def test_m(m, blobs):
    with pytest.raises(InputError, match=rf"m={re.escape(repr(m))}.*(above|>) 1"):
        fit(blobs, n_clusters=3, m=m)


@pytest.mark.parametrize("m", [100.0, 600.0, 1000.0, 1e6])
def test_u_to_the_m_that_no_number_holds(m, blobs):
    """u^m is about 4^-m in all rows: scaled, the centres are those that logarithms give."""
    centers = np.array([[0.0, 1, 2], [5, 5, 5], [-3, 1, 0.5], [1, -8, 2]]) + blobs.mean(axis=0)
    model = fit(blobs, n_clusters=4, m=m, init=centers, max_iter=1)
    d2 = ((blobs[:, None] - centers[None]) ** 2).sum(axis=2)
    log_r = (np.log(d2.min(axis=1, keepdims=True)) - np.log(d2)) / (m - 1)
    log_g = m * (log_r - np.log(np.exp(log_r).sum(axis=1, keepdims=True)))
    g = np.exp(log_g - log_g.max(axis=0))
    np.testing.assert_allclose(model.cluster_centers_, (g.T @ blobs) / g.sum(axis=0)[:, None], rtol=1e-7)
    assert np.isfinite(model.objective_history_).all() and (model.objective_history_ >= 0).all()
    assert model.partition_coefficient_ == pytest.approx((model.memberships_**2).sum() / len(blobs))


@pytest.mark.parametrize("c", [0, -1, 2.5, "two"])
def test_number_of_clusters(c, blobs):
    with pytest.raises(InputError, match=rf"n_clusters={re.escape(repr(c))}.*>= 1"):
        fit(blobs, n_clusters=c)


def test_more_clusters_than_rows(blobs):
    with pytest.raises(InputError, match=r"n_samples=600 should be >= n_clusters=601.*fewer clusters"):
        fit(blobs, n_clusters=601)
    with pytest.raises(InputError, match=r"positive sample_weight=3 should be >= n_clusters=4"):
        fit(blobs, n_clusters=4, sample_weight=(np.arange(600) < 3).astype(float))


@pytest.mark.parametrize("shape", [(3, 3), (4, 2), (600, 3), (4, 600), (4,), (4, 3, 1)])
def test_shape_of_init(shape, blobs):
    with pytest.raises(InputError, match=r"init.*shape"):
        fit(blobs, n_clusters=4, init=np.full(shape, 0.25))


def test_content_of_init(blobs):
    U = reference.memberships(blobs, blobs[:4], 2.0)
    sums = U.copy()
    sums[[17, 30]] *= 1.01
    with pytest.raises(InputError, match=r"init has 2 rows.*row 17, which sums to 1\.01.*divide"):
        fit(blobs, n_clusters=4, init=sums)
    negative = U.copy()
    negative[5] = [-0.5, 1.5, 0, 0]
    with pytest.raises(InputError, match=r"init has 1 row.*non-negative.*row 5"):
        fit(blobs, n_clusters=4, init=negative)
    empty = U.copy()
    empty[:, 1] += empty[:, 2]
    empty[:, 2] = 0
    with pytest.raises(InputError, match="cluster 2"):
        fit(blobs, n_clusters=4, init=empty)
    for value in (np.nan, np.inf):
        centers = blobs[:4].copy()
        centers[2, 1] = value
        with pytest.raises(InputError, match=r"init holds 1 value.*row 2"):
            fit(blobs, n_clusters=4, init=centers)
    with pytest.raises(InputError, match=r"init='kmeans'.*'k-means\+\+'"):
        fit(blobs, n_clusters=4, init="kmeans")


@pytest.mark.parametrize(
    ("weights", "says"),
    [
        (np.where(np.arange(600) == 8, -1.0, 1.0), r"1 value.*negative.*-1 at row 8"),
        (np.where(np.arange(600) == 9, np.nan, 1.0), "nan at row 9"),
        (np.where(np.arange(600) == 9, np.inf, 1.0), "inf at row 9"),
        (np.zeros(600), "zero for all rows.*positive"),
        (np.ones(599), r"shape \(599,\).*\(600,\)"),
        (np.ones((600, 1)), r"shape \(600, 1\)"),
    ],
)
def test_sample_weight(weights, says, blobs):
    with pytest.raises(InputError, match=f"sample_weight.*{says}"):
        fit(blobs, n_clusters=4, sample_weight=weights)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"tol": -1e-3}, "tol="),
        ({"max_iter": 0}, "max_iter=0"),
        ({"n_init": 0}, "n_init=0"),
        ({"metric": "manhattan"}, "metric='manhattan'.*'euclidean'"),
        ({"dtype": "float16"}, "dtype='float16'"),
    ],
)
def test_other_parameters(parameters, says, blobs):
    with pytest.raises(InputError, match=says):
        fit(blobs, n_clusters=4, **parameters)


def test_rows_that_are_not_finite(blobs):
    X = blobs.copy()
    X[3, 1] = np.nan
    with pytest.raises(InputError, match=r"1 value.*row 3|row 3"):
        fit(X, n_clusters=4)


def test_collapsing_centers_are_said(device, rng):
    """Many dimensions, m = 2: all centres end in the mean (Winkler and others). Which parameters to change is said."""
    X = rng.normal(size=(2000, 60)) + rng.normal(size=(10, 60))[np.arange(2000) % 10]
    model = FuzzyCMeans(10, m=2.0, tol=1e-9, max_iter=500, random_state=0, device=device, client=None)
    match = r"10 of 10 centres coincide.*lower m \(m='auto' takes 1.05\).*fewer clusters.*init"
    with pytest.warns(ClusteringWarning, match=match):
        model.fit(X)
    assert any("coincide" in text for text in model.result_.warnings)
    # What the sentence says to do helps.
    model = FuzzyCMeans(10, random_state=0, device=device, client=None).fit(X)
    assert not model.result_.warnings and model.result_.scores["m"] == model.m_ == pytest.approx(1.05, abs=0.01)


def test_noise_is_said_to_hold_no_clusters(device, rng):
    """That is what the automatic m is made for."""
    model = FuzzyCMeans(10, random_state=0, device=device, client=None)
    with pytest.warns(ClusteringWarning, match="10 of 10 centres coincide"):
        model.fit(rng.normal(size=(2000, 60)))


def test_tiny_and_empty_clusters_are_counted(device, rng):
    """Centres of their own for two far rows, and two in one place."""
    X = np.concatenate([rng.normal(size=(1998, 3)), [[80.0, 0, 0]], [[0, 80.0, 0]]])
    model = FuzzyCMeans(5, m=1.1, init=X[[0, 0, 1, -2, -1]], device=device, client=None)
    match = (
        "1 of 5 clusters have no rows, 2 of 5 clusters have at most 3 of 2000 rows: "
        r"lower m \(for example m=1.05\), or request"
    )
    with pytest.warns(ClusteringWarning, match=match):
        model.fit(X)
    assert any("2 of 5 centres coincide" in text for text in model.result_.warnings)


def test_a_cluster_of_one_of_few_rows_is_said(rng):
    """Where clusters have ten rows and more on the average; of fewer, one row is no small part."""
    X = np.concatenate([rng.normal(size=(59, 2)), [[90.0, 0]]])
    models = [FuzzyCMeans(c, init=X[-c:], client=None, device="cpu").fit(X) for c in (3, 8)]
    assert [np.bincount(model.labels_).min() for model in models] == [1, 1]
    (said,), unsaid = (model.result_.warnings for model in models)
    assert re.search("1 of 3 clusters have at most 2 of 60 rows.*noise_distance if .* are outliers", said)
    assert not any("at most" in text for text in unsaid)


def test_clusters_of_two_of_many_rows_are_said(rng):
    X = np.concatenate([rng.normal(size=(100, 2)), [[90.0, 0], [90.1, 0]]])
    (said,) = FuzzyCMeans(2, init=X[[0, -1]], client=None, device="cpu").fit(X).result_.warnings
    assert "1 of 2 clusters have at most 2 of 102 rows" in said


def test_more_clusters_than_half_of_the_rows(rng):
    said = [FuzzyCMeans(c, client=None, device="cpu").fit(rng.random((60, 2))).result_.warnings for c in (30, 31)]
    assert not any("more than half" in text for text in said[0])
    assert any("n_clusters=31 is more than half of the 60 rows" in text and "for example 7" in text for text in said[1])


def test_a_distance_of_noise_that_is_too_small(rng):
    model = FuzzyCMeans(3, noise_distance=1e-9, random_state=0, device="cpu", client=None).fit(rng.random((60, 2)))
    (said,) = (text for text in model.result_.warnings if "rows" in text)
    assert said.endswith("raise noise_distance.")


def test_more_clusters_than_different_rows(rng):
    X = np.repeat(rng.random((3, 2)), 20, axis=0)
    (said,) = FuzzyCMeans(5, client=None, device="cpu").fit(X).result_.warnings
    assert said == "n_clusters=5 is more than the number of distinct rows, 3: request fewer clusters."


@pytest.mark.parametrize(
    ("shape", "m"), [((1000, 2), 2.0), ((1000, 5), 2.0), ((10_992, 16), 1.1494), ((10_000, 784), 1.01)]
)
def test_the_automatic_fuzzifier(shape, m):
    """Figures of the published formula, and never above 2."""
    assert automatic_m(*shape) == pytest.approx(m, rel=1e-3)


def test_a_coincidence_of_few_is_counted(device, blobs):
    start = np.concatenate([blobs[:3], blobs[:1]])
    model = FuzzyCMeans(4, init=start, max_iter=3, device=device, client=None)
    with pytest.warns(UserWarning, match="2 of 4 centres coincide"):
        model.fit(blobs)


def test_clusters_without_rows_are_said(device):
    """At m near 1 a centre far away from all rows has no membership that float64 could hold."""
    X = load_points("rings")[0].astype("float64")
    start = np.concatenate([X[:5], [[1e6, 1e6]]])
    model = FuzzyCMeans(6, m=1.001, init=start, max_iter=20, device=device, client=None)
    with pytest.warns(UserWarning, match="1 of 6 clusters have no row"):
        model.fit(X)
    assert np.isfinite(model.cluster_centers_).all()
    np.testing.assert_allclose(model.cluster_centers_[5], 1e6)
