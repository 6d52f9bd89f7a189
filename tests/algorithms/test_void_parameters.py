"""Parameters that others make void are named by a warning of the result, wherever rows or graphs are taken."""

import json

import numpy as np
import pytest

from mgclust import (
    AdaptiveAffinityPropagation,
    AffinityPropagation,
    ClusteringWarning,
    Communities,
    DensityPeaks,
    FuzzyCMeans,
)
from mgclust.algorithms import METHODS
from mgclust.cli import run_command
from mgclust.params.relations import GIVEN, LEFT_OUT, Ignored, Unlike, ignored_parameters

X = np.random.default_rng(0).normal(size=(90, 2)) + np.repeat([[0, 0], [9, 0], [0, 9]], 30, axis=0)
D = np.sqrt(((X[:, None] - X) ** 2).sum(axis=2))


def no_effect(model, rows=X):
    with pytest.warns(ClusteringWarning) as told:
        model.set_params(client=None, device="cpu").fit(rows)
    assert [str(each.message) for each in told] == model.result_.warnings
    return [text for text in model.result_.warnings if " has no effect " in text]


@pytest.mark.parametrize(
    ("model", "says"),
    [
        (
            DensityPeaks(dc=1.5, dc_fraction=0.01),
            ["dc_fraction=0.01 has no effect with dc=1.5: leave one of them out."],
        ),
        (
            DensityPeaks(dc=1.5, dc_method="sample"),
            ["dc_method='sample' has no effect with dc=1.5: leave one of them out."],
        ),
        (
            DensityPeaks(density="knn", significance=1.65, dc=2.0, dc_fraction=0.01),
            [
                "dc_fraction=0.01 has no effect with dc=2.0: leave one of them out.",
                "dc=2.0 has no effect with significance=1.65: leave one of them out.",
            ],
        ),
        (
            DensityPeaks(density="knn", dc_fraction=0.01),
            ["dc_fraction=0.01 has no effect with density='knn' and with halo=False: leave it out, or give halo=True."],
        ),
        (DensityPeaks(k=5), ["k=5 has no effect with density='gaussian': leave it out, or give density='knn'."]),
        (
            FuzzyCMeans(4, n_clusters_range=(2, 5)),
            ["n_clusters=4 has no effect with n_clusters_range=(2, 5): leave one of them out."],
        ),
        (
            FuzzyCMeans(3, criterion="xie_beni"),
            [
                "criterion='xie_beni' has no effect without n_clusters_range: the index is computed in any "
                "case; leave criterion out, or give n_clusters_range, such as (2, 10)."
            ],
        ),
        (
            FuzzyCMeans(3, init=X[::30], n_init=4),
            [
                "n_init=4 has no effect with init=an array of shape (3, 2): such a start is the same in each run; "
                "leave one of them out."
            ],
        ),
        (
            AdaptiveAffinityPropagation(
                profile="fast",
                preference=-50.0,
                affinity="cosine",
                silhouette_metric="sqeuclidean",
                selection="package",
            ),
            [
                "selection='package' has no effect with preference=-50.0: leave one of them out.",
                "profile='fast' has no effect with preference=-50.0: leave one of them out.",
                "silhouette_metric='sqeuclidean' has no effect with affinity='cosine': leave one of them out.",
            ],
        ),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_they_are_named(model, says):
    assert sorted(no_effect(model)) == sorted(says)


def test_given_distances_leave_no_choice_of_an_algorithm():
    model = DensityPeaks(3, metric="precomputed", dc_method="sample", algorithm="brute")
    assert [text.split()[0] for text in no_effect(model, D)] == ["dc_method='sample'", "algorithm='brute'"]


@pytest.mark.parametrize(
    "model",
    [
        DensityPeaks(density="knn", dc_fraction=0.01, halo=True),
        DensityPeaks(3, dc_method="sample"),
        FuzzyCMeans(n_clusters_range=(2, 5), criterion="xie_beni"),
        FuzzyCMeans(3, criterion="fuzzy_silhouette", n_init=3, init="random"),
        AdaptiveAffinityPropagation(profile="fast", silhouette_metric="sqeuclidean"),
    ],
    ids=lambda model: type(model).__name__,
)
def test_those_with_an_effect_are_not(model):
    model.set_params(client=None, device="cpu").fit(X)
    assert not [text for text in model.result_.warnings if " has no effect " in text]


@pytest.mark.parametrize("method", METHODS)
def test_they_are_parameters_of_the_method(method):
    declared = METHODS[method]
    for void in declared.ignored_when:
        assert {void.name, *void.beside} <= set(declared.constraints)
        for name, wanted in void.beside.items():
            for value in wanted if isinstance(wanted, tuple) else [wanted]:
                if not isinstance(value, Unlike) and value is not None:
                    declared.constraints[name].check(name, value)
        for value in void.values:
            declared.constraints[void.name].check(void.name, value)


def test_the_first_of_several_is_said_and_arrays_are_no_values():
    ignored_when = (Ignored("a", {"b": 1}), Ignored("a", {"c": GIVEN}), Ignored("d", {"c": LEFT_OUT, "b": Unlike(2)}))
    defaults = {"a": None, "b": None, "c": None, "d": 0}
    one = {"a": 5, "b": 1, "c": 2, "d": 7}
    assert ignored_parameters(ignored_when, one, defaults) == ["a=5 has no effect with b=1: leave one of them out."]
    other = {"a": 5, "b": np.ones(3), "c": None, "d": 7}
    assert ignored_parameters(ignored_when, other, defaults) == [
        "d=7 has no effect without c and with b=an array of shape (3,): leave one of them out."
    ]


def test_on_the_command_line(tmp_path, capsys):
    np.save(tmp_path / "x.npy", X)
    given = ["--n-clusters", "4", "--n-clusters-range", "2,5", "--cpu", "--no-report", "--json"]
    assert run_command(["run", "fuzzy-c-means", str(tmp_path / "x.npy"), "-o", str(tmp_path / "out"), *given]) == 0
    said = json.loads(capsys.readouterr().out)["warnings"]
    assert "n_clusters=4 has no effect with n_clusters_range=(2, 5): leave one of them out." in said


@pytest.mark.parametrize(
    ("model", "rows", "what"),
    [
        (DensityPeaks(90), X, "n_clusters=90 equals the number of rows"),
        (FuzzyCMeans(90, m=1.1), X, "n_clusters=90 equals the number of rows"),
        (AffinityPropagation(n_clusters=90), X, "n_clusters=90 equals the number of rows"),
        (Communities(4), [(0, 1), (1, 2), (2, 3)], "n_clusters=4 equals the number of nodes"),
    ],
    ids=lambda value: type(value).__name__ if hasattr(value, "fit") else "",
)
def test_a_cluster_for_each_row_is_warned_of(model, rows, what):
    with pytest.warns(ClusteringWarning, match=f"{what}, so each of them is its own cluster; request fewer"):
        model.set_params(client=None, device="cpu").fit(rows)
    fewer = model.set_params(n_clusters=model.n_clusters - 1)
    assert not [text for text in fewer.fit(rows).result_.warnings if "is its own cluster" in text]
