"""Neighbour lists of message passing, on each device, beside plain NumPy."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.affinity_propagation.sparse_forms.listed import load_lists

TYPES = ["float32", "float64"]


@pytest.fixture
def lists(device):
    return load_lists(device)


@pytest.fixture
def memory(device):
    return load(device).memory


def matrix(m: int, n: int, dtype: str, ties: bool = True) -> np.ndarray:
    """Similarities of some rows, many of them equal."""
    s = np.full((m, padded(n)), -np.inf, dtype)
    values = -np.random.default_rng([m, n]).random((m, n))
    s[:, :n] = np.round(values, 2) if ties else values
    s[np.arange(m), np.arange(m)] = -np.inf
    return s


def in_order(s: np.ndarray, low: float) -> np.ndarray:
    """Columns of a row with at least this similarity: the most similar first, of equals the lowest."""
    columns = np.flatnonzero(s >= low)
    return columns[np.argsort(-s[columns], kind="stable")]


def made(lists, memory, s: np.ndarray, low: np.ndarray) -> SimpleNamespace:
    """The lists of all rows, without own elements or recent columns."""
    xp_s, xp_low = memory.to_device(s), memory.to_device(low)
    counts = memory.to_device(np.zeros(len(s), np.int64))
    lists.count_similar(xp_s, xp_low, out=counts)
    room = (memory.to_host(counts) + 31) // 32 * 32
    begin, total = np.cumsum(room) - room, int(room.sum())
    each = {
        "n": s.shape[1] - (-s.shape[1] % 32), "begin": begin, "own": np.zeros(len(s), np.int64),
        "column": np.full(total, -7, np.int32), "s": np.zeros(total, s.dtype),
        "a": np.full(total, -np.inf, s.dtype), "a_column": -np.arange(s.shape[1], dtype=s.dtype) / 7,
        "recent_argmax": np.full((len(s), 32), -1, np.int32), "recent_place": np.full((len(s), 32), -1, np.int32),
        "recent_s": np.zeros((len(s), 32), s.dtype),
    }  # fmt: skip
    on_device = {name: each[name] if name == "n" else memory.to_device(each[name]) for name in each}
    found = SimpleNamespace(length=counts, **on_device)
    lists.list_similar(xp_s, xp_low, found.begin, column=found.column, out=found.s)
    return found


def rows_of(memory, found) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Columns, similarities and A of each list."""
    parts = [memory.to_host(each) for each in (found.column, found.s, found.a)]
    begin, length = memory.to_host(found.begin), memory.to_host(found.length)
    return [tuple(part[at : at + count] for part in parts) for at, count in zip(begin, length, strict=True)]


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("n", "share"), [(90, 0.5), (3000, 0.01), (3000, 0.3), (7000, 0.9)])
def test_making(lists, memory, n, share, dtype):
    s = matrix(40, n, dtype)
    low = np.full(40, -share, dtype)
    low[0], low[1] = np.finfo(dtype).min, 1  # a whole row, and none
    for (columns, values, _), row, least in zip(rows_of(memory, made(lists, memory, s, low)), s, low, strict=True):
        expected = in_order(row, least)
        np.testing.assert_array_equal(columns, expected)
        np.testing.assert_array_equal(values, row[expected])


@pytest.mark.parametrize("dtype", TYPES)
def test_moving(lists, memory, dtype):
    """What lies behind a list that was cut does not move with it."""
    found = made(lists, memory, matrix(20, 900, dtype), np.full(20, -0.2, dtype))
    before = rows_of(memory, found)
    found.length = memory.to_device(memory.to_host(found.length) - np.arange(20))
    length = memory.to_host(found.length)
    room = (length + 31) // 32 * 32
    begin = np.cumsum(room) - room
    moved = []
    for name in ("column", "s", "a"):
        values = getattr(found, name)
        out = memory.to_device(np.full(room.sum(), 3, memory.to_host(values).dtype))
        lists.move_lists(found, memory.to_device(begin), values=values, out=out)
        moved.append(memory.to_host(out))
    for row, (columns, s, a) in enumerate(before):
        at, end, whole = begin[row], begin[row] + length[row], begin[row] + room[row]
        for old, new in zip((columns, s, a), moved, strict=True):
            np.testing.assert_array_equal(new[at:end], old[: length[row]])
        assert (moved[1][end:whole] == -np.inf).all() and (moved[2][end:whole] == -np.inf).all()
        assert ((moved[0][end:whole] >= 0) & (moved[0][end:whole] < 900)).all()


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("n", [300, 6000])
def test_noise_is_drawn_again(device, lists, memory, n, dtype):
    """A stays with its element, and the prefix that has one of its own still holds all of those."""
    m, seed = 30, (3 << 33) + 5
    s, low = matrix(m, n, dtype), np.full(m, -0.6, dtype)
    found = made(lists, memory, s, low)
    rng, before = np.random.default_rng(0), rows_of(memory, found)
    own, a = memory.to_host(found.own).copy(), memory.to_host(found.a).copy()
    recent, place, similarity = (
        memory.to_host(each).copy() for each in (found.recent_argmax, found.recent_place, found.recent_s)
    )
    begin, a_column = memory.to_host(found.begin), memory.to_host(found.a_column)
    values = [{} for _ in range(m)]
    for row, (columns, _, _) in enumerate(before):
        own[row] = len(columns) // (row % 4 + 1)
        for at in range(own[row]):
            values[row][int(columns[at])] = a[begin[row] + at] = -rng.random()
        for h, at in enumerate((0, own[row] // 2, len(columns) - 1)):  # recent columns, the last of no own element
            recent[row, 3 * h], similarity[row, 3 * h] = columns[at], s[row, columns[at]]
            if at < own[row]:
                place[row, 3 * h], a[begin[row] + at] = at, -np.inf
                del values[row][int(columns[at])]
    found.own, found.a, found.recent_argmax, found.recent_place, found.recent_s = map(
        memory.to_device, (own, a, recent, place, similarity)
    )
    numbers = memory.to_device(np.arange(m))
    lists.redraw_lists(found, numbers, seed=seed, draw=2, tiny=1000.0)
    noisy = memory.to_device(s.copy())
    load(device).affinity_propagation.jitter(noisy, numbers, n=n, seed=seed, draw=2, tiny=1000.0)
    noisy, own = memory.to_host(noisy), memory.to_host(found.own)
    place, similarity = memory.to_host(found.recent_place), memory.to_host(found.recent_s)
    for row, (columns, listed, availability) in enumerate(rows_of(memory, found)):
        members = np.sort(before[row][0])
        expected = members[np.argsort(-noisy[row, members], kind="stable")]
        np.testing.assert_array_equal(columns, expected)
        np.testing.assert_array_equal(listed, noisy[row, expected])
        assert (availability[own[row] :] == -np.inf).all() and set(values[row]) <= set(columns[: own[row]].tolist())
        recent_now = {int(k): h for h, k in enumerate(recent[row]) if k >= 0}
        for at in range(own[row]):
            k = int(columns[at])
            if k in recent_now:
                assert place[row, recent_now[k]] == at and availability[at] == -np.inf
            else:
                assert availability[at] == values[row].get(k, a_column[k])
        for k, h in recent_now.items():
            assert similarity[row, h] == noisy[row, k]
            assert place[row, h] < own[row] and (place[row, h] < 0 or columns[place[row, h]] == k)


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize(("d", "norm"), [(3, "l2"), (40, "l2"), (40, "l2-dot"), (120, "l2-dot"), (40, "l1")])
def test_chosen_rows_and_columns(device, lists, memory, d, norm, dtype):
    """The same bits as in a matrix of all pairs, whatever the rows and columns."""
    n, seed, kernels = 700, 11, load(device)
    rng = np.random.default_rng(d)
    x = memory.to_device(rng.normal(size=(n, d)).astype(dtype))
    whole = memory.to_device(np.full((n, padded(n)), -np.inf, dtype))
    given = {"norm": norm, "factor": 0.25, "seed": seed}
    kernels.affinity_propagation.similarities(x, x, first_row=0, y_start=0, out=whole, **given)
    whole = memory.to_host(whole)
    for count in (1, 5, 300):
        numbers = np.sort(rng.choice(n, count, replace=False))
        rows = memory.to_device(np.full((count, padded(n)), -np.inf, dtype))
        own = memory.to_device(numbers)
        lists.similarities_of_rows(x[own], own, x, out=rows, **given)
        np.testing.assert_array_equal(memory.to_host(rows)[:, :n], whole[numbers, :n])
        columns = np.sort(rng.choice(n, 129, replace=False))
        some = memory.to_device(np.zeros((count, 129), dtype))
        others = memory.to_device(columns)
        lists.similarities_of_columns(x[own], own, x[others], others, out=some, **given)
        np.testing.assert_array_equal(memory.to_host(some), whole[numbers[:, None], columns])
