"""Silhouettes of given distances and of some rows, as scikit-learn has them."""

import numpy as np
import pytest
import scipy.sparse
from scipy.spatial.distance import cdist
from sklearn import metrics

from mgclust import load_result, open_dataset, silhouette_samples, silhouette_score
from mgclust.algorithms import Silhouette
from mgclust.base.errors import ClusteringWarning, InputError
from mgclust.cli import run_command

RNG = np.random.default_rng(3)
X = RNG.normal(size=(90, 3)) + 4 * (np.arange(90) % 3)[:, None]
LABELS = np.array(["a", "b", "c"])[np.arange(90) % 3]


@pytest.mark.parametrize("metric", ["chebyshev", "canberra", "euclidean"])
def test_any_distance_can_be_given(metric):
    distances = cdist(X, X, metric)
    found = silhouette_samples(distances, LABELS, metric="precomputed", client=None)
    np.testing.assert_allclose(found, metrics.silhouette_samples(X, LABELS, metric=metric), rtol=0, atol=1e-12)


def test_distances_in_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    np.save("d.npy", cdist(X, X))
    np.save("labels.npy", LABELS)
    command = "run silhouette d.npy --labels labels.npy --metric precomputed -o out --no-report --cpu"
    assert run_command(command.split()) == 0
    result = load_result("out")
    assert result.scores["silhouette"] == pytest.approx(metrics.silhouette_score(X, LABELS), abs=1e-12)
    assert result.diagnostics["exactness"]["algorithm"] == "given"


@pytest.mark.slow
@pytest.mark.xdist_group("workers")
def test_two_ranks_have_the_same_bits(client):
    distances = cdist(X, X)
    found, want = (
        silhouette_samples(distances, LABELS, metric="precomputed", client=where) for where in (client, None)
    )
    assert np.array_equal(found, want)


def test_distances_that_are_none():
    distances = cdist(X, X)
    for change, message in (
        ((4, 4, 1.0), "contains non-zero elements on the diagonal, the first in row 4"),
        ((7, 9, -1.0), "row 7 has negative distances"),
        ((7, 9, np.nan), "NaN or infinity"),
    ):
        wrong = distances.copy()
        wrong[change[:2]] = change[2]
        with pytest.raises(InputError, match=message):
            silhouette_score(wrong, LABELS, metric="precomputed", client=None)
    with pytest.raises(InputError, match=r"needs a square matrix of distances, not shape=\(90, 3\)"):
        silhouette_score(X, LABELS, metric="precomputed", client=None)


def test_distances_that_are_not_stored_are_mentioned():
    graph = scipy.sparse.csr_array(np.where(cdist(X, X) < 3, cdist(X, X), 0))
    model = Silhouette(LABELS, metric="precomputed", client=None)
    model.fit_dataset(open_dataset(graph))
    assert "distances are not stored and count as 0" in model.result_.warnings[0]
    with pytest.warns(ClusteringWarning, match="are not stored"):
        silhouette_score(graph, LABELS, metric="precomputed", client=None)


@pytest.mark.parametrize("metric", ["euclidean", "cosine", "precomputed"])
@pytest.mark.parametrize("seed", [0, 7])
def test_samples_are_those_of_scikit_learn(metric, seed):
    given = cdist(X, X) if metric == "precomputed" else X
    options = {"metric": metric, "sample_size": 40, "random_state": seed}
    want = metrics.silhouette_score(given, LABELS, **options)
    assert silhouette_score(given, LABELS, client=None, dtype="float64", **options) == pytest.approx(want, abs=1e-12)
    by_generator = silhouette_score(X, LABELS, sample_size=40, random_state=np.random.default_rng(0), client=None)
    assert 0 < by_generator < 1


def test_a_sample_of_no_rows_is_refused():
    with pytest.raises(InputError, match="sample_size=0 should be an integer >= 1"):
        silhouette_score(X, LABELS, sample_size=0, client=None)


@pytest.mark.parametrize("metric", ["chebyshev", lambda a, b: abs(a - b).max()])
def test_another_distance_is_refused_with_what_helps(metric):
    with pytest.raises(InputError, match=r"metric=.*the matrix of sklearn.metrics.pairwise_distances"):
        silhouette_samples(X, LABELS, metric=metric, client=None)
