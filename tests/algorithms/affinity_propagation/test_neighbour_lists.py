"""Messages on neighbour lists beside messages of all pairs: every number is the same, to the bit."""

from __future__ import annotations

import contextlib
import math
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import pytest

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation
from mgclust.algorithms.affinity_propagation import estimator
from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing
from mgclust.algorithms.affinity_propagation.rows import listed_rows, row_choice
from mgclust.algorithms.affinity_propagation.rows.list_pace import PACES
from mgclust.base.errors import InputError, InsufficientMemoryError, RunCancelled
from mgclust.data import open_dataset
from mgclust.engine import partition
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.checkpoint_files import Writer
from mgclust.engine.transport.comm import SoloComm
from mgclust.kernels.affinity_propagation.sparse_forms import cpu_listed
from support.list_constants import set_constant

KINDS = ["blobs", "noise in the plane", "noise in 64 dimensions", "clump and far rows", "duplicates", "line"]


def rows(kind: str, n: int = 260) -> np.ndarray:
    rng = np.random.default_rng(3)
    if kind == "blobs":
        return rng.normal(size=(8, 5))[rng.integers(8, size=n)] * 4 + rng.normal(size=(n, 5))
    if kind == "noise in the plane":
        return rng.random((n, 2))
    if kind == "noise in 64 dimensions":
        return rng.random((n, 64))
    if kind == "clump and far rows":
        return np.concatenate([rng.normal(size=(n - 12, 3)), 1e3 * rng.normal(size=(12, 3))])
    if kind == "duplicates":
        return rng.integers(4, size=(n, 3)).astype(float)
    return np.arange(n, dtype=float)[:, None] ** 1.5


@pytest.fixture
def trace(monkeypatch):
    """What all iterations of a fit left behind: the vectors after each batch, and numbers of exemplars."""
    seen: list[bytes] = []
    original = MessagePassing.iterate

    def iterate(self, dampings):
        found = original(self, dampings[:7])  # small batches: more to compare
        m = self.messages
        parts = (m.u, m.c[: m.n], m.a_diagonal, m.r_diagonal, m.last_exemplars, np.array(found))
        to_host = self._context.kernels.memory.to_host
        seen.append(b"".join(np.ascontiguousarray(to_host(part)).tobytes() for part in parts))
        return found

    def fit(model, X):
        seen.clear()
        return model.fit(X), list(seen)

    set_constant(monkeypatch, "SHORTEST_LIST", 4)  # so that lists have to be made longer
    set_constant(monkeypatch, "INTERVAL", 3)
    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    return fit


def same(one, other):
    first, then = one[0], other[0]
    assert len(one[1]) == len(other[1]) and one[1] == other[1]
    assert (first.labels_ == then.labels_).all() and first.net_similarity_ == then.net_similarity_
    assert first.n_iter_ == then.n_iter_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
def test_affinity_propagation(trace, kind, dtype, monkeypatch, device):
    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)
    if dtype == "float64":  # on several threads
        monkeypatch.setattr(cpu_listed, "MIN_WORK", 1)
        monkeypatch.setattr(cpu_listed, "MIN_ROWS", 16)
    given = {"dtype": dtype, "damping": 0.8, "max_iter": 150, "device": device, "client": None}
    lists = trace(AffinityPropagation(algorithm="sparse", **given), rows(kind))
    same(trace(AffinityPropagation(algorithm="dense", **given), rows(kind)), lists)
    assert lists[0].exactness_["algorithm"] == "sparse" and lists[0].exactness_["rows_searched"] > 0


@pytest.mark.quick("cpu-fast-*", "cpu-code-blobs-float64")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", ["blobs", "noise in the plane", "clump and far rows"])
@pytest.mark.parametrize("profile", ["code", "fast"])
def test_a_scan(trace, kind, dtype, profile, device):
    """The preference falls until two clusters are left: lists grow, columns become active."""
    given = {"dtype": dtype, "device": device, "client": None, "max_iter": 1200, "profile": profile}
    lists = trace(AdaptiveAffinityPropagation(algorithm="sparse", **given), rows(kind, 120))
    all_pairs = trace(AdaptiveAffinityPropagation(algorithm="dense", **given), rows(kind, 120))
    same(all_pairs, lists)
    for name, column in all_pairs[0].scan_.items():
        np.testing.assert_array_equal(lists[0].scan_[name], column)


@pytest.fixture
def short_lists(monkeypatch, device):
    """Lists are cut to what has been in use, as often as it is looked at."""
    for name, value in (("LOOKS", 2), ("SPARE", 1.0), ("PAYS", 1.0), ("ROOM", 1.0), ("INTERVAL", 1)):
        set_constant(monkeypatch, name, value)
    set_constant(monkeypatch, "PADDING", 0)  # of what is kept; that of arrays stays
    set_constant(monkeypatch, "_padded", lambda lengths: (lengths + 31) // 32 * 32)
    monkeypatch.setitem(PACES, device, replace(PACES[device], least_saved=0))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.quick("*duplicates-float32*")
def test_lists_become_shorter(trace, short_lists, kind, dtype, device):
    """Rows that ask beyond what is left get it back: nothing but memory and time changes."""
    given = {"dtype": dtype, "device": device, "client": None, "max_iter": 900, "profile": "fast"}
    lists = trace(AdaptiveAffinityPropagation(algorithm="sparse", **given), rows(kind, 150))
    assert lists[0].exactness_["lists_shortened"] > 3
    same(trace(AdaptiveAffinityPropagation(algorithm="dense", **given), rows(kind, 150)), lists)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_equal_similarities_stay_together(short_lists, dtype, device, monkeypatch):
    """A list ends where similarities differ, so that its floor says what it leaves out."""
    seen, original = [], listed_rows.ListedRows._shorten

    def shorten(self, keep):
        before = [np.array(self.context.kernels.memory.to_host(each)) for each in parts(self.messages)]
        original(self, self.messages.own * 0 + 3)
        after = [np.array(self.context.kernels.memory.to_host(each)) for each in parts(self.messages)]
        seen.append((before, after))

    def parts(messages):
        return messages.begin, messages.length, messages.own, messages.floor, messages.s

    monkeypatch.setattr(listed_rows.ListedRows, "_shorten", shorten)
    AffinityPropagation(
        algorithm="sparse", dtype=dtype, device=device, client=None, damping=0.8, max_iter=40, convergence_iter=39
    ).fit(rows("line", 200).round(-1))
    assert seen
    for (begin, length, own, floor, s), (_, shorter, _, higher, _) in seen:
        assert (shorter <= length).all() and (shorter >= np.minimum(length, own + 1)).all() and (higher >= floor).all()
        for at, all_, count, least in zip(begin, length, shorter, higher, strict=True):
            assert (s[at : at + count] >= least).all() and (s[at + count : at + all_] < least).all()


def test_lists_become_shorter_before_they_are_refused(trace, monkeypatch):
    """What no row needs now goes, where lists would have to be refused otherwise."""
    X = rows("blobs", 400)
    given = {"device": "cpu", "client": None, "algorithm": "sparse", "profile": "fast", "dtype": "float32"}
    rooms, original, most = [0], listed_rows.ListedRows._move_lists, 1 << 40

    def move(self, room):
        rooms.append(room)
        original(self, room)

    monkeypatch.setattr(listed_rows.ListedRows, "_move_lists", move)
    monkeypatch.setattr(listed_rows.ListedRows, "_largest_room", lambda self: most)
    monkeypatch.setitem(listed_rows.BLOCK_BYTES, "cpu", 1 << 14)  # of which a sixteenth moves at a time
    whole = trace(AdaptiveAffinityPropagation(**given), X)
    most = int(0.75 * max(rooms))
    closed = Mock(wraps=listed_rows.ListedRows._close_gaps)
    monkeypatch.setattr(listed_rows.ListedRows, "_close_gaps", lambda self: closed(self))
    less = trace(AdaptiveAffinityPropagation(**given), X)
    closed.assert_called()
    assert less[0].exactness_["lists_shortened"] > whole[0].exactness_["lists_shortened"]
    same(whole, less)


def test_short_memory_makes_lists_of_undecided_rows_alone(monkeypatch):
    """All lists are nearly used up then: one row that asked for more had all others ask, too."""
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(20, 8))[rng.integers(20, size=700)] + rng.normal(size=(700, 8))
    made, original = [], listed_rows.ListedRows._make_lists

    def make(self, rows, wanted):
        if self._tight:
            made.append(len(rows) / 700)
        original(self, rows, wanted)

    pace = replace(PACES["cuda"], long_list=16, most_own=math.inf)
    monkeypatch.setitem(PACES, "cpu", pace)
    monkeypatch.setattr(listed_rows.ListedRows, "_make_lists", make)
    monkeypatch.setattr(listed_rows.ListedRows, "_largest_room", lambda self: 700**2 // 4)
    given = {"profile": "fast", "algorithm": "sparse", "device": "cpu", "client": None}
    with contextlib.suppress(InsufficientMemoryError):
        AdaptiveAffinityPropagation(**given).fit(X)
    assert len(made) > 3 and np.mean(made) < 0.03


def test_columns_are_chosen_where_they_decide_with_fewer_similarities():
    """Rows of a cluster that loses its exemplar looked for another in their whole row, and kept all of it."""
    rng = np.random.default_rng(0)
    X = 3 * rng.normal(size=(20, 8))[rng.integers(20, size=700)] + rng.normal(size=(700, 8))
    given = {"profile": "fast", "algorithm": "sparse", "device": "cpu", "client": None}
    model = AdaptiveAffinityPropagation(n_clusters_range=(4, 700), **given).fit(X)
    assert model.exactness_["pairs_kept"] < 0.25 * 700**2


@pytest.mark.parametrize("affinity", ["cosine", "correlation"])
def test_other_similarities(trace, affinity, device):
    given = {"affinity": affinity, "device": device, "client": None}
    lists = trace(AffinityPropagation(algorithm="sparse", **given), rows("blobs"))
    same(trace(AffinityPropagation(algorithm="dense", **given), rows("blobs")), lists)


def test_a_matrix_that_is_not_symmetric(trace, device):
    x = rows("blobs", 90)
    s = -((x[:, None] - x) ** 2).sum(axis=-1) * np.random.default_rng(0).random((90, 90))
    given = {"affinity": "precomputed", "device": device, "client": None}
    lists = trace(AffinityPropagation(algorithm="sparse", **given), s)
    same(trace(AffinityPropagation(algorithm="dense", **given), s), lists)


def test_over_to_all_pairs(trace, monkeypatch, device):
    """In the middle of a run, where lists have become slow: nothing but the time changes."""
    monkeypatch.setitem(row_choice.FEW_ROWS, device, 0)
    set_constant(monkeypatch, "DENSE_PACE", 1000)
    given = {"device": device, "client": None, "damping": 0.8, "max_iter": 150, "convergence_iter": 140}
    found = trace(AffinityPropagation(**given), rows("noise in the plane"))
    assert found[0].exactness_["algorithm"] == "sparse" and found[0].exactness_["pairs_kept"] == 260**2
    same(trace(AffinityPropagation(algorithm="dense", **given), rows("noise in the plane")), found)


@pytest.mark.parametrize(("slow_elsewhere", "too_large_elsewhere"), [(1, 0), (1, 1), (0, 0)])
def test_all_ranks_change_together(trace, monkeypatch, slow_elsewhere, too_large_elsewhere):
    """One that is slow takes the others along, one without room keeps them: checkpoints have rows in one form."""
    original = SoloComm.all_reduce

    def with_another(self, array, op="sum"):
        found = original(self, array, op)
        decides = op == "max" and isinstance(array, np.ndarray) and array.shape == (2,)
        return np.maximum(found, (slow_elsewhere, too_large_elsewhere)) if decides else found

    monkeypatch.setattr(SoloComm, "all_reduce", with_another)
    monkeypatch.setitem(row_choice.FEW_ROWS, "cpu", 0)
    given = {"damping": 0.8, "max_iter": 150, "convergence_iter": 140}  # long enough to look at the others
    model, _ = trace(AffinityPropagation(device="cpu", client=None, **given), rows("blobs"))
    assert (model.exactness_["pairs_kept"] == 260**2) == (slow_elsewhere and not too_large_elsewhere)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_when_lists_are_taken(device):
    context = SimpleNamespace(
        dataset_shape=(5000, 3), dtype=np.dtype("float32"), size=1, free=1 << 40, comm=SoloComm.__new__(SoloComm),
        kernels=SimpleNamespace(device=device),
    )  # fmt: skip
    assert row_choice.is_listed(context, "sparse", "precomputed", None)
    assert row_choice.is_listed(context, "auto", "euclidean", None)
    assert not row_choice.is_listed(context, "auto", "precomputed", None)
    assert not row_choice.is_listed(context, "dense", "euclidean", None)
    context.dataset_shape = (900, 3)
    assert not row_choice.is_listed(context, "auto", "euclidean", None)


def test_the_parameter():
    assert AffinityPropagation().algorithm == AdaptiveAffinityPropagation().algorithm == "auto"
    with pytest.raises(InputError, match="algorithm='lists' should be one of"):
        AffinityPropagation(algorithm="lists", device="cpu", client=None).fit(rows("blobs"))


def test_less_memory():
    """Where matrices are refused lists are taken, and as long as they grow refused in their turn."""
    X = np.random.default_rng(0).normal(size=(2000, 3))
    given = {"device": "cpu", "client": None, "memory_limit": "12 MiB"}
    with pytest.raises(InsufficientMemoryError, match=r"similarities and availabilities 30\.8 MiB"):
        AffinityPropagation(algorithm="dense", **given).fit(X)
    few = AffinityPropagation(preference=-0.5, damping=0.8, **given).fit(X)
    assert few.exactness_["algorithm"] == "sparse" and few.exactness_["pairs_kept"] < 400_000
    with pytest.raises(InsufficientMemoryError, match=r"neighbour lists of 2000 rows need .* is free; use more"):
        AffinityPropagation(preference=-3e3, damping=0.8, **given).fit(X)


def test_memory_that_is_free_in_pieces_alone(monkeypatch):
    """What cannot be had in one piece is refused in the same words."""
    empty = np.empty

    def in_pieces(shape, dtype=float, **rest):
        if dtype == "int32" and isinstance(shape, int) and shape > 40_000:
            raise MemoryError
        return empty(shape, dtype, **rest)

    X = np.random.default_rng(0).normal(size=(400, 3))
    monkeypatch.setattr(np, "empty", in_pieces)
    with pytest.raises(
        InsufficientMemoryError, match=r"neighbour lists of 400 rows need .* n_clusters_range=\(low, high\)"
    ):
        AffinityPropagation(preference=-3e3, damping=0.8, algorithm="sparse", device="cpu", client=None).fit(X)


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_ranks_that_learn_late_of_undecided_rows(monkeypatch):
    """As on GPUs: what is queued behind them meets in sums, too, so all ranks queue as many iterations."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(estimator, "FEW_SIMILARITIES", 0)
    monkeypatch.setattr(partition, "SMALLEST_BLOCK", 640)
    set_constant(monkeypatch, "SHORTEST_LIST", 4)
    set_constant(monkeypatch, "LIST_SHARE", 1e-9)
    set_constant(monkeypatch, "LIST_GROWTH", 1.0)
    rng = np.random.default_rng(1)
    X = np.concatenate([0.3 * rng.normal(size=(640, 3)), 10 + 3 * rng.normal(size=(640, 3))])
    options = {"algorithm": "sparse", "damping": 0.95, "max_iter": 256, "convergence_iter": 250, "preference": -400.0}
    seen, original = {}, MessagePassing.iterate

    def iterate(self, dampings):
        found, m = original(self, dampings), self.messages
        of_rank = seen.setdefault((self._context.size, self._context.rank), [])
        of_rank.append((found, m.a_diagonal.tobytes(), m.c[: m.n].tobytes()))
        return found

    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    monkeypatch.setattr(cpu_listed, "is_halted", lambda messages: False)
    one = AffinityPropagation(client=None, device="cpu", **options).fit(X)
    cluster = LocalCluster(n_workers=2, processes=False, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster, set_as_default=False) as client:
        two = AffinityPropagation(client=client, n_workers=2, **options).fit(X)
    assert two.exactness_["rows_searched"] > 0
    assert seen[2, 0] == seen[2, 1] == seen[1, 0]
    assert one.net_similarity_ == two.net_similarity_


@pytest.mark.slow
@pytest.mark.timeout(100)
def test_rows_whose_reach_is_rounded():
    """Rows of two groups in turn: the sample of columns sees one, so lists end exactly where they were asked to."""
    rng = np.random.default_rng(1)
    X = rng.normal(size=(9, 5))[rng.integers(9, size=2100)] * 4 + rng.normal(size=(2100, 5))
    X[1::2] += 3.0
    given = {"n_clusters": 6, "damping": 0.95, "max_iter": 400, "dtype": "float32", "device": "cpu", "client": None}
    assert AffinityPropagation(**given).fit(X).n_clusters_ == 6


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_floors_hold_after_new_noise(dtype, device, monkeypatch):
    """Of a lattice, many similarities differ only by the noise: those that a list leaves out are at most its floor."""
    X = np.stack(np.meshgrid(np.arange(16.0), np.arange(16.0)), axis=-1).reshape(-1, 2)
    original, undecided = MessagePassing.iterate, []

    def iterate(self, dampings):
        found = original(self, dampings)
        self.add_noise()
        rows, to_host = self.rows, self._context.kernels.memory.to_host
        s = to_host(rows.similarities.of_rows(rows._rows))[:, : len(X)].copy()
        begin, length, column, floor = (
            to_host(getattr(rows.messages, name)) for name in ("begin", "length", "column", "floor")
        )
        for i in range(len(X)):
            s[i, column[begin[i] : begin[i] + length[i]]] = -np.inf
        assert (s.max(axis=1) <= floor)[floor > -np.inf].all()
        undecided.append((floor > -np.inf).sum())
        return found

    monkeypatch.setattr(MessagePassing, "iterate", iterate)
    given = {"algorithm": "sparse", "max_iter": 8, "dtype": dtype, "device": device, "client": None}
    AffinityPropagation(**given).fit(X)
    assert undecided[0] > 0


def test_recent_columns_saved_at_any_places(monkeypatch, tmp_path):
    """A run resumes where free places lie before and between those that are filled."""
    data = open_dataset(rows("blobs", 150))
    model = AdaptiveAffinityPropagation(
        profile="fast", algorithm="sparse", device="cpu", client=None, max_iter=300, min_cluster_size=1
    )
    original, filled = listed_rows.ListedRows.saved, []
    iterate, states = MessagePassing.iterate, []

    def observed(self, dampings):
        found = iterate(self, dampings)
        states.append(self.messages.u.tobytes() + self.messages.c.tobytes())
        return found

    monkeypatch.setattr(MessagePassing, "iterate", observed)
    whole = model.fit_dataset(data)
    course = states.copy()

    def saved(self):
        if len(filled) == 12:
            raise RunCancelled("enough")
        replicated, of_rows = original(self)
        filled.append(int((of_rows["recent_argmax"] >= 0).sum()))
        places = {
            name: np.ascontiguousarray(of_rows[name][:, ::-1]) for name in ("recent_argmax", "recent_e", "recent_a")
        }
        return replicated, of_rows | places

    monkeypatch.setattr(Writer, "done", lambda self: bool(self.files()))
    kept = {"checkpoint": CheckpointConfig(tmp_path / "kept", 0.0, 1.0)}
    with monkeypatch.context() as patched:
        patched.setattr(listed_rows.ListedRows, "saved", saved)
        with pytest.raises(RunCancelled):
            model.fit_dataset(data, **kept)
    assert filled[-1] > 0
    stages, states[:] = [], []
    again = model.fit_dataset(data, lambda event: stages.append(event["stage"]), **kept)
    assert "resume" in stages and 0 < len(states) < len(course)
    assert states == course[-len(states) :] and (again.labels == whole.labels).all()
