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
    DensityPeaks,
    FastNewman,
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
        (DensityPeaks(dc_fraction=0.02), "do not stand out.*give n_clusters", True),
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
    model = FastNewman(client=None, device="cpu")
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
