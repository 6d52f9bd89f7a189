"""Single linkage confined to canopies: that of all pairs where canopies decide nothing, the same on any ranks."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import pdist

from mgclust import Canopy
from mgclust.algorithms.canopy import estimator
from mgclust.base.errors import ClusteringWarning, InputError, InsufficientMemoryError
from mgclust.results.label_agreement import compare_labels
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")


def on_cpu(**parameters) -> Canopy:
    return Canopy(device="cpu", client=None, **parameters)


def same_clusters(labels, others) -> bool:
    return compare_labels(labels, others)["ari"] == 1


@pytest.mark.quick("euclidean-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_one_canopy_is_single_linkage(metric, dtype):
    X = np.random.default_rng(0).normal(size=(300, 3)).astype(dtype)
    found = on_cpu(t1=1e3, t2=100.0, metric=metric, dtype=dtype).agglomerate(X, n_clusters=7)
    expected = linkage(pdist(X.astype("float64"), {"manhattan": "cityblock"}.get(metric, metric)), "single")
    assert (found.n_canopies, found.n_pairs, found.n_clusters) == (1, 300 * 299 // 2, 7)
    assert found.merges.shape == (299, 2) and (found.merges[:, 0] < found.merges[:, 1]).all()
    np.testing.assert_allclose(found.distances, expected[:, 2], rtol=1e-5 if dtype == "float32" else 1e-12)
    assert same_clusters(found.labels, fcluster(expected, 7, "maxclust"))
    firsts = np.unique(found.labels, return_index=True)[1]
    assert (np.diff(firsts) > 0).all() and found.labels.dtype == np.int32


def test_merges_up_to_the_difference_of_the_thresholds_are_those_of_all_pairs():
    X = np.random.default_rng(1).random((1500, 2))
    found = on_cpu(t1=0.2, t2=0.14).agglomerate(X, distance_threshold=0.025)
    expected = linkage(X, "single")
    near = int((expected[:, 2] <= 0.06).sum())
    np.testing.assert_allclose(found.distances[:near], expected[:near, 2], rtol=1e-12)
    assert found.n_pairs < 1500 * 1499 // 4 and 1 < found.n_clusters < 1500
    assert same_clusters(found.labels, fcluster(expected, 0.025, "distance"))


def test_rows_of_equal_distances_and_equal_rows():
    X = np.array([[0.0], [0], [1], [2], [10], [10]])
    found = on_cpu(t1=3.0, t2=1.5).agglomerate(X, distance_threshold=1)
    assert found.labels.tolist() == [0, 0, 0, 0, 1, 1]
    assert found.merges.tolist() == [[0, 1], [4, 5], [0, 2], [2, 3]] and found.distances.tolist() == [0, 0, 1, 1]
    assert on_cpu(t1=3.0, t2=1.5).agglomerate(X, distance_threshold=0).labels.tolist() == [0, 0, 1, 2, 3, 3]


@pytest.mark.slow
@pytest.mark.parametrize("size", [2, 3])
def test_same_bits_on_several_ranks(size, ranks, monkeypatch):
    X = load_points("pendigits")[0]
    options = {"t1": 60.0, "t2": 40.0, "order": "random", "random_state": 1, "device": "cpu"}
    alone = Canopy(client=None, **options).agglomerate(X, n_clusters=4000)
    monkeypatch.setattr(estimator, "connect", lambda **_: ranks(size))
    for one, other in zip(alone, Canopy(**options).agglomerate(X, n_clusters=4000), strict=True):
        assert np.array_equal(one, other)


def test_clusters_that_no_canopy_connects():
    X = np.array([[0.0], [1], [50], [51]])
    with pytest.warns(ClusteringWarning, match="n_clusters=1 cannot be reached: 2 clusters remain.*raise t1"):
        found = on_cpu(t1=3.0, t2=1.5).agglomerate(X, n_clusters=1)
    assert found.n_clusters == 2 and found.labels.tolist() == [0, 0, 1, 1]


def test_refused():
    X = np.random.default_rng(2).random((3000, 2))
    model = on_cpu(t1=0.5, t2=0.3)
    with pytest.raises(InputError, match="exactly one of them must define where merging ends"):
        model.agglomerate(X)
    with pytest.raises(InputError, match="exactly one of them must define where merging ends"):
        model.agglomerate(X, n_clusters=2, distance_threshold=0.1)
    with pytest.raises(InputError, match="n_clusters=3001 should be <= n_samples=3000"):
        model.agglomerate(X, n_clusters=3001)
    with pytest.raises(InsufficientMemoryError, match="the rows of a rank's canopies need"):
        on_cpu(t1=5.0, t2=0.02, memory_limit="40 MB").agglomerate(X, n_clusters=2)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"distance_threshold": -1.0}, "distance_threshold=-1.0 should be a finite number >= 0"),
        ({"distance_threshold": float("inf")}, "distance_threshold=inf should be a finite number"),
        ({"distance_threshold": "far"}, "distance_threshold='far' should be a finite number"),
        ({"n_clusters": 2.5}, "n_clusters=2.5 should be an integer >= 1"),
        ({"n_clusters": True}, "n_clusters=True should be an integer >= 1"),
        ({"n_clusters": "3"}, "n_clusters='3' should be an integer >= 1"),
        ({"n_clusters": 0}, "n_clusters=0 should be an integer >= 1"),
        ({"n_clusters": 7}, "n_clusters=7 should be <= n_samples=6; request fewer clusters"),
    ],
    ids=repr,
)
def test_wrong_ends_of_merging(given, says):
    """A negative distance was looked for without an end; other values were errors of Python's."""
    with pytest.raises(InputError, match=says):
        on_cpu(t1=3.0, t2=1.5).agglomerate(np.arange(6.0)[:, None], **given)
