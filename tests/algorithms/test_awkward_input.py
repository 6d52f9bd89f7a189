"""What methods say of input that is not what they take, and of data that change under them."""

import numpy as np
import pytest

from mgclust import AffinityPropagation, DensityPeaks, FuzzyCMeans
from mgclust.base.errors import ClusteringWarning, InputError

HERE = {"client": None, "device": "cpu"}


def rows(n=60):
    rng = np.random.default_rng(0)
    return rng.normal(size=(n, 2)) + 9 * (np.arange(n) % 2)[:, None]


@pytest.mark.parametrize("change", [lambda x: x.__imul__(2), lambda x: x.sort(axis=0), lambda x: x.__setitem__(7, 0)])
@pytest.mark.parametrize(
    "used", [lambda X: DensityPeaks(2, **HERE).fit(X).predict, lambda X: AffinityPropagation(**HERE).fit(X)]
)
def test_data_changed_in_place_are_noticed(change, used):
    X = rows()
    model = used(X)
    again = (lambda: model(rows()[:3])) if callable(model) else (lambda: model.affinity_matrix_)
    again()
    change(X)
    with pytest.raises(InputError, match="X was changed after fit"):
        again()


def test_distances_are_no_similarities():
    X = rows()
    distances = np.linalg.norm(X[:, None] - X, axis=2)
    model = AffinityPropagation(affinity="precomputed", **HERE)
    with pytest.raises(InputError, match="may hold distances or similarities"):
        model.fit(distances)
    similar = AffinityPropagation(affinity="precomputed", damping=0.8, **HERE)
    assert similar.fit(-(distances**2)).n_clusters_ == similar.fit(100 - distances**2).n_clusters_
    with pytest.warns(ClusteringWarning, match="equally similar"):
        AffinityPropagation(affinity="precomputed", **HERE).fit(np.zeros((5, 5)))


@pytest.mark.parametrize("random_state", [None, 7, np.random.default_rng(7), np.random.RandomState(7)])
def test_the_seed_that_is_reported_repeats_a_fit(random_state):
    X = np.random.default_rng(1).normal(size=(200, 3))
    model = FuzzyCMeans(4, m=1.6, random_state=random_state, **HERE).fit(X)
    seed = model.result_.parameters["random_state"]
    assert type(seed) is int and (random_state is not None or seed == 0)
    again = FuzzyCMeans(4, m=1.6, random_state=seed, **HERE).fit(X)
    np.testing.assert_array_equal(again.cluster_centers_, model.cluster_centers_)


@pytest.mark.parametrize(
    ("X", "said"),
    [(5, "is a single value .* give rows"), (np.float64(5), "single value"), ([1.0, 2.0], "Reshape your data")],
)
def test_no_table(X, said):
    with pytest.raises(InputError, match=said):
        DensityPeaks(2, **HERE).fit(X)


@pytest.mark.parametrize("verbose", [0, np.int64(0), np.False_])
def test_flags_may_be_numbers(verbose):
    assert DensityPeaks(2, verbose=verbose, **HERE).fit(rows()).n_clusters_ == 2
