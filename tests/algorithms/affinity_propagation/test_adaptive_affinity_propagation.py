"""`AdaptiveAffinityPropagation`: whole scans against the float64 oracle, and the checks of the specification."""

from __future__ import annotations

import itertools
import re
import warnings
from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.metrics import adjusted_rand_score, fowlkes_mallows_score

from mgclust import AdaptiveAffinityPropagation, load_result
from mgclust.algorithms.affinity_propagation import adaptive_ranks as module
from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing
from mgclust.algorithms.base import UnconvergedWarning
from mgclust.base.errors import InputError
from mgclust.results.candidates import candidate_results
from oracles import adaptive_affinity_propagation as reference
from oracles.affinity_propagation import assign_to_exemplars, pass_messages, silhouette, similarity
from oracles.density_peaks import distances
from support.points import load_points

COLUMNS = ["n_clusters", "preference", "damping", "n_iter", "silhouette", "min_cluster_silhouette", "net_similarity"]


def fit(X, device="cpu", **parameters) -> AdaptiveAffinityPropagation:
    return AdaptiveAffinityPropagation(device=device, client=None, **parameters).fit(X)


@cache
def oracle(name, profile="code"):
    S = similarity(load_points(name)[0])
    return reference.adaptive_affinity_propagation(S, profile)


@pytest.fixture
def whole_scan(monkeypatch):
    """Fit, and return K, damping and preference of every iteration."""

    def run(X, device, **parameters):
        seen = SimpleNamespace(counts=[], damping=[], preference=[])

        def step(state, stats):
            seen.counts.append(stats.n_exemplars)
            seen.damping.append(state.damping)
            seen.preference.append(state.preference)
            return original(state, stats)

        original = module.step
        monkeypatch.setattr(module, "step", step)
        return fit(X, device, **parameters), seen

    return run


# The checks of the specification's section 9


@pytest.mark.quick("cpu-float32")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_wine(dtype, device):
    """Iterations are those of the oracle in both precisions: nothing oscillates, so nothing amplifies rounding."""
    X, y = load_points("wine")
    model = fit(X, device, dtype=dtype)
    assert model.n_iter_ == 2538 and model.converged_
    assert model.scan_["n_clusters"].tolist() == list(range(2, 15))
    assert model.n_clusters_ == 3
    assert fowlkes_mallows_score(y, model.labels_) == pytest.approx(0.801, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ionosphere(dtype, metric, device):
    """The documented best K. How long the scan takes hangs on the last bit: 59 rows have a twin, and ties between
    twins are broken by rounding. The oracle took 7,270 to 8,070 iterations, and 4,667 to 6,107 with A(k,k) summed
    without R(k,k)."""
    X, y = load_points("ionosphere")
    model = fit(X, device, dtype=dtype, silhouette_metric=metric)
    assert model.n_clusters_ == 2 and model.converged_
    assert 3000 < model.n_iter_ < 12_000
    found = model.scan_["n_clusters"]
    assert set(range(2, 14)) <= set(found.tolist()) and 15 <= len(found) <= 60
    assert fowlkes_mallows_score(y, model.labels_) == pytest.approx(0.745, abs=5e-3)


@pytest.mark.parametrize("metric", ["euclidean", "sqeuclidean"])
def test_squared_distances_choose_the_same_k_on_wine(metric, device):
    assert fit(load_points("wine")[0], device, silhouette_metric=metric).n_clusters_ == 3


# Whole scans


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["code", "paper"])
def test_every_iteration_of_wine(profile, device, whole_scan):
    expected = oracle("wine", profile)
    model, seen = whole_scan(load_points("wine")[0], device, profile=profile, dtype="float64")
    assert seen.counts == expected.counts
    assert seen.damping == expected.damping
    np.testing.assert_allclose(seen.preference, expected.preference, rtol=1e-9)
    check_candidates(model, expected)


@pytest.mark.slow
@pytest.mark.parametrize("profile", ["code", "paper"])
def test_every_iteration_of_blobs(profile, device, whole_scan):
    """Rows in four dimensions; where messages oscillate, rounding is amplified and the scans may part in the end."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(240, 4)) + 5 * rng.normal(size=(9, 4))[rng.integers(0, 9, 240)]
    expected = reference.adaptive_affinity_propagation(similarity(X), profile, max_iter=4000)
    model, seen = whole_scan(X, device, profile=profile, dtype="float64", max_iter=4000)
    assert seen.counts == expected.counts
    assert seen.damping == expected.damping
    check_candidates(model, expected)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("max_iter", [115, 500, 777])
def test_the_last_solution_is_entered_in_place_of_another(max_iter, device):
    """A scan that is cut short: its last solution is refined, and the table has that one."""
    X = load_points("wine")[0]
    expected = reference.adaptive_affinity_propagation(similarity(X), max_iter=max_iter)
    model = fit(X, device, max_iter=max_iter, dtype="float64")
    assert max_iter in [iteration for _, iteration, _ in expected.candidates.values()]
    check_candidates(model, expected)


def test_oscillating_messages(device, whole_scan, monkeypatch):
    """Ionosphere without twins: rounding grows tenfold in about three iterations, so the messages part from the oracle.

    Given the exemplars of each iteration, the oracle makes the same decisions in all of them.
    """
    X, flags, original = np.unique(load_points("ionosphere")[0], axis=0), [], MessagePassing.iterate

    def iterate(self, dampings):
        found = original(self, dampings)
        flags.extend(np.isin(np.arange(len(X)), self.exemplars(slot)) for slot in range(len(dampings)))
        return found

    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    S = similarity(X)
    _, seen = whole_scan(X, device, dtype="float64", max_iter=400)
    assert seen.counts[:35] == reference.adaptive_affinity_propagation(S, max_iter=35).counts
    expected = reference.adaptive_affinity_propagation(S, script=flags, noise=False)
    assert seen.counts == expected.counts and len(seen.counts) == 400
    assert seen.damping == expected.damping and len(set(seen.damping)) > 1
    np.testing.assert_allclose(seen.preference, expected.preference, rtol=1e-9)


@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
def test_a_damping_that_changes(device, algorithm, monkeypatch, rng):
    """Responsibilities and availabilities of an iteration have one damping: also where it was another one before."""
    X, dampings, seen = rng.normal(size=(40, 3)), [], []
    schedule, original = itertools.cycle([0.5, 0.9, 0.6, 0.6, 0.8]), MessagePassing.iterate

    def iterate(self, given):
        found = original(self, given)
        to_host = self._context.kernels.memory.to_host
        seen.append((to_host(self.messages.a_diagonal).copy(), to_host(self.messages.r_diagonal).copy()))
        dampings.extend(given)
        return found

    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    monkeypatch.setattr(module, "upcoming", lambda state, most: [next(schedule)])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit(X, device, dtype="float64", algorithm=algorithm, max_iter=24)
    S = similarity(X)
    np.fill_diagonal(S, 0.5 * np.median(S[~np.eye(40, dtype=bool)]))
    R, A = np.zeros_like(S), np.zeros_like(S)
    assert len(seen) == len(dampings) == 24
    for (a, r), damping in zip(seen, dampings, strict=True):
        pass_messages(S, R, A, damping)
        np.testing.assert_allclose(a, np.diagonal(A), atol=1e-9)
        np.testing.assert_allclose(r, np.diagonal(R), atol=1e-9)


def check_candidates(model, expected) -> None:
    """The table, the exemplars and the scores of all candidates."""
    table, n = model.scan_, len(model.labels_)
    assert table["n_clusters"].tolist() == sorted(expected.candidates)
    for row, k in enumerate(table["n_clusters"]):
        _, iteration, exemplars = expected.candidates[k]
        labels = assign_to_exemplars(expected.S, exemplars)
        np.testing.assert_array_equal(model.labels_for(k), labels)
        assert table["n_iter"][row] == iteration
        assert table["damping"][row] == expected.damping[iteration - 1]
        assert table["preference"][row] == pytest.approx(expected.preference[iteration - 1], rel=1e-9)
        S = expected.S[np.arange(n), exemplars[labels]].copy()
        S[exemplars] = expected.preference[iteration - 1]
        assert table["net_similarity"][row] == pytest.approx(S.sum(), rel=1e-9)


# What a fit offers


@pytest.fixture(scope="module")
def wine():
    return fit(load_points("wine")[0])


def test_scan_is_a_table(wine):
    assert list(wine.scan_)[: len(COLUMNS)] == COLUMNS
    assert len({len(column) for column in wine.scan_.values()}) == 1
    assert (np.diff(wine.scan_["n_clusters"]) > 0).all()
    assert (np.diff(wine.scan_["preference"]) > 0).all()
    assert wine.scan_["n_iter"].max() == wine.n_iter_


def test_scores_are_those_of_the_oracle(wine):
    X = load_points("wine")[0]
    for metric, D in (("euclidean", distances(X, X)), ("sqeuclidean", distances(X, X, "sqeuclidean"))):
        model = fit(X, silhouette_metric=metric)
        for row, k in enumerate(model.scan_["n_clusters"]):
            _, mean, of_clusters = silhouette(D, model.labels_for(k))
            assert model.scan_["silhouette"][row] == pytest.approx(mean, abs=1e-6)
            assert model.scan_["min_cluster_silhouette"][row] == pytest.approx(of_clusters.min(), abs=1e-6)


def test_best_candidate(wine):
    row = wine.scan_["n_clusters"] == 3
    np.testing.assert_array_equal(wine.labels_, wine.labels_for(3))
    assert wine.silhouette_ == wine.scan_["silhouette"][row][0] == wine.scan_["silhouette"].max()
    assert wine.preference_ == wine.scan_["preference"][row][0]
    assert wine.net_similarity_ == wine.scan_["net_similarity"][row][0]
    np.testing.assert_array_equal(wine.cluster_centers_, load_points("wine")[0][wine.cluster_centers_indices_])


@pytest.mark.parametrize(
    ("n", "d", "seed", "min_cluster_size", "profile"),
    [
        *((*case, profile) for case in [(60, 2, 0, 3), (50, 4, 1, 3), (80, 9, 1, 1)] for profile in ("code", "fast")),
        (50, 4, 1, 3, "paper"),
    ],
)
def test_the_second_rule_of_the_package(n, d, seed, min_cluster_size, profile):
    """Rows without clusters: the package shows the largest minimum silhouette from the median number on."""
    X = np.random.default_rng(seed).normal(size=(n, d))
    given = {"profile": profile, "min_cluster_size": min_cluster_size}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        models = [fit(X, **given), fit(X, selection="silhouette" if profile == "code" else "package", **given)]
    labelings = {k: models[0].labels_for(k) for k in models[0].scan_["n_clusters"]}
    best, package = reference.choose_by_package(distances(X, X), labelings, min_cluster_size)
    numbers = [package, best] if profile == "code" else [best, package]
    assert [model.n_clusters_ for model in models] == numbers and (best != package) == (d > 2)
    for model in models:
        k, said = model.n_clusters_, [text for text in model.result_.warnings if "the best mean silhouette" in text]
        np.testing.assert_array_equal(model.labels_, labelings[k])
        assert model.selection_ == model.result_.diagnostics["selection"] == ("silhouette" if k == best else "package")
        assert model.silhouette_ == model.scan_["silhouette"][model.scan_["n_clusters"] == k][0]
        assert len(said) == (d > 2) and all(len(text) <= 200 for text in said)
        assert all((f"K={package} was chosen" if k == package else f"chooses K={package}") in text for text in said)


def scored(**silhouettes):
    """Candidates of ten rows each, by ``K2=(mean, least cluster mean)``."""
    means = {int(name[1:]): figures for name, figures in silhouettes.items()}
    return {k: SimpleNamespace(score=m, cluster_means=np.array([m, low]), sizes=np.array([5, 5]))
            for k, (m, low) in means.items()}  # fmt: skip


@pytest.mark.parametrize(
    ("candidates", "best", "package"),
    [
        ({"K2": (0.5, 0.1), "K3": (0.5, 0.2), "K4": (0.4, 0.3)}, 2, 2),
        ({"K4": (0.5, 0.3), "K2": (0.5, 0.1)}, 2, 2),
        ({"K2": (0.3, 0.1), "K3": (0.2, 0.2)}, 2, 2),
        ({"K2": (0.29, 0.1), "K5": (0.29, 0.0), "K9": (0.1, 0.0)}, 2, 5),
        ({"K2": (0.2, 0.19), "K3": (0.1, 0.05), "K5": (0.1, 0.01), "K9": (0.1, 0.05)}, 2, 3),
        ({"K2": (0.2, 0.19), "K3": (0.1, 0.18), "K5": (0.1, 0.01), "K9": (0.1, 0.05), "K10": (0.1, 0.0)}, 2, 9),
        ({"K2": (0.2, 0.19), "K3": (0.1, 0.18), "K5": (0.1, 0.01), "K9": (0.1, 0.05)}, 2, 3),
        ({"K7": (0.1, -0.2)}, 7, 7),
    ],
)
def test_equal_candidates(candidates, best, package):
    """Of equals the fewest clusters; the second rule begins at the median, of two medians at the lower one."""
    assert module.choose({}, scored(**candidates), 1) == {"silhouette": best, "package": package}


def test_candidates_can_be_saved(wine, tmp_path):
    model = fit(load_points("wine")[0], save_candidates=True)
    assert "candidates" not in wine.result_.arrays
    model.result_.save(tmp_path / "out")
    saved = load_result(tmp_path / "out")
    found = candidate_results(replace(saved, warnings=["of the best"], timings={"scan": 1.0}))
    assert not any(each.warnings or each.timings or each.diagnostics for each in found.values())
    assert list(found) == model.scan_["n_clusters"].tolist()
    for k, each in found.items():
        np.testing.assert_array_equal(each.labels, wine.labels_for(k))
        np.testing.assert_array_equal(each.labels[each.arrays["centers"]], np.arange(k))
        assert each.scores["silhouette"] == wine.scan_["silhouette"][wine.scan_["n_clusters"] == k]
    np.testing.assert_array_equal(found[3].arrays["centers"], model.cluster_centers_indices_)
    assert candidate_results(wine.result_) == {}


def test_labels_for(wine):
    for k in wine.scan_["n_clusters"]:
        labels = wine.labels_for(k)
        assert labels.dtype == np.int32 and np.unique(labels).tolist() == list(range(k))
    with pytest.raises(InputError, match=r"k=99 .* nearest"):
        wine.labels_for(99)


def test_log_tells_the_scan(wine):
    assert wine.log_[0].startswith("iteration 109: K = 14 confirmed")
    assert wine.log_[-1].endswith("the end: K = 2 is confirmed")
    iterations = [int(re.match(r"iteration (\d+):", line)[1]) for line in wine.log_]
    assert iterations == sorted(set(iterations)) and iterations[-1] == wine.n_iter_


def test_small_clusters_are_not_chosen(device, rng):
    """Three blobs and two lone rows far away: the best silhouette has the two as clusters of one."""
    X = np.concatenate([rng.normal(size=(25, 2)) + center for center in ([0, 0], [12, 0], [0, 12])])
    X = np.concatenate([X, [[40, 40], [-40, 40]]])
    model = fit(X, device)
    sizes = model.scan_["min_cluster_size"]
    assert sizes[model.scan_["n_clusters"] == model.n_clusters_][0] >= 3 or (sizes < 3).all()
    any_size = fit(X, device, min_cluster_size=1)
    defined = any_size.scan_["silhouette"]
    assert any_size.silhouette_ == np.nanmax(defined)


@pytest.mark.parametrize("affinity", ["cosine", "correlation"])
def test_directions(affinity, device, rng):
    centers = rng.normal(size=(4, 12))
    y = rng.integers(0, 4, 160)
    X = (centers[y] + 0.2 * rng.normal(size=(160, 12))) * rng.uniform(1, 5, (160, 1))
    model = fit(X, device, affinity=affinity)
    assert model.n_clusters_ == 4 and adjusted_rand_score(y, model.labels_) == 1.0
    D = distances(X, X, affinity)
    for row, k in enumerate(model.scan_["n_clusters"]):
        assert model.scan_["silhouette"][row] == pytest.approx(silhouette(D, model.labels_for(k))[1], abs=1e-5)


def test_precomputed_is_the_same_scan(device):
    X = load_points("wine")[0]
    S = similarity(X)
    model = fit(S, device, affinity="precomputed", dtype="float64")
    assert model.n_iter_ == 2538 and model.n_clusters_ == 3
    for row, k in enumerate(model.scan_["n_clusters"]):
        assert model.scan_["silhouette"][row] == pytest.approx(silhouette(-S, model.labels_for(k))[1], abs=1e-9)


def test_preference_can_be_given(device):
    """Then it stays: one candidate, and the run ends when the exemplars rest."""
    X = load_points("wine")[0]
    model = fit(X, device, preference=-20.0)
    assert model.scan_["n_clusters"].tolist() == [model.n_clusters_] and model.preference_ == -20.0
    assert model.n_iter_ < 1000
    each = fit(X, device, preference=np.full(len(X), -20.0))
    np.testing.assert_array_equal(each.labels_, model.labels_)


def test_max_iter_is_a_warning(device):
    with pytest.warns(ConvergenceWarning, match="max_iter=500"):
        model = fit(load_points("wine")[0], device, max_iter=500)
    assert model.n_iter_ == 500 and not model.converged_ and len(model.scan_["n_clusters"])


@pytest.mark.slow
def test_same_again(device):
    X = load_points("ionosphere")[0]
    first, second = fit(X, device, random_state=5), fit(X, device, random_state=5)
    assert first.log_ == second.log_
    np.testing.assert_array_equal(first.labels_, second.labels_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"profile": "other"}, "profile"),
        ({"max_iter": 0}, "max_iter"),
        ({"min_cluster_size": 0}, "min_cluster_size"),
        ({"silhouette_metric": "cosine"}, "silhouette_metric"),
        ({"affinity": "precomputed"}, "square"),
        ({"preference": np.zeros(3)}, "preference"),
        (
            {"n_clusters_range": (5, 3)},
            "n_clusters_range=\\(5, 3\\) should be two integers from 1 on, the second not below",
        ),
        ({"n_clusters_range": "5"}, "n_clusters_range='5' should be two integers"),
        ({"n_clusters_range": (0, 3)}, "n_clusters_range=\\(0, 3\\) should be two integers"),
        ({"n_clusters_range": (1, 1)}, "n_clusters_range=\\(1, 1\\) ends below 2"),
        ({"n_clusters_range": (30, 40)}, "begins above the number of rows, 20"),
        ({"n_clusters_range": (2, 4), "preference": -3.0}, r"and preference exclude each other"),
    ],
)
def test_bad_parameters(parameters, message, rng):
    with pytest.raises(InputError, match=message):
        fit(rng.normal(size=(20, 3)), **parameters)


def test_a_range_has_the_candidates_of_the_whole_scan():
    X = load_points("wine")[0]
    given = {"profile": "fast", "dtype": "float64"}
    whole, part = fit(X, **given), fit(X, n_clusters_range="10,12", **given)
    inside = [k for k in whole.scan_["n_clusters"] if 10 <= k <= 12]
    assert set(inside) <= set(part.scan_["n_clusters"]) <= {10, 11, 12} and part.n_iter_ < whole.n_iter_
    assert part.silhouette_ > max(whole.scan_["silhouette"][whole.scan_["n_clusters"] == k][0] for k in inside) - 0.01
    assert part.converged_ and part.n_clusters_ in (10, 11, 12)


def test_a_range_without_candidates_is_a_warning(rng):
    message = r"n_clusters_range=\(4, 5\) .* all labels are -1: the nearest .* \d+; widen the range, or raise max_iter"
    with pytest.warns(ConvergenceWarning, match=message):
        model = fit(rng.normal(size=(100, 2)), n_clusters_range=(4, 5), max_iter=64)
    assert model.n_clusters_ == 0 and (model.labels_ == -1).all() and len(model.scan_["n_clusters"]) == 0


def test_similarities_above_zero_are_refused(rng):
    S = rng.random((30, 30))
    with pytest.raises(InputError, match="median similarity"):
        fit((S + S.T) / 2, affinity="precomputed")


@pytest.mark.parametrize(
    "name",
    ["wine", *(pytest.param(name, marks=pytest.mark.slow) for name in ("ionosphere", "distinct")), "blobs", "plane"],
)
def test_the_fast_profile_passes_the_plateaus_of_the_slow_one(name):
    """Numbers of clusters that outlast a step of the slow one, in at most an eighth of its iterations."""
    rng = np.random.default_rng(1)
    X = {
        "blobs": lambda: rng.normal(size=(8, 5))[rng.integers(8, size=300)] * 4 + rng.normal(size=(300, 5)),
        "plane": lambda: rng.random((150, 2)),
        "distinct": lambda: np.unique(load_points("ionosphere")[0], axis=0),
    }.get(name, lambda: load_points(name)[0])()
    slow, fast = (
        AdaptiveAffinityPropagation(profile=profile, device="cpu", client=None, dtype="float64").fit(X)
        for profile in ("code", "fast")
    )
    assert fast.converged_ and 8 * fast.n_iter_ <= slow.n_iter_
    confirmed = [int(number) for line in slow.log_ for number in re.findall(r"K = (\d+) confirmed", line)]
    plateaus = {k for k in confirmed if confirmed.count(k) > 1}
    if name != "ionosphere":  # it has equal rows, so the noise decides which numbers a scan passes
        assert len(plateaus) > 8 and plateaus <= set(fast.scan_["n_clusters"].tolist())
    assert fast.silhouette_ > slow.silhouette_ - (0.006 if name == "distinct" else 0.005)


def test_the_fast_profile_with_a_preference_is_the_usual_one():
    X = load_points("wine")[0]
    given = {"preference": -20.0, "device": "cpu", "client": None}
    one, other = (AdaptiveAffinityPropagation(profile=profile, **given).fit(X) for profile in ("code", "fast"))
    assert one.n_iter_ == other.n_iter_ and (one.labels_ == other.labels_).all()


def test_many_equal_rows_are_said(device, rng):
    """A scan can pass by the number of different rows, which are clusters with silhouette 1."""
    model = fit(np.repeat(np.random.default_rng(0).normal(size=(60, 3)), 4, axis=0), device)
    assert any("only 60 of 240 rows are distinct" in text and "numpy.unique" in text for text in model.result_.warnings)
    nine = fit(np.random.default_rng(1).integers(0, 3, (60, 2)), device)
    assert nine.n_clusters_ == 9 and nine.silhouette_ == 1.0 and not nine.result_.warnings
    few = np.concatenate([rng.normal(size=(20, 2)), rng.normal(size=(20, 2)) + 9])
    few[1] = few[0]
    assert not any("distinct" in text for text in fit(few, device).result_.warnings)


def test_a_preference_that_can_fall_no_further_ends_the_scan():
    """Groups a thousand deviations apart: all rows of a group become exemplars, or none, whatever the preference."""
    rng = np.random.default_rng(402)
    X = rng.normal(size=(200, 2)) + (1e3 * rng.normal(size=(4, 2)))[np.arange(200) % 4]
    with pytest.warns(UnconvergedWarning, match="can fall no further.*try another profile"):
        model = AdaptiveAffinityPropagation(profile="fast", device="cpu", client=None, random_state=0).fit(X)
    assert not model.converged_ and model.n_clusters_ == len(model.cluster_centers_indices_)
    assert model.log_[-1] == f"the end: {model.result_.diagnostics['stopped']}"
