"""Fuzzy c-means kernels on the CPU against the definition in float64 NumPy, with every membership stored."""

from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from mgclust import kernels
from mgclust.kernels.fuzzy_c_means import cpu as _cpu_fuzzy
from mgclust.kernels.toolkit import threads
from mgclust.kernels.toolkit.simd import WIDTH, load, store
from mgclust.kernels.toolkit.simd_steps import log2_of

cpu = kernels.load("cpu")

FUZZIFIERS = [1.1, 1.5, 2.0, 3.0, 10.0]
REALS = [np.float32, np.float64]


def shares(x: np.ndarray, centers: np.ndarray, m: float) -> tuple[np.ndarray, np.ndarray]:
    """Squared distances and memberships."""
    s = ((x.astype(np.float64)[:, None] - centers.astype(np.float64)) ** 2).sum(-1)
    least = s.min(axis=1, keepdims=True)
    ratio = np.divide(least, s, out=np.ones_like(s), where=s > 0)
    p = ratio ** (1 / (m - 1))
    return s, p / p.sum(axis=1, keepdims=True)


def textbook(x: np.ndarray, centers: np.ndarray, m: float, weights: np.ndarray | None = None) -> np.ndarray:
    """What `fuzzy_sums` adds for one model."""
    s, u = shares(x, centers, m)
    w = np.ones((len(x), 1)) if weights is None else weights.astype(np.float64)[:, None]
    g = w * u**m
    logarithms = np.log(u, out=np.zeros_like(u), where=u > 0)
    scores = [(g * s).sum(), (w * u * u).sum(), -(w * u * logarithms).sum()]
    return np.concatenate([(g.T @ x.astype(np.float64)).ravel(), g.sum(axis=0), scores])


def sums(
    x: np.ndarray,
    centers: np.ndarray,
    m: float,
    weights: np.ndarray | None = None,
    block_rows: int = 1 << 20,
    first_row: int = 0,
    out: np.ndarray | None = None,
) -> np.ndarray:
    """`fuzzy_sums` of one model or several, (blocks, models, columns)."""
    models = centers.reshape(-1, *centers.shape[-2:])
    _, c, d = models.shape
    if out is None:
        out = np.zeros((-(-len(x) // block_rows), len(models), c * d + c + 3))
    cpu.fuzzy_c_means.fuzzy_sums(
        x,
        models,
        m=m,
        weights=weights,
        first_row=first_row,
        block_rows=block_rows,
        out=out,
    )
    return out


def data(n: int, d: int, c: int, dtype: type, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Rows in groups around c places, and centres near these."""
    rng = np.random.default_rng([seed, n, d, c])
    places = 2 * rng.normal(size=(c, d))
    x = places[rng.integers(c, size=n)] + rng.normal(size=(n, d))
    return x.astype(dtype), (places + 0.3 * rng.normal(size=(c, d))).astype(dtype)


def assert_sums(
    found: np.ndarray, x: np.ndarray, centers: np.ndarray, m: float, weights: np.ndarray | None = None
) -> None:
    """Compare with the definition; sums of signed terms by the size of their terms."""
    (c, d), exact = centers.shape, textbook(x, centers, m, weights)
    size = np.concatenate([textbook(np.abs(x), centers, m, weights)[: c * d], exact[c * d :]])
    _, u = shares(x, centers, m)
    w = np.ones(len(x)) if weights is None else weights.astype(np.float64)
    size[: c * d] = ((w[:, None] * u**m).T @ np.abs(x.astype(np.float64))).ravel()
    # A relative error e of a distance is one of e / (m - 1) of a membership, and of up to m times as much in u^m.
    eps = np.finfo(x.dtype).eps
    bound = 4 * eps * (8 + np.sqrt(d) + np.sqrt(c)) * m / (m - 1)
    size[-1] += 1e-3 * w.sum()
    assert np.isfinite(found).all()
    assert (np.abs(found - exact) / np.maximum(size, 1e-300)).max() < bound


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", FUZZIFIERS)
@pytest.mark.parametrize("n, d, c", [(1, 1, 2), (31, 2, 3), (1000, 7, 5), (2085, 33, 9), (900, 64, 48), (700, 20, 130)])
def test_sums_are_those_of_the_definition(n: int, d: int, c: int, m: float, dtype: type) -> None:
    x, centers = data(n, d, c, dtype)
    assert_sums(sums(x, centers, m)[0, 0], x, centers, m)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("d", [1, 2, 3, 4, 5, 15, 16, 31, 32, 63, 95, 100, 128, 129, 300])
def test_every_width_and_way_of_adding(d: int, dtype: type) -> None:
    for c in (1, 2, 6, 11):
        x, centers = data(333, d, c, dtype)
        assert_sums(sums(x, centers, 2.0)[0, 0], x, centers, 2.0)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("d", [2, 32])
def test_a_thousand_centres(d: int, dtype: type) -> None:
    x, centers = data(1100, d, 1000, dtype)
    for m in (1.5, 2.0):
        assert_sums(sums(x, centers, m)[0, 0], x, centers, m)


def test_fuzzifier_close_to_one_is_k_means() -> None:
    x, centers = data(3000, 4, 6, np.float64)
    assert_sums(sums(x, centers, 1.001)[0, 0], x, centers, 1.001)
    _, u = shares(x, centers, 1 + 1e-9)
    found = np.empty_like(u)
    cpu.fuzzy_c_means.memberships(x, centers, m=1 + 1e-9, out=found)
    assert np.array_equal(found.argmax(axis=1), u.argmax(axis=1))
    assert found.max(axis=1).min() > 0.999


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", [1.5, 2.0])
def test_one_centre_takes_all(m: float, dtype: type) -> None:
    x, centers = data(777, 5, 1, dtype)
    found = sums(x, centers, m)[0, 0]
    assert_sums(found, x, centers, m)
    assert found[5] == 777 and found[-2] == 777 and found[-1] == 0


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", [1.001, 1.1, 2.0, 3.0, 10.0, 1e6])
def test_centres_on_a_row_share_it(m: float, dtype: type) -> None:
    x, _ = data(100, 6, 4, dtype)
    centers = np.stack([x[7], x[3], x[7], x[50], x[7]])
    u = np.empty((100, 5), dtype)
    cpu.fuzzy_c_means.memberships(x, centers, m=m, out=u)
    np.testing.assert_array_equal(u[7], np.array([1, 0, 1, 0, 1], dtype) / dtype(3))
    np.testing.assert_array_equal(u[3], [0, 1, 0, 0, 0])
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=4 * np.finfo(dtype).eps)
    if m > 1.001 or dtype is np.float64:
        assert_sums(sums(x, centers, m)[0, 0], x, centers, m)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", [1.1, 2.0])
def test_nothing_is_nan(m: float, dtype: type) -> None:
    largest, tiny = np.finfo(dtype).max, np.finfo(dtype).tiny
    x = np.array([[largest, 0], [-largest, 0], [tiny, tiny], [0, 0], [1, 1], [largest / 2, largest / 2]], dtype)
    centers = np.array([[-largest, largest], [0, tiny], [1, 1], [largest, largest]], dtype)
    u = np.empty((6, 4), dtype)
    cpu.fuzzy_c_means.memberships(x, centers, m=m, out=u)
    assert np.isfinite(u).all()
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=1e-6)
    assert not np.isnan(sums(x, centers, m)).any()
    same = np.full((70, 3), 0.1, dtype)
    found = sums(same, same[:4], m)[0, 0]
    np.testing.assert_allclose(found, textbook(same, same[:4], m), rtol=1e-6)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", [1.5, 2.0])
def test_weights(m: float, dtype: type) -> None:
    x, centers = data(1300, 6, 4, dtype)
    weights = np.random.default_rng(1).random(1300).astype(dtype)
    weights[::7] = 0
    assert_sums(sums(x, centers, m, weights)[0, 0], x, centers, m, weights)
    ones = sums(x, centers, m, np.ones(1300, dtype))
    assert ones.tobytes() == sums(x, centers, m).tobytes()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("d, c", [(3, 5), (40, 20), (32, 12)])
def test_a_model_does_not_know_of_the_others(d: int, c: int, dtype: type) -> None:
    x, centers = data(2100, d, c, dtype)
    models = np.stack([centers, centers[::-1], centers + dtype(0.5)])
    together = sums(x, models, 1.7, block_rows=1024)
    for r in range(3):
        assert together[:, r].tobytes() == sums(x, models[r], 1.7, block_rows=1024)[:, 0].tobytes()


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("d, c, m", [(3, 5, 2.0), (16, 8, 1.5), (64, 12, 2.0)])
def test_bits_do_not_depend_on_threads_or_calls(
    d: int, c: int, m: float, dtype: type, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, centers = data(9000, d, c, dtype)
    weights = np.random.default_rng(2).random(9000).astype(dtype)
    whole = sums(x, centers, m, weights, block_rows=4096)
    with threads.share(1):
        assert sums(x, centers, m, weights, block_rows=4096).tobytes() == whole.tobytes()
        monkeypatch.setattr(_cpu_fuzzy, "PARTIAL_BYTES", 1)
        assert sums(x, centers, m, weights, block_rows=4096).tobytes() == whole.tobytes()
    split = np.zeros_like(whole)
    for start, stop in [(0, 1024), (1024, 5120), (5120, 9000)]:
        part = split[start // 4096 : (stop - 1) // 4096 + 1]
        sums(x[start:stop], centers, m, weights[start:stop], first_row=start, block_rows=4096, out=part)
    assert split.tobytes() == whole.tobytes()


def test_blocks_hold_their_rows() -> None:
    x, centers = data(7000, 3, 4, np.float32)
    found = sums(x, centers, 2.0, block_rows=2048, first_row=1024, out=np.zeros((4, 1, 19)))
    for b, (start, stop) in enumerate([(0, 1024), (1024, 3072), (3072, 5120), (5120, 7000)]):
        assert_sums(found[b, 0], x[start:stop], centers, 2.0)
    again = sums(x, centers, 2.0, block_rows=2048, first_row=1024, out=found.copy())
    np.testing.assert_allclose(again, 2 * found)


def test_rows_must_begin_a_tile() -> None:
    x, centers = data(10, 3, 2, np.float32)
    with pytest.raises(ValueError, match="first_row=5"):
        sums(x, centers, 2.0, first_row=5)


def test_no_rows() -> None:
    x, centers = data(10, 3, 2, np.float32)
    assert not sums(x[:0], centers, 2.0, out=np.zeros((1, 1, 11))).any()
    cpu.fuzzy_c_means.memberships(x[:0], centers, m=2.0, out=np.empty((0, 2), np.float32))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("m", FUZZIFIERS)
@pytest.mark.parametrize("n, d, c", [(1, 1, 1), (33, 3, 4), (1000, 17, 9), (200, 100, 70)])
def test_memberships(n: int, d: int, c: int, m: float, dtype: type) -> None:
    x, centers = data(n, d, c, dtype)
    _, u = shares(x, centers, m)
    found = np.empty((n, c), dtype)
    cpu.fuzzy_c_means.memberships(x, centers, m=m, out=found)
    bound = 4 * np.finfo(dtype).eps * (4 + np.sqrt(d)) / (m - 1) + 4 * np.finfo(dtype).eps * np.sqrt(c)
    np.testing.assert_allclose(found, u, rtol=8 * bound, atol=bound)
    np.testing.assert_allclose(found.sum(axis=1), 1, rtol=np.finfo(dtype).eps * (2 + c))


@njit
def _logarithms(x, out):  # type: ignore[no-untyped-def]
    for at in range(0, len(x), WIDTH):
        store(out, at, log2_of(load(x, at)))


@pytest.mark.parametrize("dtype", REALS)
def test_logarithm(dtype: type) -> None:
    rng = np.random.default_rng(0)
    tiny = np.finfo(dtype).smallest_subnormal
    x = np.concatenate([
        [0, 1, 2, 0.5, tiny, 3 * tiny, np.finfo(dtype).tiny, np.finfo(dtype).max],
        1 + 1e-3 * rng.normal(size=1000), 2 ** rng.uniform(-120, 100, 1040),
    ]).astype(dtype)  # fmt: skip
    out = np.empty_like(x)
    _logarithms(x, out)
    assert out[0] == -np.inf and out[1] == 0 and out[2] == 1 and out[3] == -1
    exact = np.log2(x[1:].astype(np.longdouble)).astype(np.float64)
    np.testing.assert_allclose(out[1:], exact, rtol=2 * np.finfo(dtype).eps, atol=0)


@pytest.mark.parametrize("m", [1.3, 2.0])
def test_many_centres_cost_no_digits(m: float) -> None:
    rng = np.random.default_rng(5)
    x, centers = rng.normal(size=(3000, 2)).astype(np.float32), rng.normal(size=(1000, 2)).astype(np.float32)
    found, exact = np.empty((3000, 1000), np.float32), np.empty((3000, 1000))
    cpu.fuzzy_c_means.memberships(x, centers, m=m, out=found)
    cpu.fuzzy_c_means.memberships(x.astype("float64"), centers.astype("float64"), m=m, out=exact)
    np.testing.assert_allclose(found, exact, rtol=0, atol=3e-6)
