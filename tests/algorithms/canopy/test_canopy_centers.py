"""Canopies of few rows: the predicate, the order, thresholds, refusals; larger runs are in test_canopy.py."""

from __future__ import annotations

import re

import numpy as np
import pytest
from sklearn.base import clone

from mgclust import Canopy
from mgclust.algorithms.canopy import centers as canopy_centers
from mgclust.algorithms.canopy import members as canopy_members
from mgclust.algorithms.canopy.centers import Candidates, greedy_centers, priorities, threshold_of
from mgclust.base.errors import InputError, InsufficientMemoryError
from mgclust.kernels import load
from mgclust.kernels.pairs.metrics import METRICS

cpu = load("cpu")

REALS = (np.float32, np.float64)


def fit(X, *arguments, **parameters) -> Canopy:
    return Canopy(*arguments, device="cpu", client=None, **parameters).fit(X)


def sequential(x, threshold, norm="l2"):
    """The definition, a candidate at a time, with the kernels' own distances."""
    alive, picked = np.ones(len(x), bool), []
    while alive.any():
        picked.append(int(alive.argmax()))
        alive &= ~(cpu.pairs.reduced_distances(x[picked[-1:]], x, norm=norm)[0] < threshold)
    return picked


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("name", ["euclidean", "manhattan", "cosine"])
def test_the_threshold_says_what_the_distance_says(name, dtype):
    measure, real = METRICS[name], np.dtype(dtype).type
    for t in np.concatenate([np.random.default_rng(0).random(200) * 3, [1e-12, 0.1, 0.3, 1.0, 2.0, 3.0, 1e12]]):
        bound = real(threshold_of(measure, float(t), dtype))
        below = np.nextafter(bound, real(0))
        distance = [s * real(measure.factor) if measure.squared else np.sqrt(s) for s in (below, bound)]
        assert distance[0] <= real(t) < distance[1], t


@pytest.mark.parametrize("dtype", REALS)
def test_a_threshold_beyond_all_numbers(dtype):
    assert threshold_of(METRICS["euclidean"], 1e300, dtype) == np.inf
    assert threshold_of(METRICS["cosine"], 1e308, dtype) == np.inf


def test_priorities_are_a_permutation_that_the_seed_decides():
    rows = np.arange(100_000)
    first, second = priorities(rows, 0), priorities(rows, 1)
    assert len(np.unique(first)) == len(rows) and first.dtype == np.int64
    assert (priorities(rows[500:], 1) == second[500:]).all()
    ranks = np.argsort(np.argsort(first)) / len(rows)
    assert abs(np.corrcoef(ranks, rows)[0, 1]) < 0.01
    assert abs(np.corrcoef(ranks, np.argsort(np.argsort(second)))[0, 1]) < 0.01


def test_distances_of_exactly_t_are_within():
    X = np.arange(10, dtype=float)[:, None]
    model = fit(X, 3.0, 1.0)
    assert model.cluster_centers_indices_.tolist() == [0, 2, 4, 6, 8]
    assert model.memberships_.toarray()[3].nonzero()[0].tolist() == [0, 1, 2, 3]
    assert model.labels_.tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]  # row 1 is as near to row 0 as to row 2


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("far", [0.0, 1e6])
def test_ties_stay_ties_far_from_the_origin(dtype, far):
    X = np.random.default_rng(0).integers(0, 12, (400, 2)) + far
    model = fit(X, 5.0, 3.0, dtype=dtype)
    assert model.cluster_centers_indices_.tolist() == sequential(X, threshold_of(METRICS["euclidean"], 3.0, "float64"))


@pytest.mark.parametrize("order", ["index", "random"])
@pytest.mark.parametrize("block", [1, 7, 4096])
def test_centers_do_not_depend_on_the_size_of_a_step(block, order, monkeypatch):
    monkeypatch.setattr(canopy_centers, "STEP", block)
    X = np.random.default_rng(1).normal(size=(800, 3))
    model = fit(X, 1.2, 0.6, order=order, random_state=5)
    ranked = np.argsort(priorities(np.arange(800), 5)) if order == "random" else np.arange(800)
    picked = sequential(X[ranked], threshold_of(METRICS["euclidean"], 0.6, "float64"))
    assert model.cluster_centers_indices_.tolist() == ranked[picked].tolist()
    assert model.n_steps_ <= -(-800 // block)


def test_memberships_are_all_rows_within_t1(monkeypatch):
    X = np.random.default_rng(2).normal(size=(900, 4))
    expected = fit(X, 1.5, 1.0)
    distances = np.sqrt(cpu.pairs.reduced_distances(X, X[expected.cluster_centers_indices_], norm="l2"))
    assert (expected.memberships_.toarray() == (distances <= 1.5)).all()
    assert (expected.labels_ == distances.argmin(axis=1)).all()
    assert expected.memberships_.has_sorted_indices and expected.memberships_.dtype == bool
    monkeypatch.setattr(canopy_members, "PIECE", 100)
    assert (fit(X, 1.5, 1.0).memberships_ != expected.memberships_).nnz == 0


def test_rows_that_are_streamed_give_the_same():
    X = np.random.default_rng(3).normal(size=(12000, 40))
    for order in ("index", "random"):
        parameters = {"t1": 9.0, "t2": 8.5, "order": order, "random_state": 1}
        whole, streamed = fit(X, **parameters), fit(X, **parameters, memory_limit="7.3 MiB")
        assert (whole.cluster_centers_indices_ == streamed.cluster_centers_indices_).all() and whole.n_canopies_ > 10
        assert (whole.memberships_ != streamed.memberships_).nnz == 0
        assert (whole.labels_ == streamed.labels_).all()


def test_candidates_in_pieces_are_those_in_one():
    x = np.random.default_rng(4).random((500, 2))
    read = lambda start, stop: x[start:stop]  # noqa: E731
    one = Candidates(cpu, read, [(0, 500)], seed=3)
    pieces = Candidates(cpu, read, [(0, 200), (200, 201), (201, 500)], seed=3)
    for _ in range(3):
        assert (one.rows == pieces.rows).all() and (one.take(9) == pieces.take(9)).all()
        for candidates in (one, pieces):
            candidates.drop_near(candidates.take(5), "l2", 0.01)
    assert 0 < len(one) == len(pieces) < 500


def test_greedy_centers_are_those_of_the_method():
    X = np.random.default_rng(5).normal(size=(3000, 2))
    threshold = threshold_of(METRICS["euclidean"], 0.2, "float64")
    picked = greedy_centers(cpu, X, norm="l2", threshold=threshold)
    assert (picked == fit(X, 0.3, 0.2).cluster_centers_indices_).all()
    assert len(greedy_centers(cpu, X[:0], norm="l2", threshold=threshold)) == 0


def test_suggested_thresholds_follow_the_rule():
    X = np.random.default_rng(6).normal(size=(300, 2))
    X[200:] = X[:100]  # equal rows have no say
    model = Canopy(device="cpu", client=None)
    t1, t2 = model.suggest_thresholds(X)
    s = np.sort(cpu.pairs.reduced_distances(X, X, norm="l2").ravel())
    s = s[s > 0]
    assert (t1, t2) == tuple(np.sqrt(s[int(np.ceil(share * len(s))) - 1]) for share in (0.30, 0.15))
    fitted = model.fit(X)
    assert (fitted.t1_, fitted.t2_) == (t1, t2)
    again = fit(X, t1, t2)
    assert (fitted.labels_ == again.labels_).all()


def test_suggestions_where_few_distances_differ():
    corners = np.array([[0.0, 0], [0, 1], [1, 0], [1, 1]])
    assert Canopy(client=None).suggest_thresholds(np.repeat(corners, 9, axis=0)) == (np.sqrt(2), 1.0)
    assert Canopy(client=None).suggest_thresholds([[0.0], [7.0], [7.0]]) == (10.0, 7.0)
    with pytest.raises(InputError, match="all rows are equal"):
        Canopy(client=None).suggest_thresholds(np.ones((50, 3)))
    with pytest.raises(InputError, match="all rows are equal"):
        fit(np.ones((50, 3)))
    assert fit(np.ones((50, 3)), 2.0, 1.0).n_canopies_ == 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((1.0, 1.0), "t1=1 should be > t2=1"),
        ((1.0, 2.0), "t1=1 should be > t2=2"),
        ((1.0, 0.0), "t2=0.0 should be a finite number > 0"),
        ((1.0, -1.0), "t2=-1.0 should be a finite number > 0"),
        ((float("inf"), 1.0), "t1=inf should be a finite number > 0"),
        ((1.0, None), "t1=1 was given without t2"),
        ((None, 1.0), "t2=1 was given without t1"),
        ((1.0, 1e-200), "t2=1e-200 should be >="),
    ],
)
def test_refused_thresholds(arguments, words):
    with pytest.raises(InputError, match=words):
        fit(np.eye(3), *arguments)


def test_refused_parameters():
    with pytest.raises(InputError, match="metric='sqeuclidean' should be one of"):
        fit(np.eye(3), 2.0, 1.0, metric="sqeuclidean")
    with pytest.raises(InputError, match="order='reverse' should be one of"):
        fit(np.eye(3), 2.0, 1.0, order="reverse")
    with pytest.raises(InputError, match="n_samples=1 should be >= 2"):
        fit(np.ones((1, 3)), 2.0, 1.0)
    with pytest.raises(InputError, match="NaN or infinity"):
        fit(np.array([[0.0], [np.nan], [1.0]]), 2.0, 1.0)
    with pytest.raises(InputError, match="undefined for all-zero rows: 1 of them, the first is row 2"):
        fit([[1.0, 0], [0, 1], [0, 0]], 0.5, 0.1, metric="cosine")
    with pytest.raises(InputError, match="dtype='float64'"):
        fit([[0.0], [1e30]], 2.0, 1.0, dtype="float32")


def test_memory_is_refused_before_it_is_taken():
    X = np.random.default_rng(7).normal(size=(500, 2))
    with pytest.raises(InsufficientMemoryError, match=r"vectors of local rows .* What would fit: "):
        fit(X, 0.5, 0.2, memory_limit="70 KiB")
    with pytest.raises(InsufficientMemoryError, match="makes more than 8000 centres of 8000 rows"):
        fit(np.random.default_rng(7).normal(size=(8000, 100)), 0.5, 0.2, memory_limit="26 MB")


def test_memberships_that_do_not_fit_are_refused_before_they_are_written(monkeypatch):
    """All proposals of the message fit: more memory, fewer rows, a smaller t1."""
    monkeypatch.setattr(canopy_members, "_list", lambda *arguments: pytest.fail("memberships were written"))
    X = np.random.default_rng(7).random((20_000, 2))
    with pytest.raises(InsufficientMemoryError, match=r"each row in .* of \d+ canopies on average") as caught:
        fit(X, 9.0, 0.05, memory_limit="20 MiB")
    monkeypatch.undo()
    text = str(caught.value)
    total, more, percent = re.search(
        r"memory: (\d+) m.* ([\d.]+) MiB more free.* about (\d+)% of the rows", text
    ).groups()
    whole = fit(X, 9.0, 0.05, memory_limit=int((20 + float(more)) * 2**20))
    assert whole.memberships_.nnz == int(total)
    for model in (fit(X[: len(X) * int(percent) // 100], 9.0, 0.05, memory_limit="20 MiB"),
                  fit(X, 0.1, 0.05, memory_limit="20 MiB")):  # fmt: skip
        assert 0 < model.memberships_.nnz < int(total)


@pytest.mark.parametrize("metric", ["euclidean", "manhattan"])
def test_rows_nearer_than_the_difference_of_the_thresholds_share_a_canopy(metric):
    X = np.random.default_rng(10).random((600, 3))
    model = fit(X, 0.5, 0.3, metric=metric)
    members = model.memberships_.toarray().astype(int)
    s = cpu.pairs.reduced_distances(X, X, norm=METRICS[metric].norm)
    near = (s if metric == "manhattan" else np.sqrt(s)) < 0.2
    assert ((members @ members.T)[near] > 0).all() and near.sum() > 3000


def test_warnings_say_what_to_change():
    X = np.random.default_rng(8).normal(size=(60, 2))
    assert "raise t1 and t2" in fit(X, 2e-6, 1e-6).result_.warnings[0]
    assert "lower both" in fit(X, 200.0, 100.0).result_.warnings[0]
    assert fit(X, 2.0, 1.0).result_.warnings == []


def test_the_result_and_the_attributes_agree():
    X = np.random.default_rng(9).normal(size=(300, 3)).astype("float32")
    model = clone(Canopy(1.5, 1.0, client=None)).fit(X)
    assert (model.cluster_centers_ == X[model.cluster_centers_indices_]).all()
    arrays, scores = model.result_.arrays, model.result_.scores
    assert (arrays["centers"] == model.cluster_centers_indices_).all()
    assert arrays["memberships"] is model.memberships_
    assert scores["n_clusters"] == model.n_canopies_ == model.memberships_.shape[1]
    assert scores["memberships_per_row"] == model.memberships_.nnz / 300
    assert list(model.timings_)[-2:] == ["centers", "memberships"]
    assert (Canopy(1.5, 1.0, client=None).fit_predict(X) == model.labels_).all()


@pytest.mark.parametrize("order", ["index", "random"])
def test_centers_that_mark_rows_in_boxes_are_the_same(order, monkeypatch):
    X = np.random.default_rng(4).normal(size=(9000, 3))
    options = {"order": order, "random_state": 2}
    alone = fit(X, 0.2, 0.1, **options)
    marked = []
    mark = cpu.canopy.mark_near
    monkeypatch.setattr(cpu.canopy, "mark_near", lambda *args, **kw: (marked.append(1), mark(*args, **kw)))
    monkeypatch.setattr(cpu.canopy, "MIN_BOXED", 100)
    monkeypatch.setattr(canopy_centers, "MANY_LEFT", 0.1)
    boxed = fit(X, 0.2, 0.1, **options)
    assert marked
    assert (alone.cluster_centers_indices_ == boxed.cluster_centers_indices_).all()
    assert alone.n_steps_ == boxed.n_steps_ and (alone.memberships_ != boxed.memberships_).nnz == 0


@pytest.mark.parametrize("order", ["index", "random"])
def test_larger_steps_pick_the_same(order, monkeypatch):
    X = np.random.default_rng(4).normal(size=(9000, 3))
    options = {"order": order, "random_state": 2}
    alone = fit(X, 0.1, 0.05, **options)
    monkeypatch.setattr(canopy_centers, "STEP", 64)
    plain = fit(X, 0.1, 0.05, **options)
    monkeypatch.setattr(cpu.canopy, "MAX_OFFERED", 1000)
    monkeypatch.setattr(canopy_centers, "LARGEST_SHARE", 1 / 10)
    larger = fit(X, 0.1, 0.05, **options)
    assert larger.n_steps_ < plain.n_steps_ / 2
    assert (alone.cluster_centers_indices_ == larger.cluster_centers_indices_).all()
    assert (alone.memberships_ != larger.memberships_).nnz == 0
