"""Rows that are made where and when they are read: functions of their numbers, the same on any number of ranks.

On a GPU an element is made by itself, so its bits do not depend on which rows are read together.
"""

from __future__ import annotations

import itertools
from abc import abstractmethod
from typing import Any, ClassVar

import numpy as np

from mgclust.data import Dataset

_HASH = r"""
__device__ unsigned long long hashed(unsigned long long z) {
    z *= 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}
__device__ float normal(unsigned long long key) {
    unsigned long long z = hashed(key);
    float u = ((float)(unsigned)(z >> 40) + 0.5f) * 5.9604645e-8f, v = (float)(unsigned)(z & 0xffffff) * 5.9604645e-8f;
    return sqrtf(-2.0f * logf(u)) * cospif(2.0f * v);
}
"""
OFFSET = 1 << 40  # apart from all row numbers


class _MadeRows(Dataset):
    """Float32 rows whose elements are functions of the numbers of row and feature.

    A kind of rows has the code of an element for GPUs, which sets ``y`` from ``row``, ``f``, ``d``, ``offset`` and two
    parameters, and the same in NumPy.
    """

    kind = "made"
    code: ClassVar[str]

    def __init__(self, n: int, d: int, device: str, name: str, count: int, spread: float = 1.0) -> None:
        super().__init__((n, d), "float32", name)
        self.device, self._count, self.spread = device, count, spread

    @abstractmethod
    def _on_host(self, rows: np.ndarray) -> np.ndarray:
        """The rows of these numbers, made by the CPU."""

    def _read(self, start: int, stop: int) -> Any:
        d = self.shape[1]
        if self.device != "cuda":
            return self._on_host(np.arange(start, stop))
        import cupy

        kernel = cupy.ElementwiseKernel(
            "int64 first, int64 d, uint64 k, uint64 offset, float32 spread",
            "float32 y",
            "const long long row = first + i / d, f = i % d;\n" + self.code,
            type(self).__name__.lower(),
            preamble=_HASH,
        )
        rows = cupy.empty((stop - start, d), "float32")
        kernel(start, d, self._count, OFFSET, self.spread, rows)
        return rows


class Made(_MadeRows):
    """A mixture of unit Gaussians.

    Parameters
    ----------
    n, d, k : int
        Rows, features, components.
    device : {"cpu", "cuda"}
        Where `read` makes them.
    spread : float
        Standard deviation of the components' means.
    """

    code = """
    const unsigned long long group = hashed(row + offset) % k;
    y = spread * normal(2 * offset + group * d + f) + normal(3 * offset + row * d + f);
    """

    def __init__(self, n: int, d: int, k: int, device: str, spread: float = 1.0) -> None:
        super().__init__(n, d, device, f"{k} Gaussians", k, spread)
        self.k = k

    def groups(self, start: int, stop: int) -> np.ndarray:
        """The component of each row."""
        return (hashed(np.arange(start, stop) + OFFSET) % np.uint64(self.k)).astype(np.int64)

    def means(self) -> np.ndarray:
        """The components' means, (k, d) float32."""
        d = self.shape[1]
        return np.float32(self.spread) * _normal(np.arange(self.k * d) + 2 * OFFSET).reshape(self.k, d)

    def _on_host(self, rows: np.ndarray) -> np.ndarray:
        d = self.shape[1]
        return self.means()[self.groups(rows[0], rows[-1] + 1)] + _normal(rows[:, None] * d + np.arange(d) + 3 * OFFSET)


class OnGrid(_MadeRows):
    """Unit Gaussians, four deviations from one another, on a grid with `side` of them along each feature."""

    code = """
    y = 4.0f * (float)(hashed(2 * offset + row * d + f) % k) + normal(3 * offset + row * d + f);
    """

    def __init__(self, n: int, d: int, side: int, device: str) -> None:
        super().__init__(n, d, device, f"Gaussians on a grid of {side}^{d}", side)

    def _on_host(self, rows: np.ndarray) -> np.ndarray:
        keys = rows[:, None] * self.shape[1] + np.arange(self.shape[1])
        cells = hashed(keys + 2 * OFFSET) % np.uint64(self._count)
        return np.float32(4) * cells.astype("f4") + _normal(keys + 3 * OFFSET)


class Voxels(_MadeRows):
    """Series of the voxels of a cube, in C order: smooth in space at two scales, and white noise of a fifth beside.

    Each scale interpolates between series of the knots of a lattice, as a brain's series on a finer grid would be.
    """

    SPACINGS = (3, 12)  # voxels from knot to knot

    code = """
    const long long side = k, at[3] = {row / (side * side), row / side % side, row % side};
    y = spread * normal(3 * offset + row * d + f);
    for (int scale = 0; scale < 2; ++scale) {
        const int spacing = scale ? 12 : 3;
        float sum = 0.0f;
        for (int corner = 0; corner < 8; ++corner) {
            float weight = 1.0f;
            unsigned long long knot = scale;
            for (int axis = 0; axis < 3; ++axis) {
                const int up = corner >> axis & 1;
                const float within = (float)(at[axis] % spacing) / spacing;
                weight *= up ? within : 1.0f - within;
                knot = knot * 4096 + at[axis] / spacing + up;
            }
            sum += weight * normal(4 * offset + knot * d + f);
        }
        y += sum;
    }
    """

    def __init__(self, n: int, d: int, device: str) -> None:
        side = 1
        while side**3 < n:
            side += 1
        super().__init__(n, d, device, f"series of {n} voxels", side, 0.2)

    def _on_host(self, rows: np.ndarray) -> np.ndarray:
        side, f = self._count, np.arange(self.shape[1])
        at = np.stack([rows // side**2, rows // side % side, rows % side])
        y = np.float32(self.spread) * _normal(rows[:, None] * len(f) + f + 3 * OFFSET)
        for scale, spacing in enumerate(self.SPACINGS):
            within = (at % spacing).astype("f4") / np.float32(spacing)
            for corner in itertools.product((0, 1), repeat=3):
                knot, weight = np.full(len(rows), scale), np.ones(len(rows), "f4")
                for axis, up in enumerate(corner):
                    weight *= within[axis] if up else 1 - within[axis]
                    knot = knot * 4096 + at[axis] // spacing + up
                y += weight[:, None] * _normal(knot[:, None] * len(f) + f + 4 * OFFSET)
        return y


def hashed(z: Any) -> Any:
    """64 mixed bits of each number, as uint64; of NumPy and CuPy arrays."""
    z = z.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))


def _normal(keys: np.ndarray) -> np.ndarray:
    z = hashed(keys)
    u, v = ((z >> np.uint64(40)).astype("f4") + 0.5) * 2.0**-24, (z & np.uint64(0xFFFFFF)).astype("f4") * 2.0**-24
    return np.sqrt(-2 * np.log(u)).astype("f4") * np.cos(2 * np.pi * v).astype("f4")
