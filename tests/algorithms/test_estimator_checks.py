"""scikit-learn's own checks, on the device at hand."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.utils.estimator_checks import parametrize_with_checks

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    Canopy,
    Communities,
    DensityPeaks,
    FastNewman,
    FuzzyCMeans,
)
from mgclust.algorithms import METHODS
from mgclust.data import open_dataset, open_graph

# Checks that hand over rows of features whatever the tags say, or expect words about rows.
NO_GRAPH = (
    "check_clustering",
    "check_complex_data",
    "check_dtype_object",
    "check_estimators_empty_data_messages",
    "check_estimators_nan_inf",
    "check_positive_only_tag_during_fit",
)
SPARSE = ("check_estimator_sparse_array", "check_estimator_sparse_matrix", "check_estimator_sparse_tag")


def known_failures(estimator) -> dict[str, str]:
    """Checks that do not fit a method, and why."""
    if getattr(estimator, "metric", None) == "precomputed":
        return dict.fromkeys(("check_clustering", "check_estimators_nan_inf"), "it hands over rows of features")
    if type(estimator) in (Communities, FastNewman):
        return dict.fromkeys(NO_GRAPH, "its arrays are neither edges nor square, or the message is one about graphs")
    return {}


# Each method once; its other forms are slow, and so are sparse rows that a whole scan takes.
@pytest.mark.quick(
    "[!A]*(client=None,device='cpu')-*",
    "AffinityPropagation(client=None,device='cpu')-*",
    "AdaptiveAffinityPropagation(*)-check_[!e]*",
    "AdaptiveAffinityPropagation(*)-check_estimators_*",
    "FuzzyCMeans(client=None,device='cpu',n_clusters=3)-*",
)
@parametrize_with_checks(
    [
        DensityPeaks(device="cpu", client=None),
        DensityPeaks(n_clusters=3, device="cpu", client=None),
        DensityPeaks(metric="precomputed", device="cpu", client=None),
        AffinityPropagation(device="cpu", client=None),
        AffinityPropagation(dtype="float64", device="cpu", client=None),
        AdaptiveAffinityPropagation(device="cpu", client=None),
        FuzzyCMeans(n_clusters=3, device="cpu", client=None),
        FuzzyCMeans(n_clusters=3, dtype="float64", device="cpu", client=None),
        Canopy(device="cpu", client=None),
        Canopy(t1=2.0, t2=1.0, order="random", device="cpu", client=None),
        Communities(device="cpu", client=None),
        FastNewman(device="cpu", client=None),
    ],
    expected_failed_checks=known_failures,
)
def test_on_the_cpu(estimator, check):
    check(estimator)


@pytest.mark.gpu
@parametrize_with_checks(
    [
        DensityPeaks(device="cuda", client=None),
        AffinityPropagation(device="cuda", client=None),
        AffinityPropagation(dtype="float64", device="cuda", client=None),
        AdaptiveAffinityPropagation(device="cuda", client=None),
        FuzzyCMeans(n_clusters=3, device="cuda", client=None),
        Canopy(device="cuda", client=None),
        Communities(strategy="parallel", device="cuda", client=None),
    ],
    expected_failed_checks=known_failures,
)
def test_on_a_gpu(estimator, check):
    check(estimator)


CLUSTERINGS = {name: method for name, method in METHODS.items() if name != "nearest-neighbors"}


@pytest.mark.parametrize("method", CLUSTERINGS.values(), ids=list(CLUSTERINGS))
def test_every_method_says_how_many_clusters_there_are(method):
    rows = np.array([[0.0, 0], [0, 1], [1, 0], [9, 9], [9, 8], [8, 9]])
    given = {"n_clusters": 2} if method is FuzzyCMeans else {}
    if method.method == "silhouette":
        given = {"labels": [0, 0, 0, 1, 1, 1]}
    source = open_graph([(0, 1), (1, 2), (3, 4)]) if method.opens == "graph" else open_dataset(rows)
    model = method(device="cpu", client=None, **given)
    if method.opens == "series":
        result = model.set_params(n_parcels=2).fit(np.tile(rows, 2), neighbors=[(i, i + 1) for i in range(5)]).result_
    else:
        result = model.fit_dataset(source)
    assert model.n_clusters_ == len(result.cluster_sizes) > 1
