"""Densities from stored distances against plain float64 NumPy, and their bits against every way of cutting tiles."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.pairs.density import (
    GROUP,
    MIN_TILE,
    TASK_ROWS,
    TILE_COLUMNS,
    add_density,
    computed_tiles,
    density_of,
    tile_numbers,
)

REALS = (np.float32, np.float64)


def lattice(m: int, k: int, dtype: type) -> np.ndarray:
    """Reduced distances of which many are 0 and many are equal."""
    return (np.random.default_rng([m, k]).integers(0, 9, size=(m, k)) / 4).astype(dtype)


def added(s: np.ndarray, weights: np.ndarray | None, before=(0.5, 0.25), **how) -> tuple[np.ndarray, np.ndarray]:
    equal, others = np.full(len(s), before[0]), np.full(len(s), before[1])  # it adds to what is there
    add_density(s, weights, equal=equal, others=others, xp=np, **how)
    return equal, others


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize(("density", "power"), [("gaussian", 1), ("gaussian", 2), ("cutoff", 1)])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("m", "k"), [(0, 5), (1, 1), (3, GROUP), (2, GROUP + 1), (TASK_ROWS, 33), (TASK_ROWS + 1, 2 * GROUP + 7)]
)
def test_sums_of_kernels(m, k, weighted, density, power, dtype):
    s, cut = lattice(m, k, dtype), 0.75
    weights = np.random.default_rng(k).uniform(0.5, 2, k).astype(dtype) if weighted else None
    equal, others = added(s, weights, density=density, cut=cut, power=power)
    wide = s.astype(np.float64)
    kernel = (wide < cut).astype(float) if density == "cutoff" else np.exp(-((wide / cut) ** power))
    terms = kernel * (1.0 if weights is None else weights.astype(np.float64))
    tolerance = 40 * np.finfo(dtype).eps
    np.testing.assert_allclose(equal, 0.5 + (terms * (wide == 0)).sum(axis=1), rtol=tolerance)
    np.testing.assert_allclose(others, 0.25 + (terms * (wide > 0)).sum(axis=1), rtol=tolerance)


@pytest.mark.parametrize("dtype", REALS)
def test_tiles_do_not_change_a_bit(dtype):
    s = np.abs(np.random.default_rng(0).normal(size=(TASK_ROWS + 5, 3 * GROUP + 9))).astype(dtype)
    how = {"density": "gaussian", "cut": 0.3, "power": 2, "xp": np}
    whole, parts = (np.zeros((2, len(s))) for _ in range(2))
    add_density(s, None, equal=whole[0], others=whole[1], **how)
    for rows in (slice(0, 1), slice(1, TASK_ROWS + 2), slice(TASK_ROWS + 2, None)):
        for columns in (slice(0, GROUP), slice(GROUP, 3 * GROUP), slice(3 * GROUP, None)):
            add_density(s[rows, columns], None, equal=parts[0, rows], others=parts[1, rows], **how)
    assert parts.tobytes() == whole.tobytes()


def test_what_is_far_beyond_the_cut_adds_nothing():
    far = np.array([[0.0, 1e30, np.finfo(np.float32).max, np.inf]], np.float32)
    equal, others = added(far, None, (0.0, 0.0), density="gaussian", cut=1e-30, power=2)
    assert (equal.tolist(), others.tolist()) == ([1.0], [0.0])


@pytest.mark.parametrize("dtype", REALS)
def test_order_of_a_sum(dtype):
    """1,024 columns by halving in the type of the distances, such groups one after the other in float64."""
    weights = np.random.default_rng(2).uniform(0.5, 2, 1024 + 300).astype(dtype)
    _, others = added(np.ones((2, len(weights)), dtype), weights, (0.0, 0.0), density="cutoff", cut=2.0, power=1)
    groups = np.zeros(2048, dtype)
    groups[: len(weights)] = weights
    groups = groups.reshape(2, 1024)
    while groups.shape[1] > 1:
        half = groups.shape[1] // 2
        groups = groups[:, :half] + groups[:, half:]
    assert others.tolist() == [float(groups[0, 0]) + float(groups[1, 0])] * 2


def test_a_row_is_not_its_own_neighbour():
    """One unit of weight is its own; never less than no weight is left."""
    assert density_of(np.array([0.5, 1.0, 3.0]), np.array([2.0, 2.0, 0.0]), np).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.parametrize("m", [0, 1, MIN_TILE // TILE_COLUMNS, MIN_TILE // TILE_COLUMNS + 1])
@pytest.mark.parametrize("k", [0, 1, TILE_COLUMNS, TILE_COLUMNS + 1])
def test_tiles_cover_all_pairs(m, k, rng):
    x, y = rng.normal(size=(m, 2)), rng.normal(size=(k, 2))
    times, found = np.zeros((m, k), int), np.zeros((m, k))
    for rows, columns, s in computed_tiles(load("cpu"), x, y, "l2", free=0):
        times[rows, columns] += 1
        found[rows, columns] = s
        assert s.size <= tile_numbers(np, 0) and columns.start % GROUP == 0
    assert (times == 1).all()
    np.testing.assert_allclose(found, ((x[:, None] - y[None]) ** 2).sum(axis=2))
