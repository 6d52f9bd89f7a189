"""`DensityPeaks(stability=)`: labels of halves, drawn and fitted here by hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from mgclust import ClusteringWarning, DensityPeaks, load_result
from mgclust.algorithms.density_peaks.stability import half_of_rows
from mgclust.base.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings("ignore::mgclust.base.errors.ClusteringWarning"),
    pytest.mark.xdist_group("workers"),
]


def fit(X, sample_weight=None, **parameters):
    options = {"device": "cpu", "client": None, **parameters}
    return DensityPeaks(**options).fit(X, sample_weight=sample_weight)


def test_halves_are_fits_of_half_the_rows():
    X = make_blobs(301, 3, centers=4, cluster_std=2.5, random_state=0)[0]
    weights = np.random.default_rng(0).integers(1, 4, len(X)).astype(float)
    for options in ({"random_state": 3}, {"n_clusters": 3, "density": "knn", "random_state": 3}):
        w = None if "n_clusters" in options else weights
        model = fit(X, w, stability=4, **options)
        expected = []
        for draw in range(4):
            rows = half_of_rows(301, 3, draw)
            assert len(np.unique(rows)) == 150
            half = fit(X[rows], None if w is None else w[rows], **options)
            expected.append(adjusted_rand_score(model.labels_[rows], half.labels_))
            assert model.stability_["n_clusters"][draw] == half.n_clusters_
        assert model.stability_["ari"] == pytest.approx(expected)
        assert model.stability_["mean"] == model.result_.scores["stability"] == pytest.approx(np.mean(expected))
        assert model.stability_["std"] == pytest.approx(np.std(expected))
        np.testing.assert_array_equal(model.labels_, fit(X, w, **options).labels_)
    assert fit(X, weights, stability=4, random_state=4).stability_["ari"] != expected


def test_given_distances():
    X = make_blobs(200, 2, centers=3, random_state=1)[0]
    options = {"stability": 3, "n_clusters": 3, "dc": 1.0, "dtype": "float64"}
    rows, distances = fit(X, **options), fit(pairwise_distances(X), metric="precomputed", **options)
    assert rows.stability_ == distances.stability_ and rows.stability_["mean"] > 0.9


@pytest.mark.slow
def test_same_on_ranks(client):
    X = make_blobs(2500, 2, centers=5, random_state=2)[0].astype("float32")
    assert fit(X, stability=2, client=client).stability_ == fit(X, stability=2).stability_


def test_saved_shown_and_dropped_by_other_centres(tmp_path):
    X = make_blobs(240, 2, centers=3, random_state=5)[0]
    model = fit(X, stability=2)
    assert dict(model.presentation.summary(model.result_))["halves"].startswith("2 random halves of the rows: ARI ")
    model.result_.save(tmp_path / "out")
    again = DensityPeaks.from_result(load_result(tmp_path / "out"))
    assert again.stability_ == model.stability_ and again.stability == 2
    again.select_centers(2)
    assert again.stability_ is None and "stability" not in again.result_.scores
    assert again.result_.parameters["stability"] == 0
    assert fit(X).stability_ is None


def test_unstable_clusters_are_warned_of():
    X = np.random.default_rng(2).standard_normal((300, 5))
    with pytest.warns(ClusteringWarning, match=r"unstable: 3 halves of the rows .* \(mean ARI 0\.\d+\)"):
        fit(X, stability=3, n_clusters=9)


def test_halves_that_cannot_be_clustered_are_refused():
    with pytest.raises(InputError, match=r"stability=2: half of the rows cannot be clustered: .*n_clusters=20"):
        fit(np.random.default_rng(0).random((30, 2)), stability=2, n_clusters=20)
    with pytest.raises(InputError, match="stability=-1 should be an integer >= 0"):
        fit(np.eye(9), stability=-1)


def test_halves_too_small_for_the_test_are_said():
    """Three clusters far apart are told apart, and half of their rows are not."""
    rng = np.random.default_rng(2)
    X = np.concatenate([rng.normal(size=(200, 2)) + center for center in ([0, 0], [10, 0], [0, 10])])
    options = {"density": "knn", "k": "adaptive", "significance": 1.65, "random_state": 0}
    with pytest.warns(ClusteringWarning, match=r"the test merged clusters in [1-6] halves; compare"):
        model = fit(X, stability=6, **options)
    assert model.n_clusters_ == 3 and min(model.stability_["n_clusters"]) < 3


def test_a_seed_of_numpy():
    X = make_blobs(60, 2, centers=3, random_state=5)[0]
    assert fit(X, stability=2, random_state=np.int64(3)).stability_ == fit(X, stability=2, random_state=3).stability_
