"""Sums of Gaussians over all pairs in near-linear time: spread, convolve, interpolate.

In one to three dimensions, ``G_i = sum_j exp(-scale |x_i - x_j|^2)`` is a convolution, evaluated at the rows::

    rows --spread--> grid (int64) --all_reduce over ranks--> grid_convolve --> grid (float64) --interpolate--> G
           16^d cells per row          exact                  two FFTs          16^d cells per row

The grid has a spacing of 0.27 / sqrt(scale). This resolves the Gaussian: at the grid's Nyquist frequency, its transform
is 2e-15 of its peak. A margin of 20 cells keeps periodic images 5.4 / sqrt(scale) away, so they add less than 3e-13.
Rows are spread and interpolated with a Kaiser-Bessel window of 16 cells (beta = 32). The convolution divides by the
window's transform twice. No oversampling is needed, because the Gaussian suppresses the aliases of the window.

Spread values are rounded to multiples of 2^-fraction_bits and added as integers. So the grid is bitwise independent of
the threads, the ranks and the order of rows, and duplicate rows get bitwise identical sums.

Error. The largest possible term of a pair is 1. The error of a term is at most
d KERNEL_ERROR + RESPONSE^d 2^-(fraction_bits + 1) + ROUNDING. The window and the Gaussian are products over the axes,
so the one-dimensional constants, which a test measures, are enough for all dimensions. `GaussianGrid.error_bound` is
the absolute bound for the sum of n rows; errors are usually much smaller. If the sum of a row is so small that this is
not a good relative bound, the caller has to compute the sum directly.

Cost. Time: n 16^d multiply-adds twice (in two dimensions 0.1 us per row and core) and two real FFTs of the grid.
Memory: 40 bytes per cell; the number of cells is the product over the axes of (3.7 extent sqrt(scale) + 20).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # `scipy.fft` is imported when it is used
from scipy.special import i0e

from mgclust.kernels.toolkit.threads import thread_count

__all__ = ["WINDOW", "GaussianGrid", "grid_convolve", "plan_gaussian_grid", "window_polynomials"]

Array = Any

WINDOW = 16  # number of cells along each axis over which a row is spread
BETA = 32.0
SPACING = 0.27  # distance between cells, in units of 1 / sqrt(scale)
MARGIN = 20
DEGREE = 15

KERNEL_ERROR = 5e-13
RESPONSE = 2.0
ROUNDING = 2e-14


@dataclass(frozen=True)
class GaussianGrid:
    """Position and error bound of a grid."""

    shape: tuple[int, ...]  # cells along each axis
    origin: tuple[float, ...]  # coordinates of cell 0
    spacing: float  # distance between cells, the same along each axis
    scale: float  # scale of the Gaussian, ``exp(-scale |x - y|^2)``
    fraction_bits: int  # spread values are multiples of ``2**-fraction_bits``
    error_bound: float  # largest absolute error of a row's sum

    @property
    def cells(self) -> int:
        """Number of cells of the grid."""
        return math.prod(self.shape)

    @property
    def memory(self) -> int:
        """Largest number of bytes that a rank needs for the integers, the convolution, and the Fourier transform."""
        return 40 * self.cells


def plan_gaussian_grid(low: Sequence[float], high: Sequence[float], scale: float, n: int) -> GaussianGrid:
    """Plan a grid that covers a box of rows.

    Parameters
    ----------
    low, high : sequences of 1 to 3 floats
        Smallest and largest coordinate of all rows, along each axis.
    scale : float
        The Gaussian is ``exp(-scale |x - y|^2)``.
    n : int
        Number of rows of all ranks together, which bounds the integers.

    Returns
    -------
    GaussianGrid
        The plan. Nothing is allocated; see `GaussianGrid.memory`.
    """
    spacing = SPACING / math.sqrt(scale)
    shape = tuple(
        scipy.fft.next_fast_len(math.ceil((b - a) / spacing) + MARGIN, real=True)
        for a, b in zip(low, high, strict=True)
    )
    origin = tuple(float(a) - WINDOW // 2 * spacing for a in low)
    # The sum of n values, each at most 1, must stay below 2^62. Products of three windows are rounded by adding
    # 1.5 * 2^52, so they must stay below 2^51.
    fraction_bits = min(50, 61 - int(n).bit_length())
    d = len(shape)
    term = d * KERNEL_ERROR + RESPONSE**d * 2.0 ** -(fraction_bits + 1) + ROUNDING
    return GaussianGrid(shape, origin, spacing, float(scale), fraction_bits, n * term)


def grid_convolve(grid: Array, plan: GaussianGrid, xp: Any) -> Array:
    """Convolve the spread rows of all ranks, for `interpolate`.

    Parameters
    ----------
    grid : int64 array of shape plan.shape
        Sum of the grids of all ranks.
    plan : GaussianGrid
        Plan of the grid.
    xp : module
        numpy or cupy.

    Returns
    -------
    float64 array of shape plan.shape
        Band-limited values. They are not the Gaussian sum at the cells: `interpolate` applies the second window.
    """
    fft: Any = scipy.fft if xp is np else xp.fft
    threads = {"workers": thread_count()} if xp is np else {}
    spectrum = fft.rfftn(grid.astype("float64"), **threads)
    last = len(plan.shape) - 1
    for axis, size in enumerate(plan.shape):
        gain = _gain(size)
        if axis == last:
            gain = gain[: size // 2 + 1] * 2.0**-plan.fraction_bits
        spectrum *= xp.asarray(gain.reshape([-1 if a == axis else 1 for a in range(last + 1)]))
    return fft.irfftn(spectrum, plan.shape, **threads)


def _gain(size: int) -> np.ndarray:
    """Return the transform of the Gaussian / the squared transform of the window, at the frequencies of one axis."""
    u = np.fft.fftfreq(size)  # cycles per cell
    gaussian = math.sqrt(math.pi) / SPACING * np.exp(-((math.pi * u / SPACING) ** 2))
    return gaussian / _window_transform(u) ** 2


def _window(z: Array) -> Array:
    """Return the Kaiser-Bessel window on [-1, 1], which is 1 in the middle."""
    s = np.sqrt(np.maximum(0.0, 1.0 - z * z))
    return np.where(np.abs(z) <= 1, i0e(BETA * s) * np.exp(BETA * (s - 1.0)), 0.0) / i0e(BETA)


def _window_transform(u: np.ndarray) -> np.ndarray:
    """Return the Fourier integral of the window, in cells; it is real, because the window is even."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    half = WINDOW / 2
    return half * np.cos(2 * math.pi * half * u[:, None] * nodes) @ (weights * _window(nodes))


@functools.cache
def window_polynomials() -> np.ndarray:
    """Return polynomials that give the window's value in each of 16 cells from a row's position between two cells.

    A row at position u (in cells from the origin), with f = u - floor(u), covers the cells floor(u) - 7 to
    floor(u) + 8. The j-th of these receives ``sum_k out[k, j] (f - 1/2)^(DEGREE - k)``. The coefficients are in the
    order of Horner's scheme.

    Returns
    -------
    float64 array of shape (DEGREE + 1, WINDOW)
    """
    nodes = np.cos(math.pi * (np.arange(64) + 0.5) / 64) / 2
    z = (nodes[:, None] + 0.5 + (WINDOW // 2 - 1) - np.arange(WINDOW)) / (WINDOW / 2)
    series = np.polynomial.chebyshev.chebfit(2 * nodes, _window(z), DEGREE)
    out = np.empty((DEGREE + 1, WINDOW))
    for j in range(WINDOW):
        powers = np.zeros(DEGREE + 1)
        found = np.polynomial.chebyshev.cheb2poly(series[:, j])
        powers[: len(found)] = found
        out[:, j] = (powers * 2.0 ** np.arange(DEGREE + 1))[::-1]
    return out
