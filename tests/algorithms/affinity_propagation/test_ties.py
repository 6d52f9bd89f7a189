"""Duplicate and nearly equal rows: noise on preferences breaks their ties, and a poor optimum is said.

The right value is counted (`numpy.unique`), or is the best of all sets of exemplars.
"""

from __future__ import annotations

import warnings
from itertools import chain, combinations
from types import SimpleNamespace

import numpy as np
import pytest
from scipy.sparse import csr_array

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, PoorOptimumWarning
from mgclust.algorithms.affinity_propagation import better_exemplars, estimator, message_passing, ranks
from mgclust.algorithms.affinity_propagation.rows.computed_similarities import similarities_of
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import StoredSimilarities
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect
from oracles import affinity_propagation as oracle
from support import hard_rows

pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)


def groups(kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Rows, and which of them are equal or nearly so; in a random order."""
    rng = np.random.default_rng(5)
    if kind.startswith("one-hot"):
        y = rng.integers(int(kind[-1]), size=150)
        X = np.eye(int(kind[-1]))[y]
    else:
        distinct, d, apart = {
            "duplicates": (60, 64, 0.0),
            "few features": (40, 17, 0.0),
            "offset": (60, 64, 0.0),
            "1e-5": (60, 64, 1e-5),
            "1e-4": (60, 64, 1e-4),
            "1e-3": (60, 64, 1e-3),
            "wide": (50, 300, 1e-6),
        }[kind]
        y = rng.permutation(np.repeat(np.arange(distinct), 4))
        centers = rng.normal(size=(distinct, d))
        if d == 17:  # far enough apart for the preference
            centers = np.r_[np.eye(17), -np.eye(17), np.zeros((6, 17))] + np.diag(range(1, 41))[:, 34:] @ np.eye(6, 17)
        X = centers[y] + apart * rng.normal(size=(4 * distinct, d)) + 1e3 * (kind == "offset")
    return X, y


def every_pair(S: np.ndarray) -> csr_array:
    """All of them stored, zeros too."""
    n = len(S)
    return csr_array((S.ravel(), np.tile(np.arange(n), n), np.arange(n + 1) * n), shape=S.shape)


def check_groups(model, y) -> None:
    """One exemplar for each group of equal rows, and no doubt."""
    assert model.converged_ and not any("poor" in text for text in model.result_.warnings)
    pairs = np.unique(np.column_stack([y, model.labels_]), axis=0)
    assert model.n_clusters_ == len(np.unique(y)) == len(pairs)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
@pytest.mark.parametrize(
    "kind", ["one-hot 4", "one-hot 6", "duplicates", "few features", "offset", "1e-5", "1e-4", "1e-3", "wide"]
)
def test_equal_rows_are_one_cluster(kind, algorithm, dtype, device):
    X, y = groups(kind)
    model = AffinityPropagation(damping=0.9, max_iter=500, algorithm=algorithm, dtype=dtype, device=device, client=None)
    check_groups(model.fit(X), y)
    if not kind[0].isdigit() and kind != "wide":  # the first of equal rows
        first = np.unique(y, return_index=True)[1]
        assert model.cluster_centers_indices_.tolist() == sorted(first)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "form",
    ["cosine", "correlation", "precomputed", "shifted", "lowered", "pairs", "fewer pairs", "n_clusters", "one pair"],
)
def test_equal_rows_in_any_form(form, dtype, device):
    X, y = groups("duplicates")
    S, given = oracle.similarity(X), {"damping": 0.9, "max_iter": 500, "dtype": dtype, "device": device, "client": None}
    if form in ("cosine", "correlation"):
        given["affinity"] = form
    elif form == "n_clusters":
        given["n_clusters"] = len(np.unique(y))
    elif form == "one pair":
        X = np.concatenate([np.unique(X, axis=0), X[:1]])
        y = np.unique(X, axis=0, return_inverse=True)[1]
        given["preference"] = -1.0
    else:
        given |= {"affinity": "precomputed", "preference": float(np.median(S))}
        X = S + {"shifted": 200, "lowered": -5}.get(form, 0)
        np.fill_diagonal(X, 0 if form != "precomputed" else given["preference"])  # no similarity to itself
        given["preference"] += {"shifted": 200, "lowered": -5}.get(form, 0)
        if form == "pairs":
            X = every_pair(X)
        elif form == "fewer pairs":
            X = every_pair(S - 1.0)
            given["preference"] -= 1
    check_groups(AffinityPropagation(**given).fit(X), y)


@pytest.mark.parametrize("profile", ["code", "paper"])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_scan_keeps_equal_rows_together(profile, dtype, device):
    X, y = groups("duplicates")
    scan = AdaptiveAffinityPropagation(profile=profile, dtype=dtype, device=device, client=None).fit(X)
    check_groups(scan, y)
    assert not scan.result_.warnings  # each distinct row is a cluster of its own: no doubt


@pytest.mark.parametrize("apart", [0.0, 1e-5, 1e-4])
def test_a_fast_scan_in_float64_breaks_ties(apart, device):
    """As in float32, before the preference has fallen far."""
    rng = np.random.default_rng(51)
    y = np.repeat(np.arange(40), 4)
    X = rng.normal(size=(40, 8))[y] + apart * rng.normal(size=(160, 8))
    scan = AdaptiveAffinityPropagation(profile="fast", dtype="float64", device=device, client=None).fit(X)
    check_groups(scan, y)
    assert scan.silhouette_ > 0.99


def test_a_scan_without_a_candidate_has_not_converged():
    """It passes from 40 clusters of equal rows to fewer than are wanted."""
    X, _ = groups("one-hot 4")
    with pytest.warns(UserWarning, match="all labels are -1"):
        scan = AdaptiveAffinityPropagation(device="cpu", client=None, n_clusters_range=(30, 35)).fit(X)
    assert scan.n_clusters_ == 0 and scan.n_iter_ < scan.max_iter and not scan.converged_


def nets(S: np.ndarray, preference: float) -> dict[tuple[int, ...], float]:
    """The net similarity of each set of exemplars."""
    S = S.copy()
    np.fill_diagonal(S, preference)
    n = len(S)
    every = chain.from_iterable(combinations(range(n), k) for k in range(1, n + 1))
    return {each: oracle.net_similarity(S, np.array(each)) for each in every}


KNOWN_BITS = ["-0x1.9006266a292fep+5", "-0x1.90058a256a41dp+5"]


@pytest.mark.parametrize("damping", [0.5, 0.9])
def test_a_poor_optimum_of_five_rows_is_said(damping):
    """Two rows of a 5 x 5 matrix are equal: few results are poor at damping 0.5, and each poor one is said."""
    poor = said = wrong = 0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        S = np.round(-10 * rng.random((5, 5)))
        S = (S + S.T) / 2
        S[1] = S[0]
        S[:, 1] = S[:, 0]
        preference = float(np.median(S))
        given = {"affinity": "precomputed", "preference": preference, "damping": damping, "random_state": seed}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = AffinityPropagation(**given, device="cpu", client=None).fit(S)
        every = nets(S, preference)
        falls_short = every.get(tuple(model.cluster_centers_indices_.tolist()), -np.inf) < max(every.values()) - 1e-9
        poor, said = poor + falls_short, said + (falls_short and bool(caught))
        wrong += not falls_short and any(each.category is PoorOptimumWarning for each in caught)
    assert said == poor and not wrong
    assert poor <= 2 or damping == 0.9


@pytest.mark.parametrize("k", [6, 9])
def test_as_many_clusters_as_values_are_met(k, device):
    """Between these and each row alone, no number of clusters has a larger net similarity."""
    y = np.random.default_rng(k).integers(0, k, 30)
    y[:k] = range(k)
    given = {"n_clusters": k, "damping": 0.9, "dtype": "float64", "device": device, "client": None}
    check_groups(AffinityPropagation(**given).fit(np.eye(k)[y]), y)


def test_a_poor_optimum_that_an_exchange_improves_is_said():
    """Points of a lattice: no exemplar more or fewer is better, but another one in place of one is."""
    points = np.stack(np.meshgrid(range(3), range(3)), -1).reshape(-1, 2).astype(float)
    best = max(nets(oracle.similarity(points), -2.0).values())
    poor = 0
    for seed in range(12):
        S = oracle.similarity(points[np.random.default_rng(seed).permutation(9)])
        given = {"affinity": "precomputed", "preference": -2.0, "damping": 0.9, "random_state": seed}
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model = AffinityPropagation(**given, device="cpu", client=None).fit(S)
        falls_short = model.net_similarity_ < best - 1e-9
        assert falls_short == any(each.category is PoorOptimumWarning for each in caught)
        poor += falls_short
    assert poor


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_no_poor_optimum(dtype, device):
    """Most pairs coincide, so the preference is 0, and the net similarity is 0 but for noise."""
    X = np.r_[np.ones((49, 3)), [[5, 5, 5]]]
    with warnings.catch_warnings():
        warnings.simplefilter("error", PoorOptimumWarning)
        model = AffinityPropagation(dtype=dtype, device=device, client=None).fit(X)
    assert model.n_clusters_ == 2 and abs(model.net_similarity_) < 1e-30


def test_noise_on_preferences():
    """Only where rows are alike; the same for any rank, since it is made of row numbers; of the size that is stated."""

    class Context:
        dtype, dataset_shape = np.dtype("float32"), (4000, 2)

    similarities = StoredSimilarities(Context(), 7, np.zeros((1, 1)))
    p = np.full(4000, -50.0)
    similarities.lowest = -1.0
    similarities.highest = -50.0 * 17 * 2.0**-23
    assert similarities.distinct(p) is p
    similarities.highest = -50.0 * 15 * 2.0**-23
    noisy = similarities.distinct(p)
    similarities.highest, similarities.equal_rows = -1.0, True
    np.testing.assert_array_equal(similarities.distinct(p), noisy)
    step = 50 * 2.0**-18
    height = (noisy - p) / step + 16
    assert len(np.unique(noisy)) == 4000 and height.min() > 0 and (height < 16).mean() > 0.999
    # Of an exponential distribution: as many rows are above 1, 2, 3, ... as halves say.
    for bits in range(1, 6):
        assert (height > bits).mean() == pytest.approx(2.0**-bits, abs=0.02)
    # The same bits on any platform, with any version of NumPy.
    assert [float(each).hex() for each in noisy[:2]] == KNOWN_BITS
    Context.dtype = np.dtype("float64")
    np.testing.assert_array_equal(similarities.distinct(p), noisy)  # fast scans in float64
    similarities.equal_rows, similarities.highest = False, -50.0 * 15 * 2.0**-23
    np.testing.assert_array_equal(similarities.distinct(p), noisy)
    similarities.ties = "float64"
    assert similarities.distinct(p) is p
    similarities.equal_rows = True
    similarities.draws = 1
    assert (similarities.distinct(p) != noisy).all()
    similarities.draws, similarities.seed = 0, 8
    assert (similarities.distinct(p) != noisy).all()


@pytest.mark.parametrize("algorithm", ["dense", "sparse", "pairs"])
def test_gains_of_further_exemplars(algorithm, device, monkeypatch):
    """As the plain sums say; lists that do not reach the exemplar are looked up."""
    rng = np.random.default_rng(2)
    X = rng.normal(size=(150, 5)).astype("float32")
    S, seen = oracle.similarity(X), []
    found = message_passing.MessagePassing.gains

    def gains(self, chosen):
        # Those of one exemplar, too, which no list reaches.
        alone = np.where(np.arange(150) == 3, np.inf, S[:, 3])
        seen.extend((each, found(self, each)) for each in (alone, chosen))
        return seen[-1][1]

    monkeypatch.setattr(message_passing.MessagePassing, "gains", gains)
    given = {"damping": 0.8, "dtype": "float64", "device": device, "client": None}
    if algorithm == "pairs":
        AffinityPropagation(**given, affinity="precomputed", preference=-3.0).fit(every_pair(S))
    else:
        AffinityPropagation(**given, algorithm=algorithm, preference=-3.0).fit(X)
    assert len(seen) >= 4
    np.fill_diagonal(S, -np.inf)
    for chosen, gain in seen:
        more = np.maximum(S - np.where(np.isinf(chosen), 0, chosen)[:, None], 0)
        np.testing.assert_allclose(gain, more.sum(axis=0), rtol=1e-6, atol=1e-6)


def test_better_exemplars_are_dropped_and_added(device, monkeypatch):
    """From one exemplar, and from each row being one: near the net similarity of the fit's own."""
    rng = np.random.default_rng(4)
    X = np.repeat(6 * rng.normal(size=(8, 3)), 12, axis=0) + rng.normal(size=(96, 3))
    found, results = better_exemplars.better_exemplars, []

    def beside(messages, assignment, preference):
        for exemplars in ([0], range(96), [*assignment.exemplars, 1, 14]):
            start = messages.assign(np.unique(exemplars).astype(np.int64), preference)
            results.append((found(messages, start, preference), start))
        results.append((found(messages, assignment, preference), assignment))
        return None

    monkeypatch.setattr("mgclust.algorithms.affinity_propagation.ranks.better_exemplars", beside)
    model = AffinityPropagation(damping=0.8, preference=-40.0, device=device, client=None).fit(X)
    (one, alone), (all_rows, _), (two_more, _), (own, _) = results
    assert own is None and model.n_clusters_ == 8
    assert one.net_similarity > 0.5 * alone.net_similarity and 4 <= len(one.exemplars) <= 8
    assert two_more.net_similarity > 1.1 * model.net_similarity_ and len(two_more.exemplars) < 10
    assert all_rows.net_similarity > -40.0 * 96 / 2


@pytest.mark.quick("*-17-float32", "*-64-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("d", hard_rows.FEATURES)
@pytest.mark.parametrize("kind", hard_rows.KINDS)
def test_hard_data(kind, d, dtype):
    X, y = hard_rows.rows(kind, d)
    model = AffinityPropagation(damping=0.9, max_iter=1000, dtype=dtype, device="cpu", client=None).fit(X)
    hard_rows.check(model, oracle.similarity(X), y)


def test_a_resumed_run_remembers_when_it_was_poor():
    """Messages rest from iteration 1, exemplars were poor in 45: so they have to stay to 45 + 15 - 1."""
    messages = SimpleNamespace(
        restore=lambda saved: None, reach_all=lambda: True, tied=False, save=lambda *_: None,
        iterate=lambda dampings: [(3, True)] * len(dampings),
    )  # fmt: skip
    context = SimpleNamespace(progress=lambda *_, **__: None, checkpoint=SimpleNamespace(due=lambda: False))
    for poor, end in ((45, 59), (0, 51)):
        saved = SimpleNamespace(control={"done": 50, "last_change": 1, "last_poor": poor})
        assert ranks.iterate(context, messages, saved, ranks.Limits(0.5, 200, 15)) == (end, True)


@pytest.mark.parametrize("draws", [0, 1, 2])
def test_similarities_have_the_noise_of_all_draws_however_they_are_asked_for(draws):
    def function(context):
        similarities = similarities_of(context, "euclidean", 7, stored=False)
        before = similarities.matrix()
        for _ in range(draws):
            similarities.add_noise()
        chosen = np.array([3, 4, 17, 30])
        columns = np.array([0, 3, 8, 39])
        some = similarities.of_rows(chosen)
        assert (some == similarities.matrix()[chosen]).all()
        assert (some[:, columns] == similarities.of_columns(chosen, columns)).all()
        return bool((some != before[chosen]).any())

    X = np.random.default_rng(0).integers(0, 3, (40, 2)).astype(float)
    with connect(None, "cpu") as cluster:
        found = spmd.run(spmd.RunSpec(function, dtype="float32"), open_dataset(X), cluster).value
    assert found == (draws > 0)
