"""Affinity propagation on sparse matrices: pairs that are not stored are impossible."""

from __future__ import annotations

import re
from functools import partial
from itertools import combinations

import numpy as np
import pytest
from scipy.sparse import block_diag, coo_array, csr_array, csr_matrix, dia_array
from sklearn.cluster import AffinityPropagation as ScikitLearn
from sklearn.metrics import adjusted_rand_score

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, kneighbors_graph
from mgclust.algorithms import base
from mgclust.algorithms.affinity_propagation import estimator
from mgclust.algorithms.affinity_propagation.rows.sparse_pairs import fewest_exemplars
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.data.sparse import open_sparse
from oracles.sparse_affinity_propagation import sparse_affinity_propagation


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)


def fit_on(device, X, affinity="precomputed", **parameters) -> AffinityPropagation:
    return AffinityPropagation(affinity=affinity, device=device, client=None, **parameters).fit(X)


@pytest.fixture
def fit(device):
    return partial(fit_on, device)


def points(n=160, seed=0, d=3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return 3 * rng.normal(size=(9, d))[np.arange(n) % 9] + rng.normal(size=(n, d))


def graph_of(X, k=10) -> csr_matrix:
    return kneighbors_graph(X, k, mode="distance", dtype="float64", client=None, device="cpu")


def pairs_of(S) -> dict:
    entries = coo_array(S)
    return {(int(i), int(k)): v for i, k, v in zip(*entries.coords, entries.data.tolist(), strict=True)}


def as_sparse(S) -> csr_array:
    """All pairs of a matrix, those that are 0 as well."""
    n = len(S)
    return csr_array((S.reshape(-1), np.tile(np.arange(n), n), np.arange(0, n * n + 1, n)), shape=(n, n))


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_all_pairs_are_a_dense_matrix(fit, dtype):
    """The same bits, and the diagonal does not count."""
    S = -(np.random.default_rng(0).random((150, 150)) ** 2)
    for parameters in ({"preference": -0.3}, {"preference_quantile": 0.2}, {"n_clusters": 5, "damping": 0.9}):
        dense, sparse = (fit(X, dtype=dtype, **parameters) for X in (S, as_sparse(S)))
        np.testing.assert_array_equal(sparse.labels_, dense.labels_)
        assert (sparse.n_iter_, sparse.net_similarity_) == (dense.n_iter_, dense.net_similarity_)
        assert sparse.preference_ == dense.preference_
    assert sparse.exactness_ == {
        "algorithm": "sparse",
        "rows_searched": 0,
        "pairs_kept": 150 * 149,
        "lists_shortened": 0,
    }
    np.testing.assert_array_equal(sparse.affinity_matrix_, dense.affinity_matrix_)
    assert fit(as_sparse(S)).preference_ == pytest.approx(np.median(S[~np.eye(150, dtype=bool)]), rel=1e-6)


@pytest.mark.quick("*-1")
@pytest.mark.parametrize("seed", range(4))
def test_equals_the_oracle(fit, seed):
    X = points(seed=seed)
    graph, preference = graph_of(X, 6 + 5 * seed), (-3.0, -8.0, -15.0, -40.0)[seed]
    similarities = graph.copy()
    similarities.data = -(similarities.data**2)
    exemplars, labels, n_iter, converged = sparse_affinity_propagation(
        len(X), pairs_of(similarities), preference, damping=0.8
    )
    parameters = {"preference": preference, "damping": 0.8, "dtype": "float64"}
    model = fit(similarities, **parameters)
    assert converged and (model.n_iter_, model.converged_) == (n_iter, True)
    assert model.cluster_centers_indices_.tolist() == exemplars and model.labels_.tolist() == labels
    net = sum(similarities[i, exemplars[k]] for i, k in enumerate(labels) if k >= 0 and i != exemplars[k])
    assert model.net_similarity_ == pytest.approx(net + preference * len(exemplars), rel=1e-12)
    # The same from distances, from another format, and in scikit-learn with what is next to impossible.
    for other in (
        fit(graph, "precomputed_nearest_neighbors", **parameters),
        fit(coo_array(similarities), **parameters),
    ):
        np.testing.assert_array_equal(other.labels_, model.labels_)
        assert other.net_similarity_ == model.net_similarity_
    S = similarities.toarray()
    S[S == 0] = -1e7
    theirs = ScikitLearn(affinity="precomputed", preference=preference, damping=0.8, random_state=0).fit(S)
    if min(labels) == 0:
        # In a cluster of two either may be the exemplar.
        assert adjusted_rand_score(theirs.labels_, model.labels_) == 1


def test_a_solution_reaches_all_rows(fit):
    """One exemplar emerges long before the others: to stay is not enough."""
    graph = graph_of(points(90, seed=2), 8)
    graph.data[:] = 1 + 0.01 * np.random.default_rng(0).random(len(graph.data))
    parameters = {"damping": 0.7, "convergence_iter": 3, "max_iter": 300}
    similarities = graph.copy()
    similarities.data = -(graph.data**2)
    exemplars, labels, n_iter, converged = sparse_affinity_propagation(90, pairs_of(similarities), -1.5, **parameters)
    model = fit(graph, "precomputed_nearest_neighbors", preference=-1.5, dtype="float64", **parameters)
    assert (model.n_iter_, model.converged_) == (n_iter, converged)
    assert converged and model.cluster_centers_indices_.tolist() == exemplars and model.labels_.tolist() == labels


def test_parts_that_are_not_linked(fit):
    """Each is clustered as if alone; a row without pairs is its own exemplar."""
    parts = [graph_of(points(n, seed=n), 8) for n in (40, 70)]
    parameters = {"affinity": "precomputed_nearest_neighbors", "preference": -10.0, "damping": 0.8, "dtype": "float64"}
    models = [fit(part, convergence_iter=200, max_iter=1000, **parameters) for part in parts]
    whole = fit(
        block_diag([parts[0], csr_matrix((1, 1)), parts[1]], "csr"), convergence_iter=200, max_iter=1000, **parameters
    )
    first, second = (model.cluster_centers_indices_ for model in models)
    np.testing.assert_array_equal(whole.cluster_centers_indices_, np.concatenate([first, [40], 41 + second]))
    np.testing.assert_array_equal(whole.labels_[:40], models[0].labels_)
    np.testing.assert_array_equal(whole.labels_[41:], models[1].labels_ + len(first) + 1)
    assert whole.net_similarity_ == pytest.approx(sum(model.net_similarity_ for model in models) - 10.0, rel=1e-12)


def test_rows_without_an_exemplar_in_reach(fit):
    """Preferences forbid all exemplars but one, with which few rows have a pair."""
    graph = graph_of(points(60), 5)
    preference = np.full(60, -1e6)
    preference[7] = 0.0
    with pytest.warns(UserWarning, match=r"(\d+) rows have no pair with any exemplar"):
        model = fit(graph, "precomputed_nearest_neighbors", preference=preference, max_iter=30)
    linked = np.zeros(60, bool)
    for k in model.cluster_centers_indices_:
        linked |= graph[:, [k]].toarray()[:, 0] > 0
        linked[k] = True
    assert 0 < linked.sum() < 60
    np.testing.assert_array_equal(model.labels_ >= 0, linked)
    assert not model.converged_ and model.n_iter_ == 30
    assert np.isfinite(model.net_similarity_)


@pytest.mark.slow
@pytest.mark.xdist_group("workers")
@pytest.mark.parametrize("size", [2, 3, 4])
def test_same_bits_on_any_number_of_ranks(size, ranks, monkeypatch):
    graph = graph_of(points(2500), 12).astype("float32")
    given = {"damping": 0.8, "preference_quantile": 0.1}
    alone = fit_on("cpu", graph, "precomputed_nearest_neighbors", **given)
    monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
    model = AffinityPropagation(affinity="precomputed_nearest_neighbors", device="cpu", **given).fit(graph)
    np.testing.assert_array_equal(model.labels_, alone.labels_)
    for name in ("n_iter_", "net_similarity_", "preference_"):
        assert getattr(model, name) == getattr(alone, name)


@pytest.mark.slow
def test_memory():
    """Half a GiB would not hold a quarter of the matrix."""
    graph = graph_of(points(24_000, d=2), 8)
    model = fit_on("cpu", graph, "precomputed_nearest_neighbors", memory_limit="512 MiB", damping=0.8, max_iter=60)
    assert model.exactness_["pairs_kept"] == 24_000 * 8 and model.labels_.max() > 1000
    with pytest.raises(InsufficientMemoryError, match="pairs as given"):
        fit_on("cpu", graph, "precomputed_nearest_neighbors", memory_limit="16 MiB")


def matrix(*values, n=4) -> csr_array:
    """Values from row 0 on, of pairs (0, 1), (1, 2), ..."""
    rows = np.arange(len(values))
    return csr_array((np.array(values), (rows, rows + 1)), shape=(n, n))


@pytest.mark.parametrize(
    ("X", "affinity", "message"),
    [
        (matrix(1.0, 2.0), "precomputed", "may be distances or similarities"),
        (matrix(True, True), "precomputed", "True and False"),
        (
            matrix(1.0, -2.0),
            "precomputed_nearest_neighbors",
            "1 values are not distances, but NaN, infinite or negative, the first in row 1",
        ),
        (matrix(1.0, np.nan), "precomputed_nearest_neighbors", "row 1"),
        (matrix(-1.0, np.inf), "precomputed", "1 values are NaN or infinite, the first in row 1"),
        (csr_array((4, 4)), "precomputed", "no pair"),
        (csr_array(np.diag([-1.0, -2])), "precomputed", "no pair"),
        (csr_array(-np.ones((3, 4))), "precomputed", r"shape \(3, 4\).*square"),
        (coo_array(([-1.0, -2], ([0, 0], [1, 1])), shape=(3, 3)), "precomputed", "1 pairs more than once"),
        (csr_array(([-1.0, -2], [1, 1], [0, 2, 2]), shape=(2, 2)), "precomputed", "1 pairs more than once"),
        (matrix(1j, 2), "precomputed", "Complex data"),
        (np.ones((4, 4)), "precomputed_nearest_neighbors", "needs a sparse matrix of distances"),
    ],
)
def test_refusals(X, affinity, message):
    with pytest.raises(InputError, match=message):
        fit_on("cpu", X, affinity)


def test_other_refusals():
    with pytest.raises(InputError, match="algorithm='dense' stores all pairs"):
        fit_on("cpu", matrix(-1.0, -2.0), algorithm="dense")
    with pytest.raises(InputError, match="sparse"):
        AdaptiveAffinityPropagation(affinity="precomputed", client=None, device="cpu").fit(matrix(-1.0, -2.0))
    hostile = matrix(-1.0, -2.0)
    hostile.indices[1] = 1 << 30
    with pytest.raises(InputError, match="is damaged"):
        fit_on("cpu", hostile)
    with pytest.raises(InputError, match="dtype='float32' cannot hold the largest similarity"):
        fit_on("cpu", matrix(1e20, 2e20), "precomputed_nearest_neighbors")
    assert fit_on("cpu", matrix(1e20, 2e20), "precomputed_nearest_neighbors", dtype="float64").n_clusters_ > 0


def test_what_is_stored_counts(fit):
    """Zeros are similarities, -inf is none; equal content has one fingerprint, whatever the order."""
    first = csr_array(([0.0, -1, -np.inf, -3], [2, 1, 0, 0], [0, 2, 3, 4]), shape=(3, 3))
    then = csr_array(([-1.0, 0, -3], [1, 2, 0], [0, 2, 2, 3]), shape=(3, 3))
    opened = [open_sparse(X, distances=False) for X in (first, then)]
    expected = [[-np.inf, -1, 0], [-np.inf] * 3, [-3, -np.inf, -np.inf]]
    for dataset in opened:
        np.testing.assert_array_equal(dataset.read(0, 3), expected)
        np.testing.assert_array_equal(dataset.read(2, 3), expected[2:])
    assert open_sparse(dia_array(np.diag([-1.0, -2], 1)), distances=False).values.tolist() == [-1, -2]
    assert opened[0].fingerprint() == opened[1].fingerprint()
    assert first.nnz == 4  # the user's own stays as it is


def test_numbers_of_clusters_that_the_pairs_make_impossible_are_explained():
    """Four blobs far from each other: with 8 neighbours no pair links two, and 4 exemplars do not reach all rows."""
    corners = 40 * np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    X = np.random.default_rng(0).normal(size=(120, 2)) + np.repeat(corners, 30, axis=0)
    given = {"affinity": "precomputed_nearest_neighbors", "damping": 0.9}
    reasons = {}
    for k, wanted in ((8, 3), (8, 4), (20, 3)):
        with pytest.warns(match=f"n_clusters={wanted} is not possible, because ") as caught:
            model = fit_on("cpu", graph_of(X, k), n_clusters=wanted, **given)
        (reasons[k, wanted],) = (str(each.message) for each in caught)
        least = int(re.search(r": give more pairs, or request at least (\d+) clusters", reasons[k, wanted])[1])
        assert wanted < least <= model.n_clusters_
    assert "the pairs have 4 connected components, each of which needs an exemplar" in reasons[8, 3]
    assert "the pairs have 4 connected components" in reasons[20, 3]
    assert "rows need a pair with their exemplar, and no 8 rows together have pairs with all others" in reasons[8, 4]
    assert fit_on("cpu", graph_of(X, 20), n_clusters=4, **given).n_clusters_ == 4


@pytest.mark.parametrize("seed", range(30))
def test_the_fewest_exemplars_are_a_lower_bound(seed):
    """Beside the fewest of all sets of rows with which each other row has a pair."""
    rng = np.random.default_rng(seed)
    n = 7
    linked = (rng.random((n, n)) < rng.random() ** 2) & ~np.eye(n, dtype=bool)
    rows, columns = np.nonzero(linked)
    bounds = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=n))])
    able = [
        len(chosen)
        for size in range(1, n + 1)
        for chosen in map(list, combinations(range(n), size))
        if (linked | np.eye(n, dtype=bool))[:, chosen].any(axis=1).all()
    ]
    for wanted in (0, 2, n):
        least, reason = fewest_exemplars(columns, bounds, wanted)
        assert 1 <= least <= able[0] and bool(reason) == (least > wanted)
