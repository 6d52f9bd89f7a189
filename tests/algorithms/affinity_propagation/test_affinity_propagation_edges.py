"""Affinity propagation at the edges: equal points, preferences from far away, diagonals, numbers that vanish."""

from __future__ import annotations

import inspect
import re
import warnings

import numpy as np
import pytest
from sklearn.cluster import AffinityPropagation as Sklearn

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    PoorOptimumWarning,
    silhouette_samples,
    silhouette_score,
)
from mgclust.algorithms.affinity_propagation import estimator as affinity_propagation
from mgclust.base.errors import InputError, InsufficientMemoryError
from support.points import load_points


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(affinity_propagation, "FEW_SIMILARITIES", 0)


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit(X, **parameters):
    return AffinityPropagation(client=None, device="cpu", **parameters).fit(X)


def adaptive(X, **parameters):
    return AdaptiveAffinityPropagation(client=None, device="cpu", **parameters).fit(X)


@pytest.fixture
def blobs():
    centers = np.repeat([[0.0, 0], [9, 0], [0, 9]], 20, axis=0)
    return centers + np.random.default_rng(0).normal(size=(60, 2))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("value", [0.0, 0.1, 1.0])
def test_equal_points_are_one_cluster(value, dtype):
    X = np.full((50, 2), value)
    assert len(fit(X, dtype=dtype).cluster_centers_indices_) == 1
    assert len(fit(X, dtype=dtype, preference=-10.0).cluster_centers_indices_) == 1
    with pytest.raises(InputError, match=r"all similarities are equal \(0\)"):
        adaptive(X, dtype=dtype)


@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
def test_one_cluster_that_is_not_the_best_is_said(algorithm):
    """Messages of damping 0.9 converge to one cluster of 178, as those of scikit-learn do; eight are better."""
    X = load_points("wine")[0]
    given = {"preference_quantile": 0.8, "dtype": "float64", "random_state": 0, "algorithm": algorithm}
    with pytest.warns(PoorOptimumWarning):
        model = fit(X, damping=0.9, **given)
    assert model.converged_ and model.n_clusters_ == 1
    (text,) = model.result_.warnings
    found = re.search(
        r"net similarity (\S+) with one exemplar is a poor optimum, because (\d+) exemplars give (\S+):", text
    )
    assert float(found[1]) == pytest.approx(model.net_similarity_, rel=1e-4) and float(found[3]) > float(found[1])
    assert len(text) <= 200
    longer = fit(X, damping=0.9, convergence_iter=100, max_iter=2000, **given)
    assert longer.n_clusters_ > 1 and longer.net_similarity_ > float(found[3]) and not longer.result_.warnings


def test_one_cluster_that_the_preference_asks_for_is_not_said(blobs):
    low = fit(blobs, preference=-1e5, damping=0.9, convergence_iter=100, max_iter=2000)
    assert low.converged_ and low.n_clusters_ == 1 and not low.result_.warnings
    asked = fit(np.random.default_rng(1).integers(0, 4, (60, 2)), n_clusters=1, damping=0.9)
    assert asked.n_clusters_ == 1 and not any("one cluster" in text for text in asked.result_.warnings)
    (alike,) = fit(np.zeros((2, 2))).result_.warnings
    assert "equally similar" in alike


def test_similarities_of_zero_are_one_cluster():
    model = fit(np.zeros((6, 6)), affinity="precomputed")
    assert model.labels_.tolist() == [0] * 6


def test_a_scan_needs_a_median_below_zero():
    X = np.r_[np.zeros((45, 2)), np.random.default_rng(0).normal(size=(10, 2))]
    with pytest.raises(InputError, match=r"is 0, but should be < 0.*drop duplicate rows"):
        adaptive(X)
    with pytest.raises(InputError, match="subtract the largest similarity"):
        adaptive(np.random.default_rng(0).uniform(size=(30, 30)), affinity="precomputed")


@pytest.mark.parametrize("sign, diagonal", [(1, 0.0), (1, 3.0), (-1, -5.0), (-1, 0.0)])
@pytest.mark.parametrize("n", [29, 30])
def test_a_given_diagonal_counts_for_the_median(n, sign, diagonal):
    for seed in range(5):
        S = sign * np.random.default_rng(seed).uniform(size=(n, n))
        np.fill_diagonal(S, diagonal)
        model = fit(S, affinity="precomputed", damping=0.8, dtype="float64")
        assert model.preference_ == pytest.approx(np.median(S), rel=1e-12)
        theirs = Sklearn(affinity="precomputed", damping=0.8, random_state=0).fit(S)
        np.testing.assert_array_equal(model.labels_, theirs.labels_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("lowest", [-1e6, -1e16, -1e30])
def test_rows_that_are_never_to_be_exemplars(lowest, dtype):
    X = np.random.default_rng(1).normal(size=(200, 3))
    preference = np.full(200, -3.0)
    preference[100:] = lowest
    model = fit(X, preference=preference, dtype=dtype)
    theirs = Sklearn(preference=preference, random_state=0).fit(X)
    assert model.cluster_centers_indices_.max() < 100
    np.testing.assert_array_equal(model.labels_, theirs.labels_)


def test_a_preference_that_no_sum_can_hold_is_refused():
    X = np.random.default_rng(1).normal(size=(200, 3))
    with pytest.raises(InputError, match=r"preference=-1e\+20 should be >= -"):
        fit(X, preference=-1e20)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_one_similarity_far_above_the_others(dtype):
    X = np.random.default_rng(1).normal(size=(200, 3))
    S = -((X[:, None] - X[None]) ** 2).sum(-1)
    S[3, 7] = 1e9
    options = {"affinity": "precomputed", "preference": -3.0, "damping": 0.7}
    np.testing.assert_array_equal(
        fit(S, dtype=dtype, **options).labels_, Sklearn(random_state=0, **options).fit(S).labels_
    )


def test_numbers_that_vanish_in_float32_are_refused(blobs):
    labels = np.repeat([0, 1, 2], 20)
    for call in (fit, adaptive, lambda X: silhouette_score(X, labels, client=None)):
        with pytest.raises(InputError, match=r"reach [\d.]+e-\d+; .* or use dtype='float64'\.$"):
            call(blobs * 1e-50)
        for scale in (1e-200, 1e300):
            with pytest.raises(InputError, match=r"rescale the data\.$"):
                call(blobs * scale)  # float64 would not help
    with pytest.raises(InputError, match=r"values reach \d.*: drop such rows, or rescale the data, or use dtype='f"):
        adaptive(blobs * 1e100)
    exact = silhouette_score(blobs, labels, client=None, dtype="float64")
    assert silhouette_score(blobs * 1e-50, labels, client=None, dtype="float64") == pytest.approx(exact, rel=1e-9)


def test_a_fixed_preference_stands_in_the_scan(blobs):
    model = adaptive(blobs, preference=-20.0)
    assert model.scan_["preference"].tolist() == [-20.0]
    assert model.preference_ == -20.0
    assert "at preference -20," in model.log_[0]
    vector = np.full(60, -20.0)
    vector[0] = -1e3
    other = adaptive(blobs, preference=vector)
    assert other.scan_["preference"].tolist() == [-20.0]
    np.testing.assert_array_equal(other.preference_, vector)


def test_labels_for_refuses_what_is_no_candidate(blobs):
    model = adaptive(blobs)
    for wrong in ("3", None, [3], 2.5, 59):
        with pytest.raises(InputError, match="k="):
            model.labels_for(wrong)


def test_unsigned_labels(blobs):
    labels = np.repeat([0, 1, 2], 20)
    large = labels.astype(np.uint64) + np.uint64(2**63)
    ours, theirs = (silhouette_samples(blobs, each, client=None) for each in (labels, large))
    np.testing.assert_array_equal(theirs, ours)


def test_a_scan_with_one_cluster_says_so():
    model = adaptive(np.random.default_rng(8).normal(size=(6, 2)) * [1, 0.3])
    assert model.n_clusters_ == 1
    assert "one cluster" in model.result_.warnings[0]


def test_warnings_name_the_line_that_called_fit(blobs):
    with pytest.warns(match="exemplar") as caught:
        AffinityPropagation(client=None, max_iter=1).fit(blobs)
    assert caught[0].filename == __file__


@pytest.mark.parametrize("estimator", [AffinityPropagation, AdaptiveAffinityPropagation])
def test_a_refusal_for_memory_names_a_share_of_the_rows_that_fits(estimator):
    X = np.random.default_rng(0).normal(size=(2000, 3))
    with pytest.raises(InsufficientMemoryError, match=r"availabilities 30.*What would fit: ") as refusal:
        estimator(client=None, device="cpu", memory_limit="12 MiB", algorithm="dense").fit(X)
    share = int(re.search(r"about (\d+)% of the rows", str(refusal.value))[1])
    assert 40 < share < 62  # 12 of 33 MiB, and nearly all of it grows with the square
    fewer = estimator(client=None, device="cpu", memory_limit="12 MiB", max_iter=2, algorithm="dense")
    assert len(fewer.fit(X[: 2000 * share // 100]).labels_) == 2000 * share // 100


def test_parameters_are_those_of_scikit_learn_and_more():
    theirs = inspect.signature(Sklearn).parameters
    ours = inspect.signature(AffinityPropagation).parameters
    assert theirs.keys() <= ours.keys()
    assert {n: p.default for n, p in theirs.items()} == {n: ours[n].default for n in theirs}
    X = np.random.default_rng(0).random((20, 2))
    model = AffinityPropagation(copy=False, client=None, device="cpu").fit(X)
    assert "copy" not in model.result_.parameters and "copy" not in {each.name for each in model.options()}
    with pytest.raises(InputError, match="copy=3 should be True or False, or 1 or 0"):
        AffinityPropagation(copy=3).fit(X)
