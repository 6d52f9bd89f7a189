"""Clusters separated by low density: against plain loops, on shapes whose truth is known, and on any ranks."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.datasets import make_circles, make_moons
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, load_result, plots
from mgclust.algorithms import base
from mgclust.algorithms.density_peaks.cutoff_distance import separation
from mgclust.algorithms.density_peaks.cutoff_distance.separation import (
    Separated,
    best_number,
    clusters_of,
    full_peaks,
    heads_of,
    prominences,
)
from mgclust.algorithms.density_peaks.cutoff_distance.spanning_tree import SpanningTree, tree_of
from mgclust.base.errors import InputError

pytestmark = [
    pytest.mark.filterwarnings("ignore::mgclust.base.errors.ClusteringWarning"),
    pytest.mark.xdist_group("workers"),
]


def fit(X, device="cpu", **parameters):
    return DensityPeaks(device=device, client=None, **parameters).fit(X)


def half_rings():
    """Two half rings that reach into each other; by rho * delta six clusters."""
    return make_moons(2000, noise=0.06, random_state=0)


def unequal(seed=0):
    """Three dense clusters and five sparse ones, of a twentieth of the rows each."""
    rng = np.random.default_rng(seed)
    centers = [(150, 350), (180, 400), (210, 350), (390, 310), (390, 400), (440, 350), (490, 310), (490, 400)]
    y = np.repeat(np.arange(8), [2000] * 3 + [100] * 5)
    return np.array(centers)[y] + np.where(y < 3, 5, 8)[:, None] * rng.standard_normal((len(y), 2)), y


def rings():
    """A ring in a ring; by rho * delta three clusters."""
    return make_circles(1500, noise=0.05, factor=0.5, random_state=0)


def merged(rho, near):
    """Peaks, the density where each meets a denser one, and that one: row by row, by decreasing density."""
    m = len(rho)
    joined = [set() for _ in range(m)]
    for row, others in enumerate(near.tolist()):
        for other in others:
            joined[row].add(other)
            joined[other].add(row)
    cluster, saddle, into = {}, {}, {}
    order = sorted(range(m), key=lambda row: (-rho[row], row))
    place = {row: at for at, row in enumerate(order)}

    def peak_of(row):
        while cluster[row] != row:
            row = cluster[row]
        return row

    for row in order:
        met = sorted({peak_of(other) for other in joined[row] if other in cluster}, key=place.get)
        cluster[row] = met[0] if met else row
        for other in met[1:]:
            cluster[other], saddle[other], into[other] = met[0], rho[row], met[0]
    return {row: (saddle.get(row, 0.0), into.get(row)) for row in range(m) if saddle.get(row) or cluster[row] == row}


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_peaks_and_saddles_equal_plain_loops(seed):
    rng = np.random.default_rng(seed)
    X = rng.random((300, 2))
    d = np.linalg.norm(X[:, None] - X, axis=2)
    rho = np.exp(-((d / 0.1) ** 2)).sum(axis=1) - 1
    np.fill_diagonal(d, np.inf)
    near = np.argsort(d, axis=1)[:, :6]
    tree = tree_of(rho, near)
    expected = merged(rho, near)
    found = {}
    for at, row in enumerate(tree.rows.tolist()):
        if tree.saddle[at] < tree.rho[at]:  # others are no peaks of the graph
            found[row] = (tree.saddle[at], None if tree.into[at] < 0 else int(tree.rows[tree.into[at]]))
    assert found.keys() == {row for row, (saddle, _) in expected.items() if saddle < rho[row]} and len(found) > 5
    for row, (saddle, into) in found.items():
        assert saddle == expected[row][0] and into == expected[row][1]
    assert (tree.rho == rho[tree.rows]).all() and (np.diff(tree.rho) <= 0).all()


def test_the_number_with_the_largest_ratio_at_two_fractions():
    falls = np.array([30.0, 25.0, 22.0, 1.0, 0.9])
    assert best_number([falls, falls]) == (0, 3, pytest.approx(20.0))  # a Z above 20 is as sure as one of 20
    weaker = np.array([9.0, 8.0, 3.0, 2.4])
    assert best_number([weaker, falls])[:2] == (1, 3)
    one, other = np.array([30.0, 2.8, 1.0]), np.array([30.0, 2.4, 1.0])  # a Z above noise at one fraction is enough
    assert best_number([one, other])[1] == best_number([other, one])[1] == 2 and best_number([other, other]) is None
    assert best_number([np.array([30.0, 2.3, 2.2, 0.4]), np.array([20.0, 2.2, 0.5])]) is None  # as noise has
    assert best_number([np.array([30.0]), np.array([20.0])]) is None
    assert best_number([np.array([5.0, 4.0, 3.2, 2.8, 2.4]), np.array([4.0, 3.5, 3.0, 2.7, 2.3])]) is None


def test_prominence_is_twice_the_root_in_a_plane():
    own = np.arange(2)
    tree = SpanningTree(own, np.array([25.0, 9.0]), np.array([0.0, 4.0]), np.array([-1, 0]), np.zeros(2), own)
    np.testing.assert_allclose(prominences(tree, 2.0), [10.0, 2.0])
    np.testing.assert_allclose(prominences(tree, 50.0), np.sqrt(2) * np.array([10.0, 2.0]))


@pytest.mark.parametrize("make", [half_rings, unequal, rings], ids=lambda make: make.__name__)
def test_shapes_and_unequal_clusters(make, device):
    X, y = make()
    model = fit(X, device, random_state=0)
    assert model.n_clusters_ == y.max() + 1 and adjusted_rand_score(y, model.labels_) > 0.99
    told = model.dc_choice_["separated"]
    assert told["n_clusters"] == model.n_clusters_ and told["ratio"] > 1.5
    assert told["dc_fraction"] == model.dc_fraction_ == model.dc_choice_["dc_fraction"]
    assert adjusted_rand_score(y, fit(X, device, dc_fraction=0.02).labels_) < 0.9
    again = fit(X, device, dc_fraction=model.dc_fraction_)
    for name in ("rho_", "delta_", "nearest_higher_"):
        np.testing.assert_array_equal(getattr(model, name), getattr(again, name))


@pytest.mark.parametrize("make", [half_rings, unequal], ids=lambda make: make.__name__)
def test_centers_are_the_densest_rows_of_their_clusters(make):
    X, _ = make()
    model = fit(X, random_state=0)
    centers, labels = model.cluster_centers_indices_, model.labels_
    np.testing.assert_array_equal(labels[centers], np.arange(model.n_clusters_))
    assert int(model.rho_.argmax()) in centers
    gamma = (model.rho_ * model.delta_)[centers]
    assert (np.diff(gamma) <= 0).all()
    np.testing.assert_array_equal(model.predict(X[::50]), labels[::50])
    followed = np.array([row for row in range(len(X)) if labels[row] == labels[model.nearest_higher_[row]]])
    assert len(followed) > 0.98 * len(X)  # the others are peaks


def test_a_cut_link_begins_a_cluster_or_a_part_of_one():
    """Rows along a line: three peaks, of which the last two are one cluster; followed up to the peak of all rows."""
    rho = np.array([5.0, 9.0, 4.0, 3.0, 6.0, 2.0, 1.0, 7.0, 3.0])
    nearest = np.array([1, -1, 1, 4, 1, 4, 7, 4, 7])
    nearest[4], nearest[7] = 7, 1
    best = np.array([1.0, 99.0, 1, 1, 9, 1, 1, 36, 1])

    def clusters(found):
        peaks = full_peaks(found, best, nearest)
        return clusters_of(
            np, peaks, rho, rho * np.sqrt(best), nearest, heads_of(peaks, found.n_clusters, None, nearest)
        )

    found = Separated([1, 8, 3], [-1, 0, 1], [9.0, 5.0, 1.0], [4.0, 4.0, 4.0], 2)  # 8 and 3 lead to the peaks 7 and 4
    centers, labels = clusters(found)
    assert centers.tolist() == [1, 7] and labels.tolist() == [0, 0, 0, 1, 1, 1, 1, 1, 1]
    lost = Separated([8, 7], [-1, 0], [9.0, 5.0], [4.0, 4.0], 1)  # both lead to 7; the densest row is of the first
    centers, labels = clusters(lost)
    assert centers.tolist() == [1] and not labels.any()
    with pytest.raises(InputError, match="n_clusters=2 should be at most 1, the number of peaks"):
        clusters(lost._replace(n_clusters=2))


def test_a_clear_number_stays_unless_more_are_separated(monkeypatch):
    X, y = unequal()
    assert fit(X, random_state=0).n_clusters_ == 8
    monkeypatch.setattr(separation, "SURE_RATIO", 99.0)
    model = fit(X, random_state=0)
    assert model.n_clusters_ == 3 and model.dc_choice_["separated"] is None
    assert adjusted_rand_score(y, model.labels_) < 0.9


def test_equal_rows_are_one_in_the_graph():
    X, y = half_rings()
    twice = np.concatenate([X, X[::10], np.repeat(X[:1], 20, axis=0)])
    model = fit(twice)
    assert model.dc_choice_["separated"]["n_clusters"] == 2
    assert adjusted_rand_score(y, model.labels_[: len(X)]) == 1


@pytest.mark.parametrize(
    ("draw", "shape"), [("random", (1000, 2)), ("standard_normal", (1000, 2)), ("random", (400, 1))]
)
def test_noise_has_none(draw, shape):
    for seed in range(10):
        model = fit(getattr(np.random.default_rng(seed), draw)(shape))
        assert model.dc_choice_["separated"] is None and model.result_.warnings


def test_it_is_in_the_result(tmp_path):
    X, _ = half_rings()
    model = fit(X)
    model.result_.save(tmp_path / "out")
    result = load_result(tmp_path / "out")
    assert json.loads(json.dumps(result.diagnostics["dc_choice"]))["separated"] == model.dc_choice_["separated"]
    lines = dict(model.presentation.summary(result))
    assert lines["separated"].startswith("by low density, ")
    assert not result.warnings  # they are clear, though rho * delta does not show them
    assert result.diagnostics["noise_drop"] > result.scores["gamma_drop"]
    heights, k = np.sort(result.arrays["separated_prominence"])[::-1], model.n_clusters_
    assert heights[k - 1] > 4.5 > 2.5 * heights[k] and (result.arrays["separated_saddle"][:k] <= 1).all()
    assert plots.prominence(result).get_title() == "Prominence of peaks: 2 clusters"
    again = DensityPeaks.from_result(result).select_centers(2)
    assert again.assignment_ == model.assignment_ == "separated"
    np.testing.assert_array_equal(again.labels_, model.labels_)


def test_any_ranks_find_the_same(ranks, monkeypatch):
    X, _ = unequal()
    X = X[np.random.default_rng(0).permutation(len(X))].astype("float32")
    one = fit(X, random_state=0)
    monkeypatch.setattr(base, "connect", lambda **_: ranks(3))
    several = fit(X, random_state=0)
    assert one.dc_choice_ == several.dc_choice_ and one.n_clusters_ == 8
    np.testing.assert_array_equal(one.labels_, several.labels_)
    np.testing.assert_array_equal(one.cluster_centers_indices_, several.cluster_centers_indices_)


def test_a_cluster_that_meets_no_other_counts_by_its_rows():
    """Sparse ones of 100 rows beside dense ones of 2,000: few rows lie within dc of theirs, as in noise."""
    rng = np.random.default_rng(0)
    centers = np.array([(150, 350), (180, 400), (210, 350), (390, 310), (390, 400), (470, 350), (550, 310), (550, 400)])
    y = np.repeat(np.arange(8), [2000] * 3 + [100] * 5)
    model = fit(centers[y] + np.where(y < 3, 2, 12)[:, None] * rng.standard_normal((len(y), 2)), random_state=1)
    assert model.n_clusters_ == 8 and adjusted_rand_score(y, model.labels_) > 0.99


def bridged():
    """Two discs of unequal size and equal density, and a bridge one row wide."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (2600, 2))
    X = X[(X**2).sum(axis=1) < 1]
    small = X[(X**2).sum(axis=1) < 0.3] + [1.9, 0.0]
    bridge = np.column_stack([np.linspace(1.0, 1.4, 9), np.zeros(9)])
    return np.concatenate([X, small, bridge]), np.repeat([0, 1], [len(X), len(small)])


def test_a_neck_separates_what_is_behind_it():
    X, y = bridged()
    d = np.linalg.norm(X[:, None] - X, axis=2)
    rho = np.exp(-((d / 0.2) ** 2)).sum(axis=1) - 1
    np.fill_diagonal(d, np.inf)
    near = np.argsort(d, axis=1)[:, :16]
    tree = tree_of(rho, near)
    apart = tree.apart[tree.into >= 0]
    assert abs(apart.max() - (y == 1).sum()) < 12 and (apart > 0).sum() == 1
    assert (tree_of(rho, near[:, :12]).apart[1:] == 0).all()  # of curves chance makes such necks there
    model = fit(X, random_state=0)
    assert model.n_clusters_ == 2 and adjusted_rand_score(y, model.labels_[: len(y)]) > 0.97


@pytest.mark.parametrize("make", [half_rings, unequal, rings], ids=lambda make: make.__name__)
def test_copies_of_all_rows_and_equal_weights_say_nothing(make):
    X, y = make()
    once = fit(X, random_state=0)
    for weight in (0.5, 3.0):
        model = DensityPeaks(device="cpu", client=None, random_state=0).fit(X, sample_weight=np.full(len(X), weight))
        told = model.dc_choice_["separated"]
        assert told == once.dc_choice_["separated"] | {"ratio": pytest.approx(told["ratio"], rel=0.05)}
        assert adjusted_rand_score(once.labels_, model.labels_) == 1
    thrice = fit(np.repeat(X, 3, axis=0), random_state=0)
    assert thrice.n_clusters_ == once.n_clusters_ and adjusted_rand_score(np.repeat(y, 3), thrice.labels_) > 0.99


def test_all_rows_that_show_another_number_have_the_separated_clusters():
    for seed in range(10):
        X, y = make_moons(4000, noise=0.04, random_state=seed)
        model = fit(X, random_state=0)
        assert model.n_clusters_ == 2 and adjusted_rand_score(y, model.labels_) > 0.9


def test_the_report_has_them_among_the_evidence():
    for X in (half_rings()[0], half_rings()[0][:300]):
        model = fit(X, random_state=0)
        found = model.dc_choice_["separated"]
        table = model.presentation.tables(model.result_)[-1]
        assert table.chosen == 0 and table.rows[0][:2] == [found["n_clusters"], found["dc_fraction"]]
        assert table.rows[0][2].startswith("separated by low density, ")
