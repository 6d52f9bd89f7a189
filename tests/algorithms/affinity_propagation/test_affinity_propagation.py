"""`AffinityPropagation` against scikit-learn and against the float64 oracle with explicit R and A."""

from __future__ import annotations

import math
import warnings
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from sklearn.cluster import AffinityPropagation as ScikitLearn
from sklearn.exceptions import ConvergenceWarning

from mgclust import AffinityPropagation
from mgclust.algorithms.affinity_propagation import estimator as affinity_propagation
from mgclust.algorithms.affinity_propagation.message_passing import rounded_sum
from mgclust.base.errors import InputError
from mgclust.kernels.affinity_propagation import cpu
from oracles import affinity_propagation as oracle
from support.points import load_points

DATA = Path(__file__).resolve().parents[2] / "sets"

# Where messages oscillate under scikit-learn's damping of 0.5, neither converges and there is nothing to compare.
DAMPING = {"rings": 0.8, "clusters": 0.8, "pendigits": 0.5, "haxby": 0.5, "wide128": 0.9}


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(affinity_propagation, "FEW_SIMILARITIES", 0)


@cache
def rows_of(name) -> np.ndarray:
    if name == "haxby":
        nibabel = pytest.importorskip("nibabel")
        bold, mask = (nibabel.load(DATA / f"haxby2001-slice_{part}.nii.gz").get_fdata() for part in ("bold", "mask"))
        return bold[mask > 0]
    X = np.asarray(load_points(name)[0], "float64")
    return {"clusters": X[::3], "pendigits": X[:3000]}.get(name, X)


@cache
def similarities_of(name) -> np.ndarray:
    return oracle.similarity(rows_of(name), "correlation" if name == "haxby" else "euclidean")


@cache
def scikit_learn(name, damping, preference=None):
    model = ScikitLearn(affinity="precomputed", damping=damping, preference=preference, random_state=0)
    return model.fit(similarities_of(name))


def fit(X, device="cpu", **parameters) -> AffinityPropagation:
    return AffinityPropagation(device=device, client=None, **parameters).fit(X)


def check_same_clusters(S, model, expected) -> None:
    """The same clusters; exemplars, and the exemplars of rows, may differ only where they are equally good."""
    rounding = 1e-5 * np.abs(S).max()
    mine, theirs = (m.cluster_centers_indices_[m.labels_] for m in (model, expected))
    assert len(model.cluster_centers_indices_) == len(expected.cluster_centers_indices_)
    for exemplar in model.cluster_centers_indices_:
        members = np.flatnonzero(mine == exemplar)
        other, votes = np.unique(theirs[members], return_counts=True)
        other = other[votes.argmax()]
        if other != exemplar:
            sums = S[np.ix_(members, [exemplar, other])].sum(axis=0)
            np.testing.assert_allclose(sums[0], sums[1], rtol=1e-5, err_msg=f"exemplars {exemplar} and {other}")
        for i in members[theirs[members] != other]:
            assert abs(S[i, exemplar] - S[i, theirs[i]]) <= rounding, f"row {i} belongs to {theirs[i]}"


@pytest.mark.quick("cpu-rings-*", "cpu-wide032-*")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    "name", ["rings", "clusters", "pendigits", *(f"wide{d:03d}" for d in (32, 64, 128, 256, 512, 1024))]
)
def test_equals_scikit_learn(name, dtype, device):
    damping = DAMPING.get(name, 0.8)
    expected = scikit_learn(name, damping)
    model = fit(rows_of(name), device, damping=damping, dtype=dtype)
    check_same_clusters(similarities_of(name), model, expected)
    assert model.converged_ and model.n_iter_ == expected.n_iter_
    np.testing.assert_allclose(model.cluster_centers_, rows_of(name)[model.cluster_centers_indices_], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("affinity", ["correlation", "precomputed"])
def test_bold_slice_by_correlation(affinity, dtype, device):
    """530 voxels, 1,452 volumes; scikit-learn is given -(1 - r) / 2."""
    X = rows_of("haxby")
    S = similarities_of("haxby")
    model = fit(X if affinity == "correlation" else S, device, affinity=affinity, dtype=dtype)
    check_same_clusters(S, model, scikit_learn("haxby", 0.5))
    assert model.n_iter_ == scikit_learn("haxby", 0.5).n_iter_


@pytest.mark.parametrize("affinity", ["euclidean", "cosine", "correlation"])
def test_equals_the_oracle(affinity, device, rng):
    X = rng.normal(size=(300, 6)) + 3 * rng.normal(size=(7, 6))[rng.integers(0, 7, 300)]
    S = oracle.similarity(X, affinity)
    for damping in (0.5, 0.7, 0.9):
        expected = oracle.affinity_propagation(S, damping=damping)
        model = fit(X, device, damping=damping, affinity=affinity, dtype="float64")
        assert (model.n_iter_, model.converged_) == (expected.n_iter, expected.converged)
        np.testing.assert_array_equal(model.cluster_centers_indices_, expected.exemplars)
        np.testing.assert_array_equal(model.labels_, expected.labels)
        assert model.net_similarity_ == pytest.approx(expected.net_similarity, rel=1e-10)


@pytest.mark.parametrize("preference", [-30.0, -200.0, -4000.0])
def test_preference(preference, device):
    expected = scikit_learn("rings", 0.9, preference)
    model = fit(rows_of("rings"), device, damping=0.9, preference=preference)
    check_same_clusters(similarities_of("rings"), model, expected)
    assert model.preference_ == preference


def test_preference_of_each_row(device, rng):
    """Rows that must not be exemplars are none, and scikit-learn agrees on the rest."""
    X = rows_of("rings")
    preference = np.where(rng.random(len(X)) < 0.5, -1e5, -100.0)
    expected = ScikitLearn(damping=0.9, preference=preference, random_state=0).fit(X)
    model = fit(X, device, damping=0.9, preference=preference)
    check_same_clusters(similarities_of("rings"), model, expected)
    assert (preference[model.cluster_centers_indices_] == -100.0).all()


def test_default_preference_is_the_median_with_the_diagonal(device):
    model = fit(rows_of("rings"), device, damping=0.8, dtype="float64")
    assert model.preference_ == pytest.approx(np.median(similarities_of("rings")), rel=1e-12)


@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
@pytest.mark.parametrize("affinity", ["euclidean", "precomputed"])
def test_preference_by_quantile(affinity, algorithm, device):
    """As in apcluster: of the similarities without the diagonal."""
    if algorithm == "sparse" and device != "cpu":
        pytest.skip("lists are for CPUs")
    n = 400 if affinity == "euclidean" else 151
    S = similarities_of("rings")[:n, :n] * (1 if affinity == "euclidean" else np.linspace(1, 2, n))
    X = rows_of("rings")[:n] if affinity == "euclidean" else S
    pairs = S[~np.eye(n, dtype=bool)]
    parameters = {"affinity": affinity, "algorithm": algorithm, "damping": 0.9, "dtype": "float64"}
    for share in (0, 0.137, 0.5, 1):
        model = fit(X, device, preference_quantile=share, **parameters)
        assert model.preference_ == pytest.approx(np.quantile(pairs, share), rel=1e-12), share
    given = fit(X, device, preference=model.preference_, **parameters)
    np.testing.assert_array_equal(model.labels_, given.labels_)


@pytest.mark.quick("cpu-7-*")
@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
@pytest.mark.parametrize("n_clusters", [2, 7, 40, 400])
def test_number_of_clusters(n_clusters, algorithm, device):
    """The result is that of a fit with the preference found, in the oracle and in scikit-learn, too."""
    if algorithm == "sparse" and device != "cpu":
        pytest.skip("lists are for CPUs")
    X, S = rows_of("rings")[:400], similarities_of("rings")[:400, :400]
    parameters = {"damping": 0.9, "convergence_iter": 30, "max_iter": 500}
    model = fit(X, device, n_clusters=n_clusters, dtype="float64", algorithm=algorithm, **parameters)
    assert model.converged_ and model.n_clusters_ == n_clusters
    assert len(model.result_.warnings) == (n_clusters == len(X))  # each row is a cluster of its own
    assert model.search_["n_clusters"][-1] == n_clusters and model.search_["preference"][-1] == model.preference_
    expected = oracle.affinity_propagation(S, model.preference_, **parameters)
    assert model.n_iter_ == expected.n_iter == model.search_["n_iter"][-1]
    np.testing.assert_array_equal(model.labels_, expected.labels)
    begun = fit(X, device, n_clusters=n_clusters, preference=model.preference_, dtype="float64", **parameters)
    assert begun.search_["preference"].tolist() == [model.preference_]
    np.testing.assert_array_equal(begun.labels_, model.labels_)
    theirs = ScikitLearn(affinity="precomputed", preference=model.preference_, random_state=0, **parameters).fit(S)
    check_same_clusters(S, model, theirs)


@pytest.mark.slow
def test_a_number_of_clusters_that_is_not_met(device, rng):
    """Rows that coincide are one cluster or two each."""
    X = np.repeat(rng.normal(size=(15, 2)), 2, axis=0)
    with pytest.warns(UserWarning, match=r"=29 was not met: .* give \d+ or 30 clusters, and this result has (28|30)"):
        model = fit(X, device, n_clusters=29)
    nearest = np.abs(model.search_["n_clusters"] - 29).argmin()
    assert model.preference_ == model.search_["preference"][nearest]
    assert not hasattr(model.set_params(n_clusters=None).fit(X), "search_")


@pytest.mark.parametrize(("n_clusters", "found"), [(1, 1), (4, 1), (5, 5)])
def test_a_number_of_clusters_without_structure(n_clusters, found, device):
    with pytest.warns(UserWarning, match="equally similar"):
        model = fit(np.full((5, 5), -1.0), device, affinity="precomputed", n_clusters=n_clusters)
    assert model.n_clusters_ == found == len(np.unique(model.labels_))
    assert ("n_clusters=4 was not met" in model.result_.warnings[0]) == (n_clusters == 4)


def test_asymmetric_similarities(device, rng):
    S = -(rng.random((120, 120)) ** 2)
    S[:, :5] /= 20
    np.fill_diagonal(S, 0)
    expected = ScikitLearn(affinity="precomputed", damping=0.9, random_state=0).fit(S)
    model = fit(S, device, affinity="precomputed", damping=0.9)
    check_same_clusters(S, model, expected)


def test_precomputed_from_a_file(device, tmp_path):
    S = similarities_of("rings")
    np.save(tmp_path / "similarities.npy", S)
    here = fit(S, device, affinity="precomputed", damping=0.8)
    there = fit(tmp_path / "similarities.npy", device, affinity="precomputed", damping=0.8)
    np.testing.assert_array_equal(here.labels_, there.labels_)
    assert here.n_iter_ == there.n_iter_


def test_affinity_matrix_is_made_when_asked_for(device):
    X = rows_of("rings")
    S = similarities_of("rings").copy()
    model = fit(X, device, damping=0.8)
    np.fill_diagonal(S, model.preference_)
    np.testing.assert_allclose(model.affinity_matrix_, S, rtol=1e-9, atol=1e-9)


def test_predict(device):
    X = rows_of("clusters")
    model = fit(X, device, damping=0.8)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    new = rows_of("clusters")[:100] + np.random.default_rng(0).normal(size=(100, 2))
    apart = ((new[:, None] - model.cluster_centers_[None]) ** 2).sum(axis=-1)
    np.testing.assert_array_equal(model.predict(new), apart.argmin(axis=1))
    # Similarities say nothing of other rows: then there is no predict.
    similarities = similarities_of("rings")
    with pytest.raises(InputError, match="affinity='precomputed': predict needs the fitted rows"):
        fit(similarities, device, affinity="precomputed", damping=0.8).predict(similarities)


@pytest.mark.parametrize("affinity", ["cosine", "correlation"])
def test_predict_by_direction(affinity, device, rng):
    X = rng.normal(size=(4, 6))[np.arange(120) % 4] + 0.2 * rng.normal(size=(120, 6))
    model = fit(X, device, affinity=affinity, damping=0.8)
    new = rng.normal(size=(50, 6))
    stacked = np.vstack([model.cluster_centers_, new])
    similar = oracle.similarity(stacked, affinity)[model.n_clusters_ :, : model.n_clusters_]
    np.testing.assert_array_equal(model.predict(new), similar.argmax(axis=1))
    with pytest.raises(InputError, match=r"is undefined for .* rows: 1 of them, the first is row 7"):
        model.predict(np.where(np.arange(50)[:, None] == 7, 0.0, new))


def test_predict_without_exemplars(device):
    with pytest.warns(ConvergenceWarning):
        model = fit(np.array([[0.0, 0], [1, 1], [-2, -2]]), device, preference=-10.0, max_iter=1)
    with pytest.warns(ConvergenceWarning, match="no exemplar"):
        assert model.predict(np.zeros((4, 2))).tolist() == [-1] * 4


@pytest.mark.parametrize("max_iter", [1, 3, 40])
def test_without_convergence_there_is_a_warning(max_iter, device):
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        model = fit(rows_of("rings"), device, max_iter=max_iter)
    assert model.n_iter_ == max_iter and not model.converged_
    expected = oracle.affinity_propagation(similarities_of("rings"), max_iter=max_iter)
    assert (model.labels_ == -1).all() == (len(expected.exemplars) == 0)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("algorithm", ["dense", "sparse"])
@pytest.mark.parametrize(("kind", "quantile"), [("rings", 0.1), ("random", 0.9)])
def test_the_best_of_the_last_states(kind, quantile, algorithm, device):
    """Messages that oscillate: not the labels that the last iteration happens to leave, as in scikit-learn."""
    if algorithm == "sparse" and device != "cpu":
        pytest.skip("lists are for CPUs")
    S = similarities_of("rings")[:400, :400].copy()
    if kind == "random":
        S = -np.random.default_rng(1).random((150, 150))
    preference = float(np.quantile(S, quantile))
    np.fill_diagonal(S, preference)
    parameters = {"affinity": "precomputed", "preference": preference, "max_iter": 60}
    model = fit(S, device, dtype="float64", algorithm=algorithm, **parameters)
    expected = oracle.affinity_propagation(S, preference, max_iter=60)
    assert not model.converged_ and not expected.converged
    np.testing.assert_array_equal(model.cluster_centers_indices_, expected.exemplars)
    np.testing.assert_array_equal(model.labels_, expected.labels)
    assert model.net_similarity_ == pytest.approx(expected.net_similarity, rel=1e-10)
    theirs = ScikitLearn(random_state=0, **parameters).fit(S.copy())
    assert model.net_similarity_ > 0.99 * oracle.net_similarity(S, theirs.cluster_centers_indices_)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_the_last_exemplars_that_there_were(dtype, monkeypatch):
    """After iteration 40 no row is one: the labels are those of that iteration, 60 iterations later."""
    original, done = cpu.pass_columns, []

    def pass_columns(messages, *, slot, **numbers):
        original(messages, slot=slot, **numbers)
        done.append(slot)
        if len(done) > 40:
            messages.exemplars[slot] = messages.last_exemplars[:] = messages.counts[slot] = 0

    monkeypatch.setattr(cpu, "pass_columns", pass_columns)
    S = similarities_of("rings")
    with pytest.warns(ConvergenceWarning, match="the exemplars still changed"):
        model = fit(S, "cpu", affinity="precomputed", max_iter=100, damping=0.8, dtype=dtype, convergence_iter=50)
    expected = oracle.affinity_propagation(S, max_iter=40, damping=0.8, convergence_iter=50)
    last = oracle.refine_exemplars(S, np.flatnonzero(expected.flags[-1]))
    np.testing.assert_array_equal(model.labels_, oracle.assign_to_exemplars(S, last))


def test_max_iter_of_one_more_converges(device):
    X = rows_of("rings")
    n_iter = fit(X, device, damping=0.8).n_iter_
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        assert fit(X, device, damping=0.8, max_iter=n_iter).converged_


def test_convergence_iter(device):
    X = rows_of("rings")
    short, long = (fit(X, device, damping=0.8, convergence_iter=count) for count in (15, 40))
    assert long.n_iter_ == short.n_iter_ + 25
    np.testing.assert_array_equal(short.labels_, long.labels_)


@pytest.mark.parametrize(("preference", "clusters"), [(None, 1), (-10.0, 1), (-0.1, 30)])
def test_equal_similarities(preference, clusters, device):
    """As scikit-learn: every row its own cluster where the preference is above the similarity, else one cluster."""
    S = np.full((30, 30), -1.0)
    np.fill_diagonal(S, 0)
    expected = ScikitLearn(affinity="precomputed", preference=preference, random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected.fit(S)
    model = fit(S, device, affinity="precomputed", preference=preference)
    assert len(model.cluster_centers_indices_) == clusters == len(np.unique(expected.labels_))
    np.testing.assert_array_equal(model.labels_, expected.labels_)


def test_the_seed_only_breaks_ties(device):
    X = rows_of("clusters")
    first, second = (fit(X, device, damping=0.8, random_state=seed) for seed in (1, 2))
    np.testing.assert_array_equal(first.labels_, second.labels_)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"damping": 0.4}, "damping"),
        ({"damping": 1.0}, "damping"),
        ({"max_iter": 0}, "max_iter"),
        ({"convergence_iter": 0}, "convergence_iter"),
        ({"affinity": "manhattan"}, "affinity"),
        ({"affinity": "precomputed"}, "square"),
        ({"preference": np.zeros(7)}, "preference"),
        ({"preference": np.nan}, "preference"),
        ({"preference_quantile": 1.5}, "preference_quantile=1.5 should be a finite number >= 0 and <= 1"),
        (
            {"preference_quantile": 0.5, "preference": -1.0},
            "preference_quantile=0.5 and preference exclude each other",
        ),
    ],
)
def test_bad_parameters(parameters, message, rng):
    with pytest.raises(InputError, match=message):
        fit(rng.normal(size=(20, 3)), **parameters)


def test_bad_rows(rng):
    X = rng.normal(size=(20, 3))
    X[4, 1] = np.nan
    with pytest.raises(InputError, match="NaN"):
        fit(X)


@pytest.mark.parametrize("count", [0, 1, 63, 65, 5000])
def test_sums_are_rounded_once(count):
    """Whatever the sizes and signs: as `math.fsum`, which adds one by one."""
    rng = np.random.default_rng(count)
    for values in (-rng.random(count), rng.normal(size=count) * 10.0 ** rng.integers(-18, 18, size=count)):
        cancelling = np.concatenate([values, -values[: count // 3]])
        assert rounded_sum(values) == math.fsum(values) and rounded_sum(cancelling) == math.fsum(cancelling)
