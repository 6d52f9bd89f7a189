"""`Canopy` is its sequential definition: the same centres in the same order, memberships and labels, on any data."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from mgclust import Canopy, load_result
from mgclust.algorithms.canopy.centers import priorities
from mgclust.base.errors import ClusteringWarning, InputError
from oracles import canopy as reference
from oracles.density_peaks import distances
from support.points import load_points

quick = settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True)
shapes = st.tuples(st.integers(2, 80), st.integers(1, 4))
lattices = shapes.flatmap(lambda shape: arrays("float64", shape, elements=st.integers(-6, 6).map(float)))
# On a lattice many distances are these very numbers: "within t" must include them, on every path alike.
radii = st.sampled_from([(2.0, 1.0), (5.0, 3.0), (3.0, 2.0), (2**0.5, 1.0), (5.0, 2.0**0.5), (10.0, 5.0), (1.0, 0.5)])


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fit(X, t1, t2, device="cpu", **parameters):
    return Canopy(t1=t1, t2=t2, device=device, client=None, **parameters).fit(X)


def arranged(X, how: str) -> np.ndarray:
    """The rows as they are in the file, sorted along a line, or shuffled."""
    if how == "file":
        return X
    if how == "sorted":
        return X[np.lexsort(X.T[::-1])]
    return X[np.random.default_rng(1).permutation(len(X))]


ARRANGEMENTS = ["file", "sorted", "shuffled"]


@pytest.mark.quick("cpu-2-*")
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize("d", [2, 3, 4, 5, 6])
def test_the_papers_data(d, arrangement, device):
    """t1 = 0.5 n in a cube of side 10 n; in six dimensions nearly every row is a centre."""
    n = 6000
    X = arranged(reference.papers_data(n, d), arrangement)
    ref = reference.canopy(X, 0.5 * n, 0.35 * n)
    reference.check_equal(fit(X, 0.5 * n, 0.35 * n, device), ref)


@pytest.mark.slow
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(("d", "t1"), [(2, 0.5), (3, 1.0)])
def test_the_papers_data_of_100_000_rows(d, t1, arrangement, device):
    n = 100_000
    X = arranged(reference.papers_data(n, d), arrangement)
    ref = reference.canopy(X, t1 * n, 0.7 * t1 * n)
    reference.check_equal(fit(X, t1 * n, 0.7 * t1 * n, device), ref)


@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
@pytest.mark.parametrize(
    ("name", "t1", "t2"),
    [
        ("clusters", 2.0, 1.0),
        ("overlap1", 60_000.0, 50_000.0),
        ("pendigits", 100.0, 60.0),
        ("pendigits", 60.0, 50.0),
        ("wide064", 120.0, 60.0),
        ("rings", 3.0, 0.8),
    ],
)
def test_sets_of_points(name, t1, t2, arrangement, device):
    """Coordinates of overlap1 and pendigits are integers: distances that equal t1 or t2 occur."""
    X = arranged(load_points(name)[0], arrangement)
    reference.check_equal(fit(X, t1, t2, device), reference.canopy(X, t1, t2))


@pytest.mark.slow
@pytest.mark.parametrize("arrangement", ARRANGEMENTS)
def test_the_birch_grid(arrangement, device):
    X = arranged(load_points("grid")[0], arrangement)
    t1, t2 = 3.5, 2.3
    reference.check_equal(fit(X, t1, t2, device), reference.canopy(X, t1, t2))


@pytest.mark.parametrize("metric", ["euclidean", "manhattan", "cosine", "correlation"])
def test_metrics(metric, device, rng):
    X = rng.normal(size=(3000, 5)) + 0.5
    t1, t2 = {"euclidean": (2.0, 1.2), "manhattan": (4.0, 2.5)}.get(metric, (0.3, 0.1))
    reference.check_equal(fit(X, t1, t2, device, metric=metric), reference.canopy(X, t1, t2, metric))


def test_integers_in_float32_are_exact(device):
    X = load_points("pendigits")[0]
    reference.check_equal(fit(X, 90.0, 50.0, device, dtype="float32"), reference.canopy(X, 90.0, 50.0))


@pytest.mark.parametrize("far", [1e6, -1e9])
def test_far_from_the_origin(far, device):
    """Integers near 1e9: products of such coordinates would lose the distances."""
    X = np.random.default_rng(5).integers(0, 200, (4000, 2)) + far
    reference.check_equal(fit(X, 20.0, 13.0, device), reference.canopy(X, 20.0, 13.0))


def test_more_centers_than_a_block(device):
    """Rows that are all centres: 12,000 picks, three times what a step may take."""
    X = np.random.default_rng(0).permutation(12_000)[:, None] * 10.0
    model = fit(X, 9.0, 5.0, device)
    np.testing.assert_array_equal(model.cluster_centers_indices_, np.arange(12_000))
    np.testing.assert_array_equal(model.labels_, np.arange(12_000))
    assert model.n_steps_ >= 3
    assert (model.memberships_.sum(axis=1) == 1).all()


def test_a_chain(device):
    """Each row removes the next: the longest chain of decisions that a set can have, all in one block or over many."""
    X = np.arange(9000.0)[:, None]
    model = fit(X, 2.0, 1.0, device)
    np.testing.assert_array_equal(model.cluster_centers_indices_, np.arange(0, 9000, 2))
    reference.check_equal(model, reference.canopy(X, 2.0, 1.0))


def test_duplicates(device, rng):
    X = rng.integers(0, 30, (5000, 2)).astype("float64")
    model = fit(X, 0.5, 0.25, device)
    assert model.n_canopies_ == len(np.unique(X, axis=0))
    reference.check_equal(model, reference.canopy(X, 0.5, 0.25))


def test_one_canopy(device, rng):
    X = rng.normal(size=(500, 3))
    model = fit(X, 100.0, 90.0, device)
    assert model.cluster_centers_indices_.tolist() == [0] and model.labels_.tolist() == [0] * 500
    assert model.memberships_.nnz == 500


@quick
@given(lattices, radii, st.sampled_from(["euclidean", "manhattan"]))
def test_equals_the_definition(X, t, metric):
    reference.check_equal(fit(X, *t, metric=metric), reference.canopy(X, *t, metric))


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 5])
@pytest.mark.parametrize(("t1", "t2"), [(0.5, 0.3), (1.0, 0.5), (0.9, 0.7), (1.3, 1.0)])
def test_every_step_decides_equal_distances_alike(d, t1, t2, device):
    """Decimal coordinates: many distances are t1 or t2 but for their last bit, which must fall one way everywhere."""
    X = np.random.default_rng(d).integers(0, 16, (150, d)) / 10
    ref = reference.canopy_of_squares(reference.fused_squares(X), t1, t2)
    reference.check_equal(fit(X, t1, t2, device), ref)


@quick
@given(lattices, radii, st.sampled_from(["index", "random"]), st.integers(0, 5))
def test_cover(X, t, order, seed):
    """No two centres within t2, every row within t2 of one; rows within t1 are members, others are not."""
    t1, t2 = t
    model = fit(X, t1, t2, order=order, random_state=seed)
    centers = model.cluster_centers_indices_
    assert len(np.unique(centers)) == len(centers) == model.n_canopies_ == model.memberships_.shape[1]
    reference.check_cover(X, centers, t2)
    d = distances(X, X[centers])
    np.testing.assert_array_equal(model.memberships_.toarray(), d <= t1)
    np.testing.assert_array_equal(model.labels_, d.argmin(axis=1))
    assert model.memberships_[np.arange(len(X)), model.labels_].all()


@quick
@given(lattices, radii, st.integers(-(2**20), 2**20), st.sampled_from([0.25, 1.0, 4096.0]))
def test_origin_and_unit_do_not_matter(X, t, shift, unit):
    """Exact in binary: nothing may change, not even pairs at exactly t2."""
    first = fit(X, *t)
    second = fit((X + shift) * unit, t[0] * unit, t[1] * unit)
    np.testing.assert_array_equal(first.cluster_centers_indices_, second.cluster_centers_indices_)
    np.testing.assert_array_equal(first.memberships_.indices, second.memberships_.indices)


@pytest.mark.parametrize("name", ["clusters", "pendigits"])
def test_a_random_order_is_a_sequential_run_in_that_order(name, device):
    X = load_points(name)[0]
    t1, t2 = (2.0, 1.0) if name == "clusters" else (100.0, 60.0)
    for seed in (0, 1, 2**31 - 2):
        order = np.argsort(priorities(np.arange(len(X)), seed), kind="stable")
        assert len(np.unique(order)) == len(X)
        model = fit(X, t1, t2, device, order="random", random_state=seed)
        reference.check_equal(model, reference.canopy(X, t1, t2, order=order))
        assert model.cluster_centers_indices_[0] == order[0]


def test_a_random_order_spares_steps_of_sorted_rows(device):
    X = np.sort(np.random.default_rng(0).random(60_000))[:, None]
    in_order = fit(X, 2e-3, 1e-3, device)
    at_random = fit(X, 2e-3, 1e-3, device, order="random", random_state=0)
    assert at_random.n_steps_ < in_order.n_steps_


def test_random_orders_prefer_no_row(device):
    """Of two rows within t2 either is picked about as often."""
    X = np.array([[0.0], [0.5], [10.0]])
    firsts = [
        0 in fit(X, 2.0, 1.0, device, order="random", random_state=seed).cluster_centers_indices_ for seed in range(200)
    ]
    assert 70 <= sum(firsts) <= 130


def test_attributes_and_result(device, tmp_path):
    X = load_points("clusters")[0]
    model = fit(X, 2.0, 1.0, device)
    assert model.t1_ == 2.0 and model.t2_ == 1.0 and model.n_steps_ >= 1
    np.testing.assert_allclose(model.cluster_centers_, X[model.cluster_centers_indices_], rtol=1e-6)
    assert model.labels_.dtype == np.int32 and model.cluster_centers_indices_.dtype == np.int64
    model.result_.save(tmp_path / "out")
    loaded = load_result(tmp_path / "out")
    assert loaded.method == "canopy"
    np.testing.assert_array_equal(loaded.arrays["centers"], model.cluster_centers_indices_)
    saved = loaded.arrays["memberships"]
    assert (saved != model.memberships_).nnz == 0
    assert (tmp_path / "out" / "memberships.npz").exists()
    assert loaded.scores["n_clusters"] == model.n_canopies_
    assert loaded.scores["memberships_per_row"] == pytest.approx(model.memberships_.nnz / len(X))


@pytest.mark.quick("*-clusters")
@pytest.mark.parametrize("name", ["clusters", "overlap1", "pendigits", "wide064"])
def test_suggested_thresholds_are_of_use(name, device):
    """Neither one canopy nor one for each row or two; the same for the same seed."""
    X = load_points(name)[0]
    suggested = Canopy(device=device, client=None, random_state=0).suggest_thresholds(X)
    assert suggested.t1 > suggested.t2 > 0
    assert suggested == Canopy(device=device, client=None, random_state=0).suggest_thresholds(X)
    model = Canopy(device=device, client=None, random_state=0).fit(X)
    assert (model.t1_, model.t2_) == tuple(suggested)
    assert 2 <= model.n_canopies_ <= len(X) / 4
    reference.check_equal(model, reference.canopy(X, *suggested))


@pytest.mark.parametrize(
    ("t1", "t2", "says"),
    [
        (1.0, 1.0, r"t1=1(\.0)? .*t2=1(\.0)?"),
        (1.0, 2.0, r"t1=1(\.0)? .*t2=2(\.0)?"),
        (1.0, 0.0, r"t2=0(\.0)? "),
        (1.0, -1.0, r"t2=-1(\.0)? "),
        (float("nan"), 1.0, "t1=nan"),
        (float("inf"), 1.0, "t1=inf"),
        (2.0, float("nan"), "t2=nan"),
        ("far", 1.0, "t1='far'"),
        (2.0, None, "t2"),
        (None, 2.0, "t1"),
    ],
)
def test_thresholds(t1, t2, says, rng):
    with pytest.raises(InputError, match=says):
        fit(rng.normal(size=(50, 2)), t1, t2)


@pytest.mark.parametrize(
    ("parameters", "says"),
    [
        ({"order": "sorted"}, "order='sorted'.*'index'"),
        ({"metric": "sqeuclidean"}, "metric='sqeuclidean'"),
        ({"dtype": "int8"}, "dtype='int8'"),
    ],
)
def test_other_parameters(parameters, says, rng):
    with pytest.raises(InputError, match=says):
        fit(rng.normal(size=(50, 2)), 2.0, 1.0, **parameters)


def test_rows_that_are_not_finite(rng):
    X = rng.normal(size=(50, 2))
    X[7, 1] = np.inf
    with pytest.raises(InputError, match="row 7"):
        fit(X, 2.0, 1.0)


def test_only_duplicates_have_no_thresholds():
    X = np.full((100, 3), 2.5)
    with pytest.raises(InputError, match=r"duplicate|equal|coincide"):
        Canopy(device="cpu", client=None).fit(X)
    assert fit(X, 2.0, 1.0).n_canopies_ == 1


def test_settings_of_no_use_are_said(device, rng):
    X = rng.normal(size=(400, 2))
    for t1, t2, says in ((1e-6, 1e-7, "400 of 400 rows are centres.*raise"), (1e3, 1e2, "a single canopy.*lower")):
        (text,) = fit(X, t1, t2, device).result_.warnings
        assert re.search(says, text)
    (text,) = fit(X, 50.0, 0.5, device).result_.warnings
    assert re.search(r"^each of the \d+ canopies holds all 400 rows: .* t1=50 .*; lower t1\.$", text)
    assert fit(X, 1.0, 0.5, device).result_.warnings == []


def test_a_number_of_canopies_that_says_nothing_is_said_to(device, rng):
    """Suggested thresholds cover noise by some canopies, too; given ones mean what they mean."""
    X = rng.uniform(size=(500, 2))
    model = Canopy(client=None, device=device)
    with pytest.warns(
        ClusteringWarning, match=r"number of canopies, \d+, follows from the suggested .* give t1 and t2"
    ):
        model.fit(X)
    assert model.result_.scores["rows_in_one"] < 0.05
    given = Canopy(model.t1_, model.t2_, client=None, device=device).fit(X)
    assert not given.result_.warnings and given.n_canopies_ == model.n_canopies_
    apart = load_points("rings")[0]
    model.fit(apart)
    assert not model.result_.warnings and model.result_.scores["rows_in_one"] > 0.1


@pytest.mark.parametrize("case", ["few", "many"])
def test_a_number_of_suggested_canopies_that_is_unusual_is_said(case, device, rng):
    """Of few rows, and of counts that are mostly zero; given thresholds mean what they mean."""
    X = np.arange(20.0)[:, None] if case == "few" else rng.poisson(0.02, (1000, 100)).astype(float)
    model = Canopy(client=None, device=device)
    with pytest.warns(ClusteringWarning, match=rf"canopies of the suggested .* are {case}, .* 10 to 200: give"):
        model.fit(X)
    assert not 10 <= model.n_canopies_ <= 200
    given = Canopy(model.t1_, model.t2_, client=None, device=device).fit(X)
    assert not given.result_.warnings and given.n_canopies_ == model.n_canopies_


def test_rounding_that_matters_is_said():
    """Rows of two groups that lie far apart: float32 has no digits left for distances within a group."""
    X = np.random.default_rng(0).uniform(0, 9, (200, 2))
    for far, told in ((0.0, False), (1e3, False), (1e8, True)):
        for rows in (np.r_[X, X + far], np.round(np.r_[X, X + far]) % 2**20):
            model = Canopy(6.0, 3.0, dtype="float32", client=None).fit(rows)
            lossy = told and (rows.astype("float32") != rows).any()
            assert any("rounding may change" in text for text in model.result_.warnings) == lossy
        assert not Canopy(6.0, 3.0, dtype="float64", client=None).fit(np.r_[X, X + far]).result_.warnings
