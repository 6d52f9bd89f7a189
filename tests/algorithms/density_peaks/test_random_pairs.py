"""dc from random pairs: which pairs, and that the stated error holds."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks
from mgclust.algorithms.density_peaks.cutoff_distance import random_pairs
from mgclust.base.errors import ClusteringWarning, InputError
from oracles import density_peaks as reference
from support.points import load_points

OPTIONS = {"n_clusters": 5, "dc_method": "sample", "client": None}


@pytest.fixture
def X(rng):
    return rng.normal(size=(400, 3)) + 6 * rng.normal(size=(5, 3))[rng.integers(0, 5, 400)]


def distances_drawn(X, pairs, seed, metric):
    """The pairs that the seed stands for, in one go, and their distances."""
    rng = np.random.default_rng(seed)
    i, j = rng.integers(0, len(X), pairs), rng.integers(0, len(X) - 1, pairs)
    j += j >= i
    assert (i != j).all()
    return np.sort(reference.distances(X, X, metric)[i, j])


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean", "manhattan", "cosine", "correlation"])
def test_it_is_the_order_statistic_of_the_drawn_pairs(metric, X, device):
    model = DensityPeaks(sample_size=3000, random_state=7, metric=metric, dtype="float64", device=device, **OPTIONS)
    with pytest.warns(ClusteringWarning, match=r"dc=.* was sampled.*within .*95% confidence.*larger sample_size"):
        model.fit(X)
    drawn = distances_drawn(X, 3000, 7, metric)
    low, high = binom.ppf([0.025, 0.975], 3000, 0.02).astype(int)
    assert model.dc_ == pytest.approx(drawn[60 - 1], rel=1e-9)
    assert model.dc_error_ == pytest.approx(max(drawn[high] - drawn[59], drawn[59] - drawn[low - 1]), rel=1e-6)
    assert model.exactness_["dc_pairs"] == 3000 and "dc_passes" not in model.exactness_
    assert model.result_.scores["dc_error"] == model.dc_error_


@pytest.mark.parametrize("share", [0.0001, 0.02, 0.5, 0.97])
def test_the_interval_holds_in_95_of_100_samples(share, rng):
    """Of numbers whose quantile is known; the places are also not wider than they must be."""
    low, at, high = random_pairs.places(1000, share)
    drawn = np.sort(rng.random((4000, 1000)), axis=1)
    missed_below = (drawn[:, low - 1] > share).mean() if low else 0.0
    missed_above = (drawn[:, high - 1] < share).mean()
    assert missed_below < 0.025 + 0.01 and missed_above < 0.025 + 0.01
    if low:
        assert binom.cdf(low, 1000, share) >= 0.025  # a higher place would hold less often
    assert binom.cdf(high - 2, 1000, share) < 0.975
    assert at == max(1, round(1000 * share))


def test_the_error_holds_for_distances(X, device):
    """Of 40 seeds at least 35 hold: fewer have a chance of 0.003 where each holds with 0.95."""
    exact = reference.cutoff_distance(X)
    with pytest.warns(ClusteringWarning):
        models = [
            DensityPeaks(sample_size=5000, random_state=seed, device=device, **OPTIONS).fit(X) for seed in range(40)
        ]
    assert len({model.dc_ for model in models}) > 30
    assert sum(abs(model.dc_ - exact) <= model.dc_error_ for model in models) >= 35
    assert np.median([model.dc_error_ for model in models]) < 0.2 * exact


def test_the_same_pairs_in_one_go_or_in_several(X, device, monkeypatch):
    """Chunks differ in which numbers the generator gives; each stays the same whatever the ranks are."""
    monkeypatch.setattr(random_pairs, "PAIRS_AT_ONCE", 1000)
    with pytest.warns(ClusteringWarning):
        several = DensityPeaks(sample_size=2500, random_state=1, device=device, dtype="float64", **OPTIONS).fit(X)
    rng, drawn = np.random.default_rng(1), []
    for count in (1000, 1000, 500):
        i, j = rng.integers(0, 400, count), rng.integers(0, 399, count)
        drawn.append(reference.distances(X, X, "euclidean")[i, j + (j >= i)])
    assert several.dc_ == pytest.approx(np.sort(np.concatenate(drawn))[49], rel=1e-9)


def test_two_equal_halves_take_the_smallest_positive_distance(device, rng):
    X = np.repeat(rng.normal(size=(2, 3)), 50, axis=0)
    with pytest.warns(ClusteringWarning, match="smallest positive distance"):
        model = DensityPeaks(2, dc_fraction=0.02, sample_size=200, dc_method="sample", device=device, client=None).fit(
            X
        )
    assert model.dc_ == pytest.approx(np.linalg.norm(X[0] - X[-1]), rel=1e-6) and model.dc_error_ == 0


def test_a_sample_with_too_many_equal_pairs_decides_nothing(device, rng):
    """95 of 4,950 pairs are equal, just below the share; of many samples of 100 more than two."""
    X = rng.normal(size=(100, 2))
    X[:14], X[20:23], X[30] = X[0], X[20], X[31]
    exact = DensityPeaks(2, device=device, client=None).fit(X)
    assert exact.dc_ > 0 and "equal_pairs" not in exact.exactness_
    found = []
    for seed in range(20):
        model = DensityPeaks(2, dc_method="sample", sample_size=100, random_state=seed, device=device, client=None)
        with warnings.catch_warnings(record=True):
            warnings.simplefilter("always")
            model.fit(X)
        found.append(model.dc_ if model.dc_error_ == 0 else None)
        assert "equal_pairs" not in model.exactness_
        assert ("dc_pairs" in model.exactness_) == (model.dc_error_ > 0)
    assert {each for each in found if each is not None} == {exact.dc_}


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"dc_method": "exact", "sample_size": 1000}, "sample_size=1000 needs dc_method='sample'"),
        ({"metric": "precomputed", "sample_size": 1000}, "metric='precomputed'"),
        ({"sample_size": 99}, "sample_size=99 should be"),
        (
            {"sample_size": 100, "dc_fraction": 0.99},
            "is too small for dc_fraction=0.99: .*dc_method='exact'",
        ),
    ],
)
def test_refusals(parameters, said, X, device):
    rows = reference.distances(X, X, "euclidean") if parameters.get("metric") else X
    with pytest.raises(InputError, match=said):
        DensityPeaks(device=device, **{**OPTIONS, **parameters}).fit(rows)


@pytest.mark.slow
def test_clusters_are_those_of_the_exact_distance(device):
    X, _ = load_points("clusters")
    exact = DensityPeaks(31, device=device, client=None).fit(X)
    with pytest.warns(ClusteringWarning):
        sampled = DensityPeaks(31, dc_method="sample", sample_size=20 * len(X), device=device, client=None).fit(X)
    assert adjusted_rand_score(sampled.labels_, exact.labels_) > 0.99


def test_more_pairs_than_there_are_are_refused():
    X = np.random.default_rng(0).normal(size=(100, 2))
    with pytest.raises(InputError, match="sample_size=4951 should be at most 4950, the number of pairs of 100 rows"):
        DensityPeaks(2, dc_method="sample", sample_size=4951, client=None, device="cpu").fit(X)
