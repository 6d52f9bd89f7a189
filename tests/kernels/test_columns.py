"""Message passing on some columns beside plain NumPy, and kernels of GPUs, run on the CPU, beside those of CPUs."""

from __future__ import annotations

import copy

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.affinity_propagation.messages import RECENT_ARGMAXES, Iteration, padded
from mgclust.kernels.affinity_propagation.sparse_forms import cpu_columns
from mgclust.kernels.affinity_propagation.sparse_forms.columns import ColumnMessages, load_columns
from support import cuda_on_cpu

REALS = (np.float32, np.float64)


@pytest.fixture
def columns(device):
    return load_columns(device)


@pytest.fixture
def memory(device):
    return load(device).memory


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    if cuda_on_cpu.compiler() is None:
        pytest.skip("there is no C++ compiler")
    folder = tmp_path_factory.mktemp("kernels")
    with cuda_on_cpu.gpu_modules(folder, "affinity_propagation.sparse_forms.gpu_columns") as (module,):
        yield module


def dyadic(rng, *shape, dtype):
    """Numbers whose products and sums are exact."""
    return (rng.integers(-512, 512, shape) / 64).astype(dtype)


def expected_sums(s, u, sigma, scale, n):
    return np.rint(np.maximum(0, sigma * s[:, :n].astype("float64") - u[:, None]) * scale).astype("int64").sum(axis=0)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("m", "n"), [(1, 1), (200, 70), (3, 700), (700, 1300)])
def test_sums_of_positive_responsibilities(columns, memory, m, n, dtype):
    rng = np.random.default_rng([m, n])
    s, u = np.full((m, padded(n)), -np.inf, dtype), dyadic(rng, m, dtype=dtype)
    s[:, :n] = dyadic(rng, m, n, dtype=dtype)
    s[np.arange(m), np.arange(m) % n] = -np.inf
    sums = memory.to_device(np.arange(2 * n + 1))
    given = {"n": n, "sigma": 0.75, "scale": 2.0**20}
    columns.add_positive(memory.to_device(s), memory.to_device(u), **given, out=sums)
    expected = np.arange(2 * n + 1)
    expected[:n] += expected_sums(s, u, 0.75, 2.0**20, n)
    np.testing.assert_array_equal(memory.to_host(sums), expected)


@pytest.mark.parametrize("share", [0.5, 0.02, 0.0])
@pytest.mark.parametrize(("first", "m", "n"), [(0, 700, 700), (0, 128, 128), (256, 300, 1000), (0, 130, 1000)])
def test_sums_without_similarities(columns, device, memory, first, m, n, share):
    """Of a GPU's products: those of the similarities that are written, twice, with parts left out the second time."""
    rng = np.random.default_rng([m, n])
    x = rng.normal(size=(8, 40))[np.arange(n) * 8 // n] + 0.3 * rng.normal(size=(n, 40))
    y = memory.to_device((x / np.linalg.norm(x, axis=1, keepdims=True)).astype("float32"))
    rows = y[first : first + m]
    given = {"norm": "l2-dot", "factor": 0.25, "first_row": first, "seed": 7}
    s = load(device).xp.full((m, padded(n)), -np.inf, "float32")
    load(device).affinity_propagation.similarities(rows, y, **given, y_start=0, out=s)
    most = None
    for shift in (0.0, 0.01, -0.02):
        u = np.quantile(memory.to_host(s)[:, :n], 1 - share, axis=1).astype("float32") + np.float32(shift)
        u[::5] = 1e30
        numbers = {"sigma": 0.97, "scale": 2.0**40}
        expected, sums = (load(device).xp.zeros(2 * n + 1, "int64") for _ in range(2))
        columns.add_positive(s, memory.to_device(u), n=n, **numbers, out=expected)
        most = columns.add_positive_products(rows, y, memory.to_device(u), most, **given, **numbers, out=sums)
        if device == "cpu":
            assert most is None
            return
        np.testing.assert_array_equal(memory.to_host(sums), memory.to_host(expected))
    largest, found = memory.to_host(s)[:, :n], memory.to_host(most)
    for i, k in np.ndindex(found.shape):
        assert found[i, k] == largest[i * 128 : i * 128 + 128, k * 128 : k * 128 + 128].max()


def replayed(s, a, c, u, first, sigmas, dampings):
    """The equation, in the type of the arrays."""
    a = a.copy()
    for t, (sigma, damping) in enumerate(zip(sigmas, dampings, strict=True)):
        r = np.maximum(0, sigma * s - u[t, first : first + len(s), None])
        a = damping * a + (1 - damping) * np.minimum(0, c[t] - r)
    return a


@pytest.mark.parametrize("dtype", REALS)
def test_replay(columns, memory, dtype):
    rng = np.random.default_rng(0)
    s, a = dyadic(rng, 50, 70, dtype=dtype), -abs(dyadic(rng, 50, 70, dtype=dtype))
    s[3, 4], a[5, 6] = -np.inf, -np.inf
    c, u = dyadic(rng, 3, 70, dtype=dtype), dyadic(rng, 3, 90, dtype=dtype)
    numbers = [0.5, 0.75, 0.5], [0.5, 0.25, 0.5]
    found = memory.to_device(a.copy())
    columns.replay(*map(memory.to_device, (s,)), found, memory.to_device(c), memory.to_device(u), 30, *numbers)
    np.testing.assert_array_equal(memory.to_host(found), replayed(s, a, c, u, 30, *numbers))


@pytest.mark.parametrize("dtype", REALS)
def test_listed_availabilities_find_their_places(columns, memory, dtype):
    rng = np.random.default_rng(0)
    own = rng.integers(0, 40, 30)
    begin = np.cumsum(own + 3) - own - 3
    column = np.concatenate([rng.permutation(100)[: each + 3] for each in own]).astype("int32")
    values = rng.normal(size=len(column)).astype(dtype)
    where = np.full(100, -1, "int32")
    where[[3, 50, 99]] = 2, 0, 1
    out = rng.normal(size=(30, 3)).astype(dtype)
    expected = out.copy()
    for i in range(30):
        for q in range(begin[i], begin[i] + own[i]):
            if where[column[q]] >= 0:
                expected[i, where[column[q]]] = values[q]
    found = memory.to_device(out.copy())
    columns.place_listed(*map(memory.to_device, (begin, own, column, values, where)), found)
    np.testing.assert_array_equal(memory.to_host(found), expected)


def state(rng, m, n, k, dtype, first_row):
    """Messages of rows with up to six recent columns; coarse, since devices round R(k,k) and u in different ways."""

    def coarse(values):
        return np.rint(np.asarray(values) * 4096) / 4096

    kept = rng.permutation(n)[:k].astype("int32")
    s, a = (-coarse(rng.random((m, k))).astype(dtype) for _ in range(2))
    s[(kept[None] == first_row + np.arange(m)[:, None])] = -np.inf
    recent = {name: np.zeros((m, RECENT_ARGMAXES), dtype) for name in ("recent_s", "recent_e", "recent_a")}
    recent_argmax, recent_place = (np.full((m, RECENT_ARGMAXES), -1, "int32") for _ in range(2))
    for i in range(m):
        count = rng.integers(0, 7)
        recent_argmax[i, :count] = rng.permutation(n)[:count]
        recent_argmax[i, :count][recent_argmax[i, :count] == first_row + i] = (first_row + i + 1) % n
        recent_argmax[i, :count] = [*dict.fromkeys(recent_argmax[i, :count]), *[-1] * count][:count]
        for h in np.flatnonzero(recent_argmax[i] >= 0):
            recent["recent_s"][i, h], recent["recent_a"][i, h] = -coarse(rng.random(2))
            recent["recent_e"][i, h] = -rng.choice([0, 2.0**-100, 0.25])
            place = np.flatnonzero(kept == recent_argmax[i, h])
            if len(place):
                recent_place[i, h], recent["recent_s"][i, h], a[i, place[0]] = place[0], s[i, place[0]], -np.inf
    vectors = {name: coarse(rng.normal(size=n)) for name in ("r_diagonal", "a_diagonal")}
    return ColumnMessages(
        n=n, first_row=first_row, u=-coarse(rng.random(m)), recent_argmax=recent_argmax, **recent,
        recent_most=np.zeros(1, "int32"), c=coarse(rng.normal(size=n)).astype(dtype), **vectors,
        preference=np.full(n, -3.0), sums=np.zeros(2 * n + 1, "int64"),
        totals=np.zeros(2 * n + 1, "int64"), progress=np.zeros(2, "int64"), exemplars=np.zeros((1, n), "uint8"),
        last_exemplars=np.zeros(n, "uint8"), counts=np.zeros((1, 2), "int64"),
        a_column=-coarse(rng.random(n)).astype(dtype), recent_place=recent_place, columns=kept, s=s, a=a,
        nearest=-coarse(0.3 * rng.random(m)).astype(dtype), slack=np.zeros(m, dtype), undecided=np.zeros(m, "uint8"),
    )  # fmt: skip


def recent_of(messages, i):
    """The recent columns of a row, in any order."""
    m, places = messages, np.flatnonzero(messages.recent_argmax[i] >= 0)
    return sorted(
        (m.recent_argmax[i, h], m.recent_place[i, h], m.recent_s[i, h], m.recent_e[i, h], m.recent_a[i, h])
        for h in places
    )


@pytest.mark.quick("*-float32")
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("m", "n", "k"), [(5, 40, 3), (64, 300, 40), (30, 100, 100)])
def test_rows_on_a_gpu(gpu, m, n, k, dtype):
    """Several iterations, with rows that stay undecided in some: the bits of the CPU's."""
    rng = np.random.default_rng([m, k])
    here = state(rng, m, n, k, dtype, 7)
    there = copy.deepcopy(here)
    undecided = 0
    for turn, outside in enumerate((-9.0, 0.5, 0.0, -9.0)):
        numbers = Iteration(0.75, 0.875, 0.5, 0.75, 2.0**30, float(np.finfo(dtype).eps) / 8)
        rows = np.arange(m)
        for module, messages in ((cpu_columns, here), (gpu, there)):
            messages.sums[...] = 0
            module.pass_column_rows(messages, rows, numbers, again=turn == 3, outside=outside)
        undecided += int(here.undecided.sum())
        for name in ("u", "a", "sums", "slack", "undecided", "recent_most"):
            np.testing.assert_array_equal(getattr(there, name), getattr(here, name), err_msg=f"{name}, turn {turn}")
        assert [recent_of(here, i) for i in rows] == [recent_of(there, i) for i in rows]
    assert 0 < undecided < 4 * m


@pytest.mark.quick("float32")
@pytest.mark.parametrize("dtype", REALS)
def test_a_tie_with_a_column_that_is_not_kept_leaves_a_row_undecided(gpu, dtype):
    """Its column may be lower, and then it is the one that E is added to."""
    rows, numbers = np.arange(30), Iteration(0.75, 0.875, 0.5, 0.75, 2.0**30, float(np.finfo(dtype).eps) / 8)
    first = state(np.random.default_rng(3), 30, 100, 20, dtype, 7)

    def passed(module, nearest, outside):
        messages = copy.deepcopy(first)
        messages.nearest[...] = nearest
        module.pass_column_rows(messages, rows, numbers, again=False, outside=outside)
        return messages

    for module in (cpu_columns, gpu):
        alone = passed(module, 0, -99.0)
        assert not alone.undecided.any()
        second = alone.slack  # the second largest A + S
        assert passed(module, second, 0.0).undecided.all()
        assert not passed(module, np.nextafter(second, dtype(-np.inf)), 0.0).undecided.any()


@pytest.mark.quick("float32")
@pytest.mark.parametrize("dtype", REALS)
def test_course_on_a_gpu(gpu, dtype):
    test_replay(gpu, load("cpu").memory, dtype)
    test_listed_availabilities_find_their_places(gpu, load("cpu").memory, dtype)
    for n in (70, 96):  # 96: rows without padding, which end within a block of threads
        test_sums_of_positive_responsibilities(gpu, load("cpu").memory, 200, n, dtype)
