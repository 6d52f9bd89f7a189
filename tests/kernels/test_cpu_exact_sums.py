"""Exact sums against `math.fsum`, and their bits against every order and every way of sharing the parts out."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mgclust.kernels import load

sums = load("cpu").exact_sums
BITS = 62 - 10  # room for 1,023 parts


def total(parts: np.ndarray, exponents: np.ndarray | None = None) -> np.ndarray:
    exponents = sums.largest_exponents(parts) if exponents is None else exponents
    return sums.from_integers(sums.integer_sums(parts, exponents, bits=BITS), exponents, bits=BITS)


@pytest.mark.parametrize("shape", [(0, 3), (1,), (1, 1), (2, 0), (7, 2, 3), (1023, 5)])
def test_sums(shape, rng):
    parts = rng.normal(size=shape) * 10.0 ** rng.integers(-9, 9, size=shape)
    found = total(parts)
    assert found.shape == shape[1:] and found.dtype == np.float64
    expected = np.zeros(shape[1:])
    for place in np.ndindex(shape[1:]):
        expected[place] = math.fsum(parts[(slice(None), *place)])
    allowed = shape[0] * 2.0**-BITS * abs(parts).max(axis=0, initial=0.0)
    assert (abs(found - expected) <= allowed).all()


def test_the_largest_exponent_is_above_every_part():
    parts = np.array([[0.0, 1.0, -4.0, 5e-324, 1.5e308], [0.0, 0.5, 3.0, 0.0, 1.0]])
    exponents = sums.largest_exponents(parts)
    assert exponents.dtype == np.int32
    assert exponents[1:].tolist() == [1, 3, -1073, 1024] and exponents[0] < -1074
    np.testing.assert_array_equal(total(parts[:1]), parts[0])


def test_parts_are_rounded_to_the_nearest():
    unit = 2.0 ** (1 - BITS)
    parts, one = np.array([[0.75, -0.75, 0.5, 1.5, -0.25]]) * unit, np.ones(5, np.int32)
    assert sums.integer_sums(parts, one, bits=BITS).tolist() == [1, -1, 0, 2, 0]


def test_neither_order_nor_ranks_change_a_bit(rng):
    parts = rng.normal(size=(600, 4)) * 10.0 ** rng.integers(-12, 12, size=(600, 1))
    exponents = sums.largest_exponents(parts)
    expected = total(parts)
    assert total(parts[rng.permutation(600)]).tobytes() == expected.tobytes()
    shares = np.split(parts, [0, 1, 257])  # the first rank has none
    assert (np.max([sums.largest_exponents(share) for share in shares], axis=0) == exponents).all()
    integers = sum(sums.integer_sums(share, exponents, bits=BITS) for share in shares)
    assert sums.from_integers(integers, exponents, bits=BITS).tobytes() == expected.tobytes()


def test_as_many_of_the_largest_as_there_is_room_for():
    """No overflow: 1,023 parts that are just below their power of two."""
    parts = np.full((1023, 1), np.nextafter(8.0, 0.0))
    np.testing.assert_allclose(total(parts), 1023 * 8.0, rtol=1e-14)


@pytest.mark.parametrize("shape", [(2, 0, 3), (1, 1, 1), (3, 1024, 2), (2, 1025, 32), (1, 3000, 255), (2, 7, 700)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_sums_of_columns(device, shape, dtype, rng):
    x = (5 + rng.normal(size=shape)).astype(dtype)
    about = rng.normal(size=shape[2])
    kernels = load(device)
    on_device, place = kernels.memory.to_device(x), kernels.memory.to_device(about)
    wide = x.astype("float64")
    for found, expected in (
        (kernels.exact_sums.column_sums(on_device), wide.sum(axis=1)),
        (kernels.exact_sums.column_sums(on_device, place), ((wide - about) ** 2).sum(axis=1)),
    ):
        np.testing.assert_allclose(kernels.memory.to_host(found), expected, rtol=1e-13)
    for block in range(shape[0]):  # each by itself
        alone = kernels.exact_sums.column_sums(on_device[block : block + 1], place)
        np.testing.assert_array_equal(kernels.memory.to_host(alone)[0], kernels.memory.to_host(found)[block])
