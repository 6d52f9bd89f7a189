"""Operations on vectors of 32 lanes against NumPy: each has one rounding, so the bits are NumPy's."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels.toolkit.cpu_compiler import compiled
from mgclust.kernels.toolkit.simd import (
    WIDTH,
    absolute_step,
    add,
    add_to,
    bits_below,
    bits_of,
    broadcast,
    element,
    exp2_of,
    first_lane,
    lanes_of,
    load,
    multiply,
    ordered_below,
    splat,
    square_step,
    store,
    total,
    values_below,
    values_differ,
)
from mgclust.kernels.toolkit.simd_steps import (
    add_bins,
    add_doubles,
    add_fixed,
    at_least,
    divide,
    finite_or,
    fixed,
    fma,
    greater,
    integers_below,
    lanes_above,
    largest,
    lesser,
    negative_part,
    ordered_keys,
    positive_part,
    quotient_or_one,
    reaches,
    second_largest,
    square_root,
    subtract,
    zero_unless,
)

pytestmark = pytest.mark.slow  # what is compiled takes seconds


@compiled
def values(a, b, c, at, out):
    """Every operation whose result is a vector, one row of out each."""
    x, y, z, w = load(a, at), load(b, at), load(c, at), WIDTH
    store(out, 0 * w, add(x, y))
    store(out, 1 * w, subtract(x, y))
    store(out, 2 * w, multiply(x, y))
    store(out, 3 * w, divide(x, y))
    store(out, 4 * w, fma(x, y, z))
    store(out, 5 * w, square_step(z, x, y))
    store(out, 6 * w, absolute_step(z, x, y))
    store(out, 7 * w, square_root(multiply(x, x)))
    store(out, 8 * w, quotient_or_one(x, y))
    store(out, 9 * w, lesser(x, y))
    store(out, 10 * w, greater(x, y))
    store(out, 11 * w, positive_part(x))
    store(out, 12 * w, negative_part(x))
    store(out, 13 * w, finite_or(x, z))
    store(out, 14 * w, zero_unless(values_below(x, b[at]), y))
    store(out, 15 * w, splat(b[at + 1]))
    store(out, 16 * w, broadcast(a, at + 2))


def expected_values(x, y, z):
    square = (x - y) * (x - y)
    with np.errstate(all="ignore"):
        return [
            x + y, x - y, x * y, x / y, x * y + z, z + square, z + abs(x - y), abs(x), np.where(y == 0, 1, x / y),
            np.where(x < y, x, y), np.where(x > y, x, y), np.where(x > 0, x, 0), np.where(x < 0, x, 0),
            np.where(np.isfinite(x), x, z), np.where(x < y[0], y, 0), np.full_like(x, y[1]), np.full_like(x, x[2]),
        ]  # fmt: skip


@compiled
def masks(a, b, c, numbers, at, limit, bits, out):
    """Every operation whose result is a number, one element of out each."""
    x, y, z, w = load(a, at), load(b, at), load(c, at), load(numbers, at)
    out[0] = values_below(x, limit)
    out[1] = at_least(x, limit)
    out[2] = lanes_above(x, limit)
    out[3] = reaches(x, y, z)
    out[4] = bits_below(x, bits)
    out[5] = integers_below(ordered_keys(x), bits)
    out[6] = values_differ(w, numbers[at])
    out[7] = ordered_below(x, limit, w, numbers[at + 3])
    out[8] = lanes_of(out[0])
    out[9] = first_lane(out[1] | (1 << 40))
    out[10] = bits_of(x, 5)
    out[11] = fixed(element(x, 7), 1024.0)


def mask_of(lanes):
    return sum(1 << lane for lane in np.flatnonzero(lanes).tolist())


@compiled
def sums(a, at, scale, wholes, doubles, counts, out):
    """Every operation that adds."""
    x = load(a, at)
    add_fixed(wholes, at, x, scale)
    add_doubles(doubles, at, x)
    add_to(counts, at, 3)
    out[0] = total(x)


@compiled
def bins(a, at, shared, lanes, low, shift, counts):
    add_bins(counts, shared, load(a, at), lanes, low, shift)


@compiled
def powers(a, out):
    for at in range(0, len(a), WIDTH):
        store(out, at, exp2_of(load(a, at)))


@compiled
def two_largest(a, out):
    """The two largest of two vectors."""
    x, y = load(a, 0), load(a, WIDTH)
    high, low = greater(x, y), lesser(x, y)
    out[0], out[1] = largest(high), second_largest(high, low)


REALS = (np.float32, np.float64)


@pytest.mark.parametrize("dtype", REALS)
def test_the_two_largest(dtype, rng):
    """Among equal ones, and those of -inf, too."""
    for values in (2, 3, 9, 1000):
        for _ in range(20):
            a = rng.integers(0, values, 2 * WIDTH).astype(dtype)
            a[a == 0] = -np.inf
            out = np.zeros(2, dtype)
            two_largest(a, out)
            assert out.tolist() == np.sort(a)[:-3:-1].tolist()


@pytest.fixture(params=REALS, ids=["float32", "float64"])
def lanes(request, rng):
    """Three arrays, with an element on each side of the lanes; of few digits, so that products are exact."""
    x, y, z = (rng.integers(-64, 64, size=(3, WIDTH + 2)) / 8).astype(request.param)
    x[3:8] = [np.inf, -np.inf, np.nan, -0.0, 0.0]
    y[5:10] = [1.0, 0.0, np.nan, -0.0, np.inf]
    return x, y, z


def test_vectors(lanes):
    a, b, c = lanes
    out = np.full(17 * WIDTH, np.nan, a.dtype)
    values(a, b, c, 1, out)
    with np.errstate(all="ignore"):
        expected = np.array(expected_values(*(each[1:-1] for each in lanes)), a.dtype)
    for row, (found, wanted) in enumerate(zip(out.reshape(17, WIDTH), expected, strict=True)):
        np.testing.assert_array_equal(found, wanted, err_msg=f"operation {row}")
        real = ~np.isnan(wanted)
        np.testing.assert_array_equal(np.signbit(found[real]), np.signbit(wanted[real]), err_msg=f"operation {row}")


def test_masks_and_numbers(lanes):
    a, b, c = lanes
    numbers = np.random.default_rng(1).integers(-3, 3, len(a)).astype(np.int32)
    a[20], numbers[20], limit = 0.5, -4, a.dtype.type(0.5)  # one that is neither below nor above
    integers = np.int32 if a.dtype == np.float32 else np.int64
    bits = int(np.array(limit).view(integers))
    out = np.zeros(12, np.int64)
    masks(a, b, c, numbers, 1, limit, bits, out)
    x, y, z, w = a[1:-1], b[1:-1], c[1:-1], numbers[1:-1]
    with np.errstate(all="ignore"):
        below, least = x < limit, x >= limit
        expected = [
            mask_of(below), mask_of(least), mask_of(x > limit), mask_of((x >= y) | (z > 0)),
            mask_of(x.view(integers) < bits), mask_of(below), mask_of(w != w[0]), mask_of((x <= limit) & (w < w[3])),
            int(below.sum()), int(np.flatnonzero(least)[0]), int(x.view(integers)[5]),
            int(np.rint(float(x[7]) * 1024.0)),
        ]  # fmt: skip
    assert out.tolist() == expected


def test_sums(lanes):
    a = np.nan_to_num(lanes[0], posinf=3, neginf=-3) / 3
    wholes, doubles, counts = np.ones(len(a), np.int64), np.ones(len(a)), np.ones(len(a), np.int64)
    out = np.zeros(1, a.dtype)
    sums(a, 1, 2.0**20, wholes, doubles, counts, out)
    inner = np.arange(len(a)) % (len(a) - 1) > 0  # neither what is before nor what is behind the vector
    wide = a.astype(np.float64)
    np.testing.assert_array_equal(wholes, 1 + np.where(inner, np.rint(wide * 2.0**20), 0).astype(np.int64))
    np.testing.assert_array_equal(doubles, 1 + np.where(inner, wide, 0))
    assert counts.tolist() == [1, 4] + [1] * WIDTH
    halves = a[1:-1]
    while len(halves) > 1:
        halves = halves[: len(halves) // 2] + halves[len(halves) // 2 :]
    assert out[0] == halves[0]


@pytest.mark.parametrize("shared", [False, True], ids=["own", "shared"])
@pytest.mark.parametrize("dtype", REALS)
def test_bins(dtype, shared, rng):
    a = rng.uniform(1, 2, WIDTH + 2).astype(dtype)
    a[4:9] = a[9]  # several lanes in one bin
    keys = a[1:-1].view(f"i{a.itemsize}").astype(np.int64)
    low, shift = int(keys.min()), np.finfo(dtype).nmant - 6
    counts, lanes = np.ones(70, np.int64), rng.random(WIDTH) < 0.7
    expected = counts.copy()
    np.add.at(expected, 1 + ((keys - low) >> shift)[lanes], 1)
    bins(a, 1, shared, mask_of(lanes), low, shift, counts)
    np.testing.assert_array_equal(counts, expected)
    bins(a, 1, shared, 0, low, shift, counts)
    np.testing.assert_array_equal(counts, expected)


@pytest.mark.parametrize("dtype", REALS)
def test_powers_of_two(dtype, rng):
    lowest = np.finfo(dtype).minexp
    t = np.concatenate([[0, -1, -0.5, lowest, lowest - 1, -1e5, -np.inf, -1e-30], -rng.uniform(0, -lowest, 1016)])
    t = t.astype(dtype)
    out = np.full_like(t, np.nan)
    powers(t, out)
    assert out[[0, 1, 3]].tolist() == [1, 0.5, np.finfo(dtype).tiny] and not out[4:7].any()
    t, out = np.delete(t, [4, 5, 6]), np.delete(out, [4, 5, 6])
    np.testing.assert_allclose(out, np.exp2(t.astype(np.longdouble)).astype(dtype), rtol=3 * np.finfo(dtype).eps)
