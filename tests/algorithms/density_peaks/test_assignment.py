"""``assignment=``: what is fitted can be asked for again; the order of rows, copies and weights decide nothing."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import make_blobs, make_circles, make_moons
from sklearn.metrics import adjusted_rand_score, pairwise_distances

from mgclust import DensityPeaks, load_result
from mgclust.algorithms import base
from mgclust.base.errors import InputError
from support.points import load_points

pytestmark = [
    pytest.mark.filterwarnings("ignore::mgclust.base.errors.ClusteringWarning"),
    pytest.mark.xdist_group("workers"),
]


def unequal():
    return make_blobs([1500, 500, 60], 2, centers=[[0, 0], [9, 0], [0, 9]], cluster_std=[1, 1, 0.4], random_state=0)[0]


SETS = {
    "half rings": lambda: make_moons(900, noise=0.06, random_state=0)[0],
    "rings": lambda: make_circles(600, noise=0.05, factor=0.5, random_state=0)[0],
    "unequal": unequal,
    "overlapping": lambda: make_blobs(900, 5, centers=12, cluster_std=2.0, random_state=1)[0],
    "sampled": lambda: make_moons(4000, noise=0.06, random_state=0)[0],
    "duplicates": lambda: np.random.default_rng(0).integers(0, 12, (700, 2)).astype(float),
    "gaussian rings": lambda: load_points("rings")[0],
}


def fit(X, weights=None, device="cpu", **parameters):
    return DensityPeaks(device=device, client=None, **parameters).fit(X, sample_weight=weights)


def distances(X):
    D = pairwise_distances(X)
    np.fill_diagonal(D, 0)
    return (D + D.T) / 2


@pytest.mark.slow
@pytest.mark.parametrize("how", ["rows", "weights", "precomputed"])
@pytest.mark.parametrize("name", SETS)
@pytest.mark.quick("*-rings-*", "*-duplicates-*", "cpu-sampled-rows")
def test_fitted_parameters_give_the_same_labels(name, how, tmp_path, device):
    X = SETS[name]()
    if how == "precomputed":
        X = distances(X[:1000])
    weights = np.random.default_rng(1).integers(1, 3, len(X)) if how == "weights" else None
    options = {"metric": "precomputed"} if how == "precomputed" else {}
    model = fit(X, weights, device, **options)
    for cut in ({"dc": model.dc_}, {"dc_fraction": model.dc_fraction_}):
        if "dc_fraction" in cut and model.dc_choice_["different"]:
            continue  # its fraction is of other pairs
        again = fit(X, weights, device, n_clusters=model.n_clusters_, assignment=model.assignment_, **cut, **options)
        assert again.assignment_ == model.assignment_
        np.testing.assert_array_equal(again.labels_, model.labels_)
    model.result_.save(tmp_path / "out")
    labels = model.labels_
    for other in (model, DensityPeaks.from_result(load_result(tmp_path / "out"))):
        assert other.select_centers(1).n_clusters_ == 1
        np.testing.assert_array_equal(other.select_centers(len(set(labels.tolist()))).labels_, labels)


@pytest.mark.parametrize("name", ["half rings", "unequal", "overlapping", "gaussian rings"])
def test_the_same_distances_have_the_same_number(name):
    X = SETS[name]()
    assert fit(distances(X), metric="precomputed").n_clusters_ == fit(X).n_clusters_


def test_the_order_of_rows_decides_nothing():
    """The sample of 6,000 overlapping rows is another one in another order if row numbers choose it."""
    rng = np.random.default_rng(0)
    X = 6 * rng.normal(size=(30, 2))[rng.integers(0, 30, 6000)] + rng.normal(size=(6000, 2))
    first = fit(X)
    for order in (np.arange(6000)[::-1], np.argsort(X[:, 0]), rng.permutation(6000)):
        model = fit(X[order])
        assert model.dc_choice_ == first.dc_choice_ and model.n_clusters_ == first.n_clusters_
        assert adjusted_rand_score(first.labels_[order], model.labels_) == 1
    assert fit(X, random_state=1).dc_choice_ != first.dc_choice_


@pytest.mark.slow
@pytest.mark.parametrize("assignment", ["auto", "separated"])
@pytest.mark.parametrize("name", ["half rings", "unequal", "overlapping", "sampled"])
@pytest.mark.quick("half rings-*")
def test_whole_weights_are_repeated_rows(name, assignment):
    X = SETS[name]().astype("float32")
    rng = np.random.default_rng(2)
    one, some = np.ones(len(X)), rng.integers(0, 4, len(X)).astype(float)
    one[7] = 2
    for weights in (one, some):
        counts = weights.astype(int)
        weighted = fit(X, weights, assignment=assignment)
        repeated = fit(np.repeat(X, counts, axis=0), assignment=assignment)
        assert (weighted.dc_, weighted.n_clusters_) == (repeated.dc_, repeated.n_clusters_)
        np.testing.assert_array_equal(np.repeat(weighted.labels_, counts), repeated.labels_)
        np.testing.assert_array_equal(weighted.labels_, repeated.predict(X))
        np.testing.assert_array_equal(weighted.predict(X), weighted.labels_)


@pytest.mark.parametrize(
    "options", [{}, {"algorithm": "grid"}, {"metric": "manhattan"}, {"metric": "precomputed"}], ids=str
)
def test_dc_is_that_of_repeated_rows_bit_for_bit(options, device):
    X = np.random.default_rng(0).normal(size=(500, 2)).astype("float32")
    counts = np.random.default_rng(1).integers(0, 5, 500)
    rows = distances(X) if "precomputed" in options.values() else X
    which = np.repeat(np.arange(500), counts)
    for fraction in (0.02, 0.3, 1.0):
        one = fit(rows, counts, device, n_clusters=2, dc_fraction=fraction, **options)
        other = rows[np.ix_(which, which)] if len(rows[0]) == 500 else rows[which]
        assert one.dc_ == fit(other, None, device, n_clusters=2, dc_fraction=fraction, **options).dc_
    halves = fit(rows, counts / 1024, device, n_clusters=2, dc_fraction=0.3, **options)
    assert halves.dc_ == fit(rows[:, :500], counts / 512, device, n_clusters=2, dc_fraction=0.3, **options).dc_


@pytest.mark.slow
def test_any_ranks_find_the_same(ranks, monkeypatch):
    X = SETS["sampled"]()
    weights = np.random.default_rng(3).integers(0, 3, len(X)) * 0.7
    cases = [(X, weights, {"assignment": "separated", "n_clusters": 3})]
    cases += [(X, weights, {}), (distances(X[:700]), weights[:700], {"metric": "precomputed"})]
    alone = [fit(rows, w, **options) for rows, w, options in cases]
    monkeypatch.setattr(base, "connect", lambda **_: ranks(3))
    for one, (rows, w, options) in zip(alone, cases, strict=True):
        several = fit(rows, w, **options)
        assert (one.dc_, one.assignment_, one.dc_choice_) == (several.dc_, several.assignment_, several.dc_choice_)
        for name in ("labels_", "rho_", "delta_", "nearest_higher_"):
            np.testing.assert_array_equal(getattr(one, name), getattr(several, name))


@pytest.mark.parametrize("seed", range(4))
def test_small_groups_are_not_lost_in_silence(seed):
    rng = np.random.default_rng(seed)
    X = np.r_[rng.normal(0, 1, (2000, 2)), rng.normal(6, 0.3, (60, 2))]
    y = np.repeat([0, 1], [2000, 60])
    assert adjusted_rand_score(y, fit(X).labels_) == 1
    tested = fit(X, density="knn", k="adaptive", significance=1.65)
    assert tested.n_clusters_ == 1 and "1 group (60 rows in all) lie" in " ".join(tested.result_.warnings)
    assert not any("lie far" in text for text in fit(X[:2000]).result_.warnings)


def test_copies_do_not_make_a_lost_group():
    X = make_blobs(200, centers=4, cluster_std=0.6, random_state=1)[0]
    for copies in (1, 4):
        assert not any("lie far" in text for text in fit(np.repeat(X, copies, 0)).result_.warnings)


def test_a_number_that_cuts_across_separated_clusters_is_warned_of():
    for make in (make_moons, make_circles):
        options = {"factor": 0.5} if make is make_circles else {}
        X, y = make(1000, noise=0.05, random_state=1, **options)
        model = fit(X, n_clusters=2)
        assert model.assignment_ == "denser" and adjusted_rand_score(y, model.labels_) < 0.5
        assert "clusters for n_clusters=2 cut across 2 clusters" in model.result_.warnings[0]
        model = fit(X, n_clusters=2, assignment="separated")
        assert adjusted_rand_score(y, model.labels_) > 0.99 and not model.result_.warnings
        weights = np.random.default_rng(1).integers(1, 4, 1000).astype(float)
        assert "cut across 2 clusters" in fit(X, weights, n_clusters=2).result_.warnings[0]
    X = make_moons(300, noise=0.1, random_state=4)[0]
    assert "cut across 2 clusters" in fit(X, n_clusters=2).result_.warnings[0]
    rng = np.random.default_rng(3)
    radius, angle = rng.integers(1, 4, 1500), rng.uniform(0, 2 * np.pi, 1500)
    rings = 2 * radius[:, None] * np.c_[np.cos(angle), np.sin(angle)] + rng.normal(0, 0.08, (1500, 2))
    assert "cut across 3 clusters" in fit(rings, n_clusters=3).result_.warnings[0]
    for std in (1.0, 3.0):
        X = make_blobs(1000, centers=3, cluster_std=std, random_state=4)[0]
        assert not any("cut across" in text for k in (2, 3, 8) for text in fit(X, n_clusters=k).result_.warnings)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"density": "cutoff"}, "assignment='separated' needs density='gaussian'"),
        ({"n_clusters": 300}, "n_clusters=300 should be at most [0-9]+, the number of peaks"),
    ],
)
def test_what_is_refused(parameters, message):
    with pytest.raises(InputError, match=message):
        fit(SETS["rings"](), assignment="separated", **parameters)
    with pytest.raises(InputError, match="needs more than 6 distinct rows, and there are 4"):
        fit(np.eye(4), assignment="separated")
