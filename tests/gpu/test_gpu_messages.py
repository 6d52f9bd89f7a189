"""Kernels of affinity propagation and sums over labels on a GPU: the CPU's answers, and bits no split changes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mgclust.algorithms.affinity_propagation.message_passing import MessagePassing
from mgclust.algorithms.affinity_propagation.rows.message_rows import DenseRows
from mgclust.algorithms.affinity_propagation.rows.similarity_matrix import similarity_matrix
from mgclust.data import open_dataset
from mgclust.engine.dask.cluster import connect
from mgclust.engine.spmd import RunSpec, run
from mgclust.kernels import load
from mgclust.kernels.affinity_propagation.messages import padded

pytestmark = pytest.mark.gpu

REALS = ("float32", "float64")


@pytest.fixture
def gpu():
    return load("cuda")


@pytest.fixture
def cpu():
    return load("cpu")


def points(n: int, d: int, dtype: str) -> np.ndarray:
    rng = np.random.default_rng([n, d])
    centers = 3 * rng.normal(size=(7, d))
    return (centers[rng.integers(7, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def matrix(n: int, dtype: str, seed: int = 0) -> np.ndarray:
    """Similarities as ranks hold them."""
    s = np.full((n, padded(n)), -np.inf, dtype)
    s[:, :n] = -(np.random.default_rng([seed, n]).random((n, n)) ** 3)
    np.fill_diagonal(s, -np.inf)
    return s


def numbered(n: int, sizes: tuple[int, ...]) -> tuple[np.ndarray, int]:
    rng = np.random.default_rng(n)
    labels = np.stack([rng.integers(size, size=n) for size in sizes])
    labels[0, rng.random(n) < 0.6] = 0
    return (labels + np.cumsum((0, *sizes[:-1]))[:, None]).astype(np.int32), sum(sizes)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l2-dot"])
@pytest.mark.parametrize("d", [1, 3, 16, 17, 64, 120, 300])
def test_similarities(gpu, cpu, d, norm, dtype):
    n = 2100
    x = points(n, d, dtype)
    on_gpu = gpu.memory.to_device(x)
    out = gpu.xp.full((n, padded(n)), 7, dtype)
    options = {"norm": norm, "factor": 0.25, "seed": (5 << 32) + 9}
    gpu.affinity_propagation.similarities(on_gpu, on_gpu, first_row=0, y_start=0, out=out, **options)
    ours = gpu.memory.to_host(out)
    theirs = np.full((n, padded(n)), 7, dtype)
    cpu.affinity_propagation.similarities(x, x, first_row=0, y_start=0, out=theirs, **options)
    assert (np.diagonal(ours) == -np.inf).all()
    assert (ours[:, n:] == 7).all()
    off = ~np.eye(n, padded(n), dtype=bool)
    largest = float((x.astype("float64") ** 2).sum(axis=1).max())
    tolerance = 8 * np.finfo(dtype).eps * largest if norm == "l2-dot" else 0.0
    np.testing.assert_allclose(ours[off], theirs[off], rtol=2e-6 if dtype == "float32" else 1e-14, atol=tolerance)
    # The same bits in other pieces, one of them not starting at the first row.
    pieces = gpu.xp.full_like(out, 7)
    for rows in (slice(0, 1024), slice(1024, n)):
        for first, last in ((0, 1024), (1024, n)):
            part = gpu.xp.ascontiguousarray(on_gpu[first:last])
            gpu.affinity_propagation.similarities(
                on_gpu[rows], part, first_row=rows.start, y_start=first, out=pieces[rows], **options
            )
    np.testing.assert_array_equal(gpu.memory.to_host(pieces), ours)


@pytest.mark.parametrize("kind", ["clusters", "twins", "tiny", "not finite"])
@pytest.mark.parametrize(("n", "d"), [(1, 120), (100, 50), *((2100, d) for d in (17, 120, 128, 129, 784))])
def test_similarities_on_hopper_are_those_of_other_devices(gpu, monkeypatch, n, d, kind):
    from mgclust.kernels.affinity_propagation.similarities import gpu_similarities

    if not gpu_similarities.is_hopper():
        pytest.skip("needs compute capability 9.0")
    x = points(n, d, "float32")
    if kind == "twins":
        x[n // 2 :] = x[: n - n // 2]
    if kind == "tiny":
        x *= np.float32(1e-22)
    if kind == "not finite":
        x[n // 2, d // 2], x[n // 3, 0] = np.inf, np.nan
        x[0] = 3e38
    on_gpu = gpu.memory.to_device(x)
    middle = n // 2 // 128 * 128
    found = []
    for hopper in (True, False):
        monkeypatch.setattr(gpu_similarities, "is_hopper", lambda hopper=hopper: hopper)
        for width, cuts in ((padded(n), (0, n)), (n + 3, (0, n)), (padded(n), (0, middle, n))):
            out = gpu.xp.full((n, width), 7, "float32")
            pieces = [slice(*cut) for cut in itertools.pairwise(cuts) if cut[1] > cut[0]]
            for rows, columns in itertools.product(pieces, pieces):
                place = {"first_row": rows.start, "y_start": columns.start, "out": out[rows]}
                gpu.affinity_propagation.similarities(
                    on_gpu[rows], on_gpu[columns], norm="l2-dot", factor=0.25, seed=(5 << 32) + 9, **place
                )
            found.append(gpu.memory.to_host(out))
    for ours, theirs in zip(found[:3], found[3:], strict=True):
        np.testing.assert_array_equal(ours.view("int32"), theirs.view("int32"))


@pytest.mark.parametrize("d", [40, 120, 784])
def test_products_are_as_accurate_as_float32_sums(gpu, d):
    rng = np.random.default_rng(d)
    x = (rng.normal(size=(1500, d)) * rng.choice([0.01, 1.0, 30.0], size=d)).astype("float32")
    on_gpu = gpu.memory.to_device(x)
    out = gpu.xp.empty((1500, padded(1500)), "float32")
    gpu.affinity_propagation.similarities(
        on_gpu, on_gpu, norm="l2-dot", factor=1.0, first_row=0, y_start=0, seed=1, out=out
    )
    wide = x.astype("float64")
    norms = (wide**2).sum(axis=1)
    exact = -np.maximum(norms[:, None] + norms[None] - 2 * wide @ wide.T, 0)
    off = ~np.eye(1500, dtype=bool)
    error = np.abs(gpu.memory.to_host(out)[:, :1500] - exact)[off] / (norms[:, None] + norms[None])[off]
    # The noise that breaks ties is up to 1.2e-7 of S and 6e-8 in the mean.
    assert error.max() < 6e-7
    assert error.mean() < 1e-7


@pytest.mark.parametrize("dtype", REALS)
def test_jitter(gpu, cpu, dtype):
    s = matrix(777, dtype)
    ours, theirs = gpu.memory.to_device(s), s.copy()
    options = {"n": 777, "seed": 11, "draw": 3, "tiny": 1000.0}
    gpu.affinity_propagation.jitter(ours, gpu.xp.arange(5000, 5777), **options)
    cpu.affinity_propagation.jitter(theirs, np.arange(5000, 5777), **options)
    np.testing.assert_array_max_ulp(gpu.memory.to_host(ours)[:, :770], theirs[:, :770], maxulp=1)
    assert (gpu.memory.to_host(ours) != s).mean() > 0.3
    assert (np.diagonal(gpu.memory.to_host(ours)) == -np.inf).all()


@pytest.mark.parametrize("dtype", REALS)
def test_value_histogram(gpu, cpu, dtype):
    s = matrix(700, dtype)
    s[s > -0.1] += 0.2  # both signs
    bits = 8 * s.dtype.itemsize
    for low, shift in ((-(1 << (bits - 1)), bits - 11), (-(1 << (bits - 2)), bits - 20), (0, bits - 14)):
        ours, theirs = gpu.xp.zeros(2049, "int64"), np.zeros(2049, np.int64)
        gpu.pairs.value_histogram(gpu.memory.to_device(s), n=700, low=low, shift=shift, out=ours)
        cpu.pairs.value_histogram(s, n=700, low=low, shift=shift, out=theirs)
        np.testing.assert_array_equal(gpu.memory.to_host(ours), theirs)


@pytest.mark.parametrize("dtype", REALS)
def test_best_columns(gpu, dtype):
    s = np.round(matrix(900, dtype), 1)
    for count in (1, 5, 300):
        columns = np.sort(np.random.default_rng(count).choice(900, count, replace=False))
        out = gpu.xp.full(900, -1, "int32")
        gpu.label_sums.best_columns(gpu.memory.to_device(s), gpu.xp.asarray(columns), out=out)
        np.testing.assert_array_equal(gpu.memory.to_host(out), s[:, columns].argmax(axis=1))


@pytest.mark.parametrize("dtype", REALS)
def test_same_label_sums(gpu, cpu, dtype):
    s, labels = matrix(1300, dtype), np.random.default_rng(1).integers(9, size=1300).astype(np.int32)
    ours, theirs = gpu.xp.zeros(1300, "int64"), np.zeros(1300, np.int64)
    for rows in (slice(0, 400), slice(400, 1300)):
        options = {"n": 1300, "first_row": rows.start, "scale": 2.0**30}
        gpu.label_sums.same_label_sums(gpu.memory.to_device(s[rows]), gpu.memory.to_device(labels), out=ours, **options)
        cpu.label_sums.same_label_sums(np.ascontiguousarray(s[rows]), labels, out=theirs, **options)
    np.testing.assert_array_equal(gpu.memory.to_host(ours), theirs)


@pytest.mark.parametrize("dtype", REALS)
def test_group_sums(gpu, cpu, dtype):
    x, labels = points(5000, 13, dtype), np.random.default_rng(1).integers(40, size=5000).astype(np.int32)
    ours, theirs = gpu.xp.zeros((40, 13), "int64"), np.zeros((40, 13), np.int64)
    gpu.label_sums.group_sums(gpu.memory.to_device(x), gpu.memory.to_device(labels), scale=2.0**40, out=ours)
    cpu.label_sums.group_sums(x, labels, scale=2.0**40, out=theirs)
    np.testing.assert_array_equal(gpu.memory.to_host(ours), theirs)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("root", [False, True])
@pytest.mark.parametrize(
    "m, k, d, norm, sizes",
    [
        (300, 3000, 2, "l2", (50,)),
        (2000, 1030, 3, "l1", (2, 300)),
        (70, 5000, 16, "l2", (7, 1)),
        (333, 3100, 17, "l2", (9, 40, 2)),
        (1500, 2100, 64, "l1", (1200,)),
        (700, 3000, 40, "l2", (3, 500)),
        (20000, 1100, 120, "l2", (5,)),
    ],
)
def test_cluster_sums(gpu, cpu, m, k, d, norm, sizes, root, dtype):
    x, y = points(m, d, dtype), points(k, d, dtype)[::-1].copy()
    labels, clusters = numbered(k, sizes)
    options = {"norm": norm, "root": root, "scale": 2.0**30}
    ours, theirs = gpu.xp.full((m, clusters), 2, "int64"), np.full((m, clusters), 2, np.int64)
    whole = [gpu.memory.to_device(part) for part in (x, y, labels)]
    gpu.label_sums.cluster_sums(*whole, y_start=1024, out=ours, **options)
    cpu.label_sums.cluster_sums(x, y, labels, y_start=1024, out=theirs, **options)
    ours = gpu.memory.to_host(ours)
    np.testing.assert_allclose(ours, theirs, rtol=1e-6 if dtype == "float32" else 1e-12, atol=2**12)
    pieces = gpu.xp.full((m, clusters), 2, "int64")
    for rows in (slice(0, m // 3), slice(m // 3, m)):
        for first in range(0, k, 1024):
            columns = slice(first, min(first + 1024, k))
            few = gpu.xp.ascontiguousarray(whole[2][:, columns])
            gpu.label_sums.cluster_sums(
                whole[0][rows], whole[1][columns], few, y_start=first, out=pieces[rows], **options
            )
    np.testing.assert_array_equal(gpu.memory.to_host(pieces), ours)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("sizes", [(3,), (1000, 2, 40)])
def test_add_by_label(gpu, cpu, sizes, dtype):
    s = matrix(2500, dtype)[:333]
    labels, clusters = numbered(2500, sizes)
    ours, theirs = gpu.xp.zeros((333, clusters), "int64"), np.zeros((333, clusters), np.int64)
    gpu.label_sums.add_by_label(gpu.memory.to_device(s), gpu.memory.to_device(labels), n=2500, scale=2.0**40, out=ours)
    cpu.label_sums.add_by_label(s, labels, n=2500, scale=2.0**40, out=theirs)
    relative = 1e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(gpu.memory.to_host(ours), theirs, rtol=relative, atol=2.0**20)


@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("m, k, d", [(1000, 300, 40), (3, 5, 40), (2000, 100, 5)])
def test_reduced_distances_of_many_pairs(gpu, cpu, m, k, d, norm):
    x, y = points(m, d, "float64"), points(k, d, "float64")
    ours = gpu.pairs.reduced_distances(gpu.memory.to_device(x), gpu.memory.to_device(y), norm=norm)
    np.testing.assert_allclose(gpu.memory.to_host(ours), cpu.pairs.reduced_distances(x, y, norm=norm), rtol=1e-13)


def passes(context, plan, extra):
    """Which rows were exemplars after every eighth iteration, u, and the most recent places of a row.

    `extra` columns of each row are recent from the start, with an E that changes nothing.
    """
    n, xp = context.dataset_shape[0], context.kernels.xp
    similarities = similarity_matrix(context, "precomputed", 0)
    similarities.synchronize()
    messages = MessagePassing(context, DenseRows(context, similarities), np.full(n, plan[0][0]))
    state, rows = messages.messages, xp.arange(n)
    state.recent_argmax, state.recent_e, state.recent_a = (
        xp.pad(places, ((0, 0), (0, 32)), constant_values=empty)
        for places, empty in ((state.recent_argmax, -1), (state.recent_e, 0), (state.recent_a, 0))
    )
    for place in range(extra):
        column = (rows + 7 * place + 1) % n
        state.recent_argmax[:, place], state.recent_e[:, place] = column, -1e-30
        state.a[rows, column] = -xp.inf
    exemplars = []
    for preference, damping in plan:
        messages.set_preference(np.full(n, preference))
        messages.iterate([damping] * 8)
        exemplars.append(messages.exemplars(7))
    return exemplars, context.kernels.memory.to_host(messages.messages.u), int(messages.messages.recent_most[0])


@pytest.mark.parametrize("forget", [True, False])
@pytest.mark.parametrize("dtype", REALS)
def test_messages_of_every_kind(gpu, cpu, dtype, forget, monkeypatch):
    """Low preferences make more columns positive than a block remembers; rows with more than 32 recent columns."""
    if not forget:
        for kernels in (gpu, cpu):
            original = kernels.affinity_propagation.pass_rows
            monkeypatch.setattr(
                kernels.affinity_propagation,
                "pass_rows",
                lambda m, numbers, original=original: original(m, numbers._replace(negligible=0.0)),
            )
    rng = np.random.default_rng(0)
    s = -rng.random((1500, 1500)).astype(dtype)
    plan = (
        [(-0.5, 0.5)] * 3 + [(-50.0, 0.5)] * 5 + [(-0.1, 0.5)] * 5 + [(p, 0.7) for p in (-9.0, -0.2, -2.0, -0.05)] * 3
    )
    found = []
    for device in ("cpu", "cuda"):
        with connect(client=None, device=device) as cluster:
            parameters = {"plan": plan, "extra": 0 if forget else 35}
            outcome = run(RunSpec(passes, parameters, dtype=dtype, resident=False), open_dataset(s), cluster)
            found.append(outcome.value)
    (ours, u, places), (theirs, other_u, other_places) = found
    assert forget or min(places, other_places) > 32
    if dtype == "float64":
        assert places == other_places
        for k, (left, right) in enumerate(zip(ours, theirs, strict=True)):
            np.testing.assert_array_equal(left, right, err_msg=str(k))
        np.testing.assert_allclose(other_u, u, rtol=0, atol=1e-5)
    else:  # these messages amplify every rounding: only the beginning can be compared
        for left, right in zip(ours[:2], theirs[:2], strict=True):
            assert len(np.intersect1d(left, right)) >= 0.95 * len(np.union1d(left, right))
