"""Scans that end on few columns instead of lists, beside scans on all pairs: every number is the same, to the bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation
from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing
from mgclust.algorithms.affinity_propagation.rows import column_rows, listed_rows
from mgclust.algorithms.affinity_propagation.rows.column_rows import ColumnRows
from mgclust.algorithms.affinity_propagation.rows.list_pace import PACES
from mgclust.base.errors import InsufficientMemoryError, RunCancelled
from mgclust.data import open_dataset
from mgclust.engine import partition
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.checkpoint_files import Writer
from support.list_constants import set_constant

KINDS = ["blobs", "noise in the plane", "noise in 64 dimensions", "clump and far rows", "duplicates", "line"]


def rows(kind: str, n: int = 150) -> np.ndarray:
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
def early(monkeypatch, device):
    """Few columns take the place of lists at the first look, with few of them at first and short parts of a course."""
    for name in PACES:
        monkeypatch.setitem(PACES, name, replace(PACES[name], most_own=-1.0))
    set_constant(monkeypatch, "SHORTEST_LIST", 4)
    set_constant(monkeypatch, "INTERVAL", 20)
    monkeypatch.setattr(column_rows, "FIRST_COLUMNS", 2)
    monkeypatch.setattr(column_rows, "SPAN", 7)
    monkeypatch.setitem(column_rows.BLOCK_BYTES, device, 1 << 15)  # rows of a few columns, some at a time


class Trace:
    """What all iterations of fits left behind, and in which form they ended."""

    def __init__(self, noise_every: int = 0) -> None:
        self.seen: list[bytes] = []
        self.rows = None
        self.noise_every = noise_every

    def fit(self, monkeypatch, model, X):
        original, trace = MessagePassing.iterate, self

        def iterate(self, dampings):
            found = original(self, dampings[:7])
            m, to_host = self.messages, self._context.kernels.memory.to_host
            parts = (m.u, m.c[: m.n], m.a_diagonal, m.r_diagonal, m.last_exemplars, np.array(found))
            trace.seen.append(b"".join(np.ascontiguousarray(to_host(part)).tobytes() for part in parts))
            trace.rows = self.rows
            if trace.noise_every and len(trace.seen) % trace.noise_every == 0:
                self.add_noise()
            return found

        with monkeypatch.context() as patched:
            patched.setattr(MessagePassing, "iterate", iterate)
            return model.fit(X)


def both(monkeypatch, X, noise_every=0, **given):
    """A scan that ends on few columns, once it has been found to be that on all pairs."""
    columns, pairs = Trace(noise_every), Trace(noise_every)
    few = columns.fit(monkeypatch, AdaptiveAffinityPropagation(algorithm="sparse", client=None, **given), X)
    assert isinstance(columns.rows, ColumnRows)
    every = pairs.fit(monkeypatch, AdaptiveAffinityPropagation(algorithm="dense", client=None, **given), X)
    assert columns.seen == pairs.seen
    assert (few.labels_ == every.labels_).all() and few.n_iter_ == every.n_iter_
    for name, column in every.scan_.items():
        np.testing.assert_array_equal(few.scan_[name], column)
    return few, columns.rows


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("profile", ["fast", "code"])
@pytest.mark.quick("*-fast-blobs-*", "*-fast-clump and far rows-float32")
def test_a_scan(early, profile, kind, dtype, device, monkeypatch):
    """From many clusters on, which takes many columns, to two."""
    model, ended = both(monkeypatch, rows(kind), profile=profile, dtype=dtype, device=device, max_iter=700)
    assert len(ended._spans) > 2 and ended.searched > 0 and len(ended.messages.columns) > 4
    assert model.exactness_["algorithm"] == "sparse"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_noise_is_drawn_again(early, dtype, device, monkeypatch):
    """Columns that are taken afterwards had other similarities before."""
    X, given = rows("noise in 64 dimensions"), {"profile": "fast", "dtype": dtype, "device": device, "max_iter": 300}
    _, ended = both(monkeypatch, X, noise_every=9, **given)
    assert len({span.draws for span in ended._spans}) > 3


@pytest.mark.parametrize("affinity", ["cosine", "correlation"])
def test_other_similarities(early, affinity, device, monkeypatch):
    both(monkeypatch, rows("blobs", 120), affinity=affinity, profile="fast", device=device, max_iter=400)


def test_where_lists_fill_the_memory(monkeypatch, device):
    """Where there is room for an eighth of all pairs; once nothing else would end, the answer is that of long lists."""
    rng = np.random.default_rng(0)
    monkeypatch.setitem(PACES, device, replace(PACES[device], most_own=0.3))
    X = 3 * rng.normal(size=(20, 8))[rng.integers(20, size=700)] + rng.normal(size=(700, 8))
    given = {"profile": "fast", "algorithm": "sparse", "device": device, "client": None}
    whole = AdaptiveAffinityPropagation(**given).fit(X)
    monkeypatch.setattr(listed_rows.ListedRows, "_largest_room", lambda self: 700**2 // 8)
    refused = AdaptiveAffinityPropagation(**given)
    with monkeypatch.context() as patched:
        patched.setattr(listed_rows.ListedRows, "_few_columns_pay", lambda self, own: False)
        with pytest.raises(InsufficientMemoryError, match="neighbour lists"):
            refused.fit(X)
    less = AdaptiveAffinityPropagation(**given).fit(X)
    assert (less.labels_ == whole.labels_).all() and less.n_iter_ == whole.n_iter_
    np.testing.assert_array_equal(less.scan_["n_iter"], whole.scan_["n_iter"])
    assert less.exactness_["pairs_kept"] < 700**2 / 8 + 700 * 200


def test_where_own_elements_are_many(monkeypatch, device):
    """Not before they are worth it, wherever there is room for lists."""
    monkeypatch.setitem(PACES, device, replace(PACES[device], most_share=0.04))
    X, given = rows("blobs", 400), {"profile": "fast", "algorithm": "sparse", "device": device, "client": None}
    lists, columns = Trace(), Trace()
    lists.fit(monkeypatch, AdaptiveAffinityPropagation(**given), X)
    set_constant(monkeypatch, "FEWEST_OWN", 0)
    columns.fit(monkeypatch, AdaptiveAffinityPropagation(**given), X)
    assert isinstance(lists.rows, listed_rows.ListedRows) and isinstance(columns.rows, ColumnRows)
    assert lists.seen == columns.seen


def test_what_does_not_fit(early, monkeypatch):
    monkeypatch.setattr(column_rows, "SPAN", 1 << 16)
    given = {"profile": "fast", "algorithm": "sparse", "device": "cpu", "client": None, "memory_limit": "100 MiB"}
    with pytest.raises(InsufficientMemoryError, match=r"columns and 0 iterations of 150 rows need"):
        AdaptiveAffinityPropagation(**given).fit(rows("blobs"))


def test_other_runs_stay_on_lists(early, monkeypatch):
    """The preference of a search rises as well, and a single one has no end to come to."""
    trace = Trace()
    model = AffinityPropagation(algorithm="sparse", damping=0.8, max_iter=150, device="cpu", client=None)
    trace.fit(monkeypatch, model, rows("blobs"))
    assert isinstance(trace.rows, listed_rows.ListedRows)


def test_nothing_is_saved_on_few_columns(early, monkeypatch, tmp_path):
    """A run resumes from its lists, and comes to the same end."""
    data = open_dataset(rows("blobs"))
    model = AdaptiveAffinityPropagation(profile="fast", algorithm="sparse", device="cpu", client=None)
    whole = model.fit_dataset(data)
    savable, original = [], MessagePassing.save
    set_constant(monkeypatch, "INTERVAL", 75)

    def save(self, *arguments):
        savable.append(self.rows.can_be_saved)
        return original(self, *arguments)

    def interrupted(self, exemplars):
        raise RunCancelled("enough")

    monkeypatch.setattr(MessagePassing, "save", save)
    monkeypatch.setattr(Writer, "done", lambda self: bool(self.files()))
    with monkeypatch.context() as patched:
        patched.setattr(ColumnRows, "nearest", interrupted)
        with pytest.raises(RunCancelled):
            model.fit_dataset(data, checkpoint=CheckpointConfig(tmp_path / "kept", 0.0, 1.0))
    assert savable.count(True) > 0 and savable.count(False) > 10
    stages = []
    again = model.fit_dataset(
        data, lambda event: stages.append(event["stage"]), checkpoint=CheckpointConfig(tmp_path / "kept", 0.0, 1.0)
    )
    assert "resume" in stages
    assert (again.labels == whole.labels).all()
    np.testing.assert_array_equal(again.arrays["scan_n_iter"], whole.arrays["scan_n_iter"])


@pytest.mark.slow
@pytest.mark.timeout(100)
@pytest.mark.parametrize("size", [2, 3])
def test_same_bits_on_ranks(early, size, monkeypatch):
    """All ranks change together; rows are undecided on some alone."""
    from distributed import Client, LocalCluster

    monkeypatch.setattr(partition, "SMALLEST_BLOCK", 128)
    rng = np.random.default_rng(1)
    X = 3 * rng.normal(size=(6, 8))[rng.integers(6, size=390)] + rng.normal(size=(390, 8))
    given = {"algorithm": "sparse", "affinity": "correlation", "profile": "fast", "dtype": "float32", "max_iter": 500}
    ended = []
    original = ColumnRows.__init__
    monkeypatch.setattr(ColumnRows, "__init__", lambda self, lists: (ended.append(1), original(self, lists))[1])
    one = AdaptiveAffinityPropagation(device="cpu", client=None, **given).fit(X)
    assert len(ended) == 1
    cluster = LocalCluster(n_workers=size, processes=False, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster, set_as_default=False) as client:
        more = AdaptiveAffinityPropagation(device="cpu", client=client, n_workers=size, **given).fit(X)
    assert len(ended) == 1 + size
    assert (more.labels_ == one.labels_).all() and more.n_iter_ == one.n_iter_
    for name, column in one.scan_.items():
        np.testing.assert_array_equal(more.scan_[name], column)
