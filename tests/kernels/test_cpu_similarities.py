"""Similarities and their tie noise on the CPU against plain NumPy and published numbers."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numba import njit

from mgclust import kernels
from mgclust.kernels.affinity_propagation.messages import padded
from mgclust.kernels.toolkit.cpu_compiler import signed
from mgclust.kernels.toolkit.simd import load, store
from mgclust.kernels.toolkit.simd_random import random_bytes

cpu = kernels.load("cpu")

REALS = (np.float32, np.float64)


def philox(counter: tuple[int, ...], key: tuple[int, int]) -> list[int]:
    """Philox4x32-10 as its authors write it down."""
    c, k = list(counter), list(key)
    for turn in range(10):
        if turn:
            k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & 0xFFFFFFFF, (first >> 32) ^ c[3] ^ k[1], first & 0xFFFFFFFF]
    return c


def draws(seed: int, draw: int, rows: range, columns: range) -> np.ndarray:
    """The random bytes of (seed, draw, i, k) by the plain definition."""
    key = (seed & 0xFFFFFFFF, seed >> 32)
    words = {(i, q): philox((q, i, draw, 0), key) for i in rows for q in {k // 16 for k in columns}}
    return np.array([[words[i, k // 16][k % 16 // 4] >> (8 * (k % 4)) & 255 for k in columns] for i in rows])


def fma(a: float, b: float, c: float, real: type) -> float:
    """a * b + c with one rounding."""
    try:
        return real(float(Fraction(float(a)) * Fraction(float(b)) + Fraction(float(c))))
    except OverflowError:
        return real(np.inf)


def with_noise(v: np.ndarray, drawn: np.ndarray, tiny: float) -> np.ndarray:
    limits, real = np.finfo(v.dtype), v.dtype.type
    eps, offset = float(limits.eps) / 256, tiny * float(limits.smallest_normal) / 256
    out = v.copy()
    for at in zip(*np.nonzero(np.isfinite(v)), strict=True):
        with np.errstate(over="ignore"):
            moved = fma(fma(v[at], eps, offset, real), drawn[at], v[at], real)
        out[at] = moved if np.isfinite(moved) else v[at]
    return out


@pytest.mark.parametrize(
    "counter, key, words",
    [
        ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
        ((0xFFFFFFFF,) * 4, (0xFFFFFFFF,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
        (
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            (0xA4093822, 0x299F31D0),
            (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
        ),
    ],
)
def test_reference_philox_gives_the_published_vectors(counter, key, words):
    assert tuple(philox(counter, key)) == words


@njit
def drawn(out, first, row, draw, seed):
    store(out, 0, random_bytes(load(out, 0), first, row, draw, seed))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(
    "seed, draw, row, first",
    [
        (0, 0, 0, 0),
        (1, 0, 77, 16),
        (0x299F31D0A4093822, 3, 150_000, 149_984),
        ((1 << 64) - 1, 9, (1 << 32) - 1, 1 << 32),
    ],
)
def test_random_bytes_are_philox(seed, draw, row, first, dtype):
    out = np.zeros(32, dtype)
    drawn(out, first, row, draw, signed(seed))
    assert (out == draws(seed, draw, range(row, row + 1), range(first, first + 32))[0]).all()


def test_random_bytes_give_the_first_published_vector():
    out = np.zeros(32)
    drawn(out, 0, 0, 0, 0)
    words = (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)
    assert bytes(out[:16].astype(np.uint8)) == b"".join(word.to_bytes(4, "little") for word in words)


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("n, d, factor", [(1, 2, 1.0), (37, 3, 0.5), (100, 16, 1.0)])
def test_similarities(n, d, factor, norm, dtype):
    x = np.random.default_rng([n, d]).standard_normal((n, d)).astype(dtype)
    x[n // 2 :] = x[: n - n // 2]  # duplicates
    seed, whole = 0x123456789ABCDEF, np.full((n, padded(n)), 7, dtype)
    cpu.affinity_propagation.similarities(x, x, norm=norm, factor=factor, first_row=0, y_start=0, seed=seed, out=whole)
    v = dtype(-factor) * cpu.pairs.reduced_distances(x, x, norm=norm)
    expected = with_noise(v, draws(seed, 0, range(n), range(n)), 100.0)
    np.fill_diagonal(expected, -np.inf)
    np.testing.assert_array_equal(whole[:, :n], expected)
    assert (whole[:, n:] == 7).all()
    pieces = np.full_like(whole, 7)
    for row in range(0, n, 19):
        own = pieces[row : row + 19]
        for start in (64, 0):
            y = x[start : start + 64]
            if len(y):
                cpu.affinity_propagation.similarities(
                    x[row : row + 19], y, norm=norm, factor=factor, first_row=row, y_start=start, seed=seed, out=own
                )
    assert (pieces == whole).all()


def test_similarities_refuse_a_start_within_a_block():
    x = np.zeros((2, 2))
    with pytest.raises(ValueError, match="y_start=8"):
        cpu.affinity_propagation.similarities(
            x, x, norm="l2", factor=1.0, first_row=0, y_start=8, seed=0, out=np.zeros((2, 32))
        )


@pytest.mark.parametrize("dtype", REALS)
def test_jitter(dtype):
    n, first = 45, 8
    rng = np.random.default_rng(3)
    s = np.full((11, padded(n)), -np.inf, dtype)
    s[:, :n] = -(10.0 ** rng.uniform(-20, 20, (11, n)))
    s[0, 0], s[1, 1], s[2, :3], s[3, 4] = -np.finfo(dtype).max, 0.0, -np.inf, np.finfo(dtype).max
    expected = with_noise(s[:, :n], draws(5, 2, range(first, first + 11), range(n)), 1000.0)
    out, numbers = s.copy(), np.arange(first, first + 11)
    cpu.affinity_propagation.jitter(out[:4], numbers[:4], n=n, seed=5, draw=2, tiny=1000.0)
    cpu.affinity_propagation.jitter(out[4:], numbers[4:], n=n, seed=5, draw=2, tiny=1000.0)
    np.testing.assert_array_equal(out[:, :n], expected)
    assert (out[:, n:] == -np.inf).all() and (np.isfinite(out) == np.isfinite(s)).all()
    assert (out[:, :n] != s[:, :n]).mean() > 0.5
