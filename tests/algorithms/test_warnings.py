"""What a result warns of is a Python warning: each sentence once a fit, from the line of the user that called it."""

from __future__ import annotations

import warnings

import networkx
import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.pipeline import make_pipeline

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    Canopy,
    ClusteringWarning,
    Communities,
    DensityPeaks,
    FuzzyCMeans,
)

pytestmark = pytest.mark.xdist_group("workers")


@pytest.fixture
def noise():
    return np.random.default_rng(0).uniform(size=(300, 2))


def told_by(model, X):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(X)
    return [each for each in told if issubclass(each.category, ClusteringWarning)]


@pytest.mark.parametrize(
    ("model", "says", "settled"),
    [
        (DensityPeaks(dc_fraction=0.02), "do not stand out.*see the decision graph", True),
        (FuzzyCMeans(4, max_iter=1), "raise max_iter", False),
        (Canopy(100.0, 90.0), "a single canopy.*lower both", True),
        (AffinityPropagation(max_iter=16), "raise max_iter", False),
        (AdaptiveAffinityPropagation(max_iter=100), "raise max_iter", False),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_a_fit_warns_of_what_its_result_does(noise, model, says, settled):
    told = told_by(model.set_params(client=None, device="cpu"), noise)
    assert [str(each.message) for each in told] == model.result_.warnings
    assert {each.filename for each in told} == {__file__}
    with pytest.warns(ClusteringWarning if settled else ConvergenceWarning, match=says):
        model.fit(noise)
    assert any(issubclass(each.category, ConvergenceWarning) for each in told) != settled


def test_what_the_data_warn_of_is_said_too():
    model = Communities(client=None, device="cpu")
    told = told_by(model, networkx.DiGraph([(0, 1), (1, 2), (2, 0), (2, 3)]))
    assert [str(each.message) for each in told] == model.result_.warnings
    assert "direction is dropped" in model.result_.warnings[0]


def test_ranks_do_not_repeat_it(noise, ranks):
    with ranks(3) as place:
        told = told_by(FuzzyCMeans(4, max_iter=1, client=place), noise)
    assert len(told) == 1


def test_one_fit_of_each_is_heard(noise):
    """Filters by their default show a sentence again for each line that calls `fit`."""
    model = Canopy(100.0, 90.0, client=None, device="cpu")
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("default")
        model.fit(noise)
        model.fit_predict(noise)
        make_pipeline(FuzzyCMeans(4, max_iter=1, client=None, device="cpu")).fit_transform(noise)
    assert len(told) == 3 and {each.filename for each in told} == {__file__}  # none in scikit-learn's own files


def on_a_ring(rng):
    angle = 2 * np.pi * rng.random(800)
    return np.c_[np.cos(angle), np.sin(angle)]


@pytest.mark.parametrize(
    ("draw", "seeds", "options"),
    [
        (lambda rng: rng.random((300, 2)), (0, 3, 9, 15, 17, 18), {"metric": "cosine"}),
        (on_a_ring, (6, 8, 9, 10, 11, 13, 18, 19), {"metric": "cosine"}),
        (lambda rng: rng.random((1000, 2)), range(8), {"metric": "sqeuclidean"}),
        (lambda rng: rng.random((200, 1)), (6,), {}),
        (lambda rng: rng.random((2000, 1)), (0,), {}),
        (lambda rng: rng.random((200, 1)), (4, 12), {"density": "knn"}),
    ],
    ids=["cosine", "ring", "squares", "one-feature", "one-feature-2000", "one-feature-knn"],
)
def test_noise_is_one_cluster_or_warned_of(draw, seeds, options):
    """Squares of distances, and one feature, have larger drops of rho * delta by chance."""
    for seed in seeds:
        X = draw(np.random.default_rng(seed))
        with pytest.warns(ClusteringWarning, match="centres do not stand out"):
            DensityPeaks(random_state=seed, client=None, device="cpu", **options).fit(X)


def test_clear_clusters_are_not_warned_of():
    rng = np.random.default_rng(0)
    line = (np.arange(600) % 3 * 40)[:, None] + rng.normal(size=(600, 1))
    rays = np.eye(3)[np.arange(600) % 3] * 20 + rng.normal(size=(600, 3))
    for X, options in ((line, {}), (rays, {"metric": "cosine"}), (rays, {"metric": "sqeuclidean"})):
        with warnings.catch_warnings():
            warnings.simplefilter("error", ClusteringWarning)
            assert DensityPeaks(client=None, device="cpu", **options).fit(X).n_clusters_ == 3


@pytest.mark.parametrize(
    ("options", "named", "not_named"),
    [
        ({"density": "knn"}, "try another k, or density='knn'", "dc_fraction"),
        ({"dc": 0.1}, "try another dc, or density='knn'", "dc_fraction"),
        ({"dc_fraction": 0.02}, "try another dc_fraction, or density='knn'", "another k"),
    ],
    ids=["knn", "dc", "fraction"],
)
def test_remedies_name_what_has_an_effect(noise, options, named, not_named):
    with pytest.warns(ClusteringWarning, match="centres do not stand out") as told:
        DensityPeaks(client=None, device="cpu", **options).fit(noise)
    assert named in str(told[0].message) and not_named not in str(told[0].message)


def test_the_significance_test_is_no_remedy_for_equal_rows():
    X = np.random.default_rng(0).integers(0, 5, (3000, 2))
    with pytest.warns(ClusteringWarning) as told:
        DensityPeaks(client=None, device="cpu").fit(X)
    assert any("do not stand out" in str(each.message) for each in told)
    assert not any("significance" in str(each.message) for each in told)
