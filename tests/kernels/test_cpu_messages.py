"""Message passing on the CPU against the textbook update, with responsibilities stored, in float64 NumPy."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.affinity_propagation import cpu_messages as _cpu_messages
from mgclust.kernels.affinity_propagation.messages import RECENT_ARGMAXES, Iteration, Messages, padded

cpu = load("cpu")

SCALE = 2.0**44


def similarity_matrix(n: int, dtype: type = np.float64, seed: int = 0, ties: bool = False) -> np.ndarray:
    """Minus squared distances of clustered points, padded; whole numbers with many ties if asked."""
    rng = np.random.default_rng([seed, n])
    x = rng.normal(size=(5, 2))[rng.integers(5, size=n)] * 4 + rng.normal(size=(n, 2))
    s = -((x[:, None] - x[None]) ** 2).sum(-1)
    out = np.full((n, padded(n)), -np.inf, dtype)
    out[:, :n] = np.round(s) if ties else s + 1e-9 * rng.normal(size=(n, n))
    np.fill_diagonal(out, -np.inf)
    return out


def fresh(
    s: np.ndarray, preference: float, first_row: int = 0, rows: int | None = None, places: int = RECENT_ARGMAXES
) -> Messages:
    """The state before the first iteration, of all rows or some."""
    n, width = len(s), s.shape[1]
    m = n if rows is None else rows
    own = np.ascontiguousarray(s[first_row : first_row + m])
    a = np.where(own > -np.inf, 0, -np.inf).astype(s.dtype)
    return Messages(
        n=n,
        first_row=first_row,
        s=own,
        a=a,
        u=np.zeros(m),
        recent_argmax=np.full((m, places), -1, np.int32),
        recent_e=np.zeros((m, places), s.dtype),
        recent_a=np.zeros((m, places), s.dtype),
        recent_most=np.zeros(1, np.int32),
        c=np.zeros(width, s.dtype),
        r_diagonal=np.zeros(n),
        a_diagonal=np.zeros(n),
        preference=np.full(n, preference),
        sums=(sums := np.zeros(2 * n + 1, np.int64)),
        totals=sums,
        progress=np.zeros(2, np.int64),
        exemplars=np.zeros((4, n), np.uint8),
        last_exemplars=np.zeros(n, np.uint8),
        counts=np.zeros((4, 2), np.int64),
    )


def grow(messages: Messages) -> None:
    """Twice as many recent places when a row has filled all of them: each needs a free one when `pass_rows` begins."""
    if messages.recent_most[0] < messages.recent_argmax.shape[1]:
        return
    more = ((0, 0), (0, messages.recent_argmax.shape[1]))
    messages.recent_argmax = np.pad(messages.recent_argmax, more, constant_values=-1)
    messages.recent_e, messages.recent_a = np.pad(messages.recent_e, more), np.pad(messages.recent_a, more)


class Run:
    """Iterations on several ranks that add their sums."""

    def __init__(self, ranks: list[Messages], negligible: float, scale: float = SCALE) -> None:
        self.ranks, self.scale = ranks, scale
        self.numbers = Iteration.before_the_first(negligible)

    def iterate(self, damping: float, preference: float) -> None:
        self.numbers = self.numbers.followed_by(damping, self.scale)
        for messages in self.ranks:
            messages.preference[:] = preference
            cpu.affinity_propagation.pass_rows(messages, self.numbers)
            grow(messages)
        total = sum(messages.sums for messages in self.ranks)
        for messages in self.ranks:
            messages.sums[:] = total
            cpu.affinity_propagation.pass_columns(messages, damping=damping, scale=self.scale, slot=1)

    def state(self) -> bytes:
        parts = [self.ranks[0].a_diagonal, self.ranks[0].r_diagonal, self.ranks[0].exemplars]
        parts += [np.concatenate([getattr(rank, name) for rank in self.ranks]) for name in ("a", "u", "s")]
        return b"".join(np.ascontiguousarray(part).tobytes() for part in parts)


class Textbook:
    """Frey and Dueck's update as it is printed."""

    def __init__(self, s: np.ndarray) -> None:
        self.n = len(s)
        self.s = s[:, : self.n].astype(np.float64)
        self.a, self.r = np.zeros_like(self.s), np.zeros_like(self.s)
        self.last = np.zeros(self.n, bool)

    def iterate(self, damping: float, preference: float) -> None:
        rows = np.arange(self.n)
        s = self.s.copy()
        np.fill_diagonal(s, preference)
        total = self.a + s
        j = total.argmax(axis=1)
        m1 = total[rows, j]
        total[rows, j] = -np.inf
        m2 = total.max(axis=1)
        new = s - m1[:, None]
        new[rows, j] = s[rows, j] - m2
        self.r = damping * self.r + (1 - damping) * new
        positive = np.maximum(self.r, 0)
        positive[rows, rows] = self.r[rows, rows]
        self.c = positive.sum(axis=0)
        new = self.c[None] - positive
        own = new[rows, rows].copy()
        new = np.minimum(new, 0)
        new[rows, rows] = own
        self.a = damping * self.a + (1 - damping) * new
        self.exemplars = self.a[rows, rows] + self.r[rows, rows] > 0
        self.changed = int((self.exemplars != self.last).sum())
        self.last = self.exemplars


def schedule(iterations: int, median: float):
    """Damping and preference of each iteration, changing now and then as an adaptive scan changes them."""
    damping, preference = 0.5, 0.5 * median
    for i in range(iterations):
        if i % 40 == 39:
            damping = min(0.9, damping + 0.05)
        if i % 25 == 24:
            preference += 0.3 * median
        yield damping, preference


def explicit_responsibilities(messages: Messages, sigma: float) -> np.ndarray:
    r = sigma * messages.s.astype(np.float64) - messages.u[:, None]
    for i, (columns, values) in enumerate(zip(messages.recent_argmax, messages.recent_e, strict=True)):
        filled = columns >= 0
        r[i, columns[filled]] -= values[filled]
    return r[:, : messages.n]


def difference(ours: np.ndarray, theirs: np.ndarray, size: float) -> float:
    return float(np.abs(ours - theirs).max() / size)


@pytest.mark.quick("2-*", "31-*", "32-*")
@pytest.mark.parametrize("places", [1, RECENT_ARGMAXES])
@pytest.mark.parametrize("n", [2, 5, 31, 32, 65, 100, 203])
def test_textbook_update_over_a_whole_run(n, places):
    s = similarity_matrix(n)
    median = float(np.median(s[:, :n][np.isfinite(s[:, :n])]))
    run, book = Run([fresh(s, 0.0, places=places)], negligible=1e-30), Textbook(s)
    [messages] = run.ranks
    size, worst, off = -float(s[:, :n][np.isfinite(s[:, :n])].min()), 0.0, ~np.eye(n, dtype=bool)
    for iteration, (damping, preference) in enumerate(schedule(300, median)):
        before = book.a.copy()
        run.iterate(damping, preference)
        book.iterate(damping, preference)
        size = max(size, -preference)
        assert (messages.exemplars[1] == book.exemplars).all(), iteration
        assert messages.counts[1].tolist() == [book.exemplars.sum(), book.changed]
        assert (messages.sums == 0).all()
        worst = max(worst, difference(messages.r_diagonal, book.r.diagonal(), size))
        worst = max(worst, difference(messages.a_diagonal, book.a.diagonal(), size))
        worst = max(worst, difference(messages.c[:n], book.c, size))
        r = explicit_responsibilities(messages, run.numbers.next_sigma)
        worst = max(worst, difference(r[off], book.r[off], size))
        a = messages.a[:, :n].copy()
        for i in range(n):
            filled = messages.recent_argmax[i] >= 0
            a[i, messages.recent_argmax[i, filled]] = messages.recent_a[i, filled]
        worst = max(worst, difference(a[off], before[off], size))
        assert (messages.a[:, n:] == -np.inf).all() and (messages.a[:, :n].diagonal() == -np.inf).all()
    assert worst < 1e-12
    assert places > 1 or n < 31 or messages.recent_argmax.shape[1] > 2


def test_ties_go_to_the_lowest_column():
    n = 96
    s = similarity_matrix(n, ties=True)
    run, book = Run([fresh(s, 0.0)], negligible=1e-30), Textbook(s)
    for _ in range(3):
        run.iterate(0.5, -7.0)
        book.iterate(0.5, -7.0)
        r = explicit_responsibilities(run.ranks[0], run.numbers.next_sigma)
        off = ~np.eye(n, dtype=bool)
        np.testing.assert_allclose(r[off], book.r[off], rtol=0, atol=1e-10)
        assert (run.ranks[0].exemplars[1] == book.exemplars).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_same_bits_however_rows_are_split(dtype, monkeypatch):
    n = 150
    s = similarity_matrix(n, dtype)
    median = float(np.median(s[:, :n][np.isfinite(s[:, :n])]))
    states = []
    for bounds, task in (([0, 150], 1 << 20), ([0, 1, 70, 150], 1 << 20), ([0, 64, 150], 1)):
        monkeypatch.setattr(_cpu_messages, "MIN_WORK", 1 if task == 1 else 1 << 20)
        monkeypatch.setattr(_cpu_messages, "rows_of_a_task", lambda columns, task=task: max(1, task // columns))
        ranks = [fresh(s, 0.0, a, b - a) for a, b in pairwise(bounds)]
        run = Run(ranks, negligible=1e-6, scale=2.0**30)
        for damping, preference in schedule(200, median):
            run.iterate(damping, preference)
        states.append(run.state())
    assert states[0] == states[1] == states[2]


def test_float32_finds_what_float64_finds():
    n = 203
    exemplars = []
    for dtype in (np.float32, np.float64):
        s = similarity_matrix(n, dtype)
        run = Run([fresh(s, 0.0)], negligible=1e-6, scale=2.0**30)
        for _ in range(200):
            run.iterate(0.7, -40.0)
        assert run.ranks[0].counts[1, 1] == 0
        exemplars.append(np.flatnonzero(run.ranks[0].exemplars[1]).tolist())
    assert exemplars[0] == exemplars[1] and 1 < len(exemplars[0]) < 30


def test_recent_places_grow_and_are_given_back():
    n = 200
    s = similarity_matrix(n)
    run = Run([fresh(s, 0.0)], negligible=1e-300)
    [messages] = run.ranks
    for i in range(120):
        run.iterate(0.97, -30.0 - 40.0 * (i // 6 % 2))
    most = int((messages.recent_argmax >= 0).sum(axis=1).max())
    assert most > 1 and messages.recent_most[0] >= most
    run.numbers = run.numbers._replace(negligible=1e300)
    run.iterate(0.97, -30.0)
    assert (messages.recent_argmax >= 0).sum(axis=1).max() <= 1
    recent = (messages.a[:, :n] == -np.inf).sum(axis=1) - 1
    assert (recent == (messages.recent_argmax >= 0).sum(axis=1)).all()
    assert (messages.recent_argmax[:, 1:] == -1).all()  # filled places come first


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_absent_pairs(dtype):
    n = 70
    s = similarity_matrix(n, dtype)
    absent = np.random.default_rng(1).random((n, n)) < 0.7
    s[:, :n][absent] = -np.inf
    s[3, :] = -np.inf
    messages = fresh(s, 0.0)
    messages.a[:, :n][absent] = 0
    np.fill_diagonal(messages.a, -np.inf)
    run = Run([messages], negligible=1e-9, scale=2.0**30)
    for _ in range(100):
        run.iterate(0.6, -30.0)
    assert messages.exemplars[1, 3] == 1
    assert not np.isnan(messages.a).any() and not np.isnan(messages.u).any()


def test_counts_against_the_last_iteration():
    messages = fresh(similarity_matrix(40), 0.0)
    messages.sums[:40] = np.arange(40) * 10
    messages.sums.view(np.float64)[40:80] = np.linspace(-30, 5, 40)
    messages.last_exemplars[:] = 1
    r, t = np.linspace(-30, 5, 40), np.arange(40) * 10 / 4.0
    cpu.affinity_propagation.pass_columns(messages, damping=0.25, scale=4.0, slot=2)
    np.testing.assert_array_equal(messages.c[:40], r + t)
    np.testing.assert_array_equal(messages.a_diagonal, 0.75 * t)
    expected = 0.75 * t + r > 0
    np.testing.assert_array_equal(messages.exemplars[2], expected)
    assert messages.counts[2].tolist() == [expected.sum(), (~expected).sum()]
    assert (messages.last_exemplars == expected).all() and (messages.sums == 0).all()
