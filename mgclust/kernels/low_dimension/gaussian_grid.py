"""Sums of Gaussians over all pairs in near-linear time: spread, convolve, interpolate.

In one to three dimensions ``G_i = sum_j exp(-scale |x_i - x_j|^2)`` is a convolution, read off at the rows::

    rows --spread--> grid (int64) --all_reduce over ranks--> grid_convolve --> grid (float64) --interpolate--> G
           16^d cells a row            exact                  two FFTs          16^d cells a row

The grid has a spacing of 0.27 / sqrt(scale), which resolves the Gaussian (its transform is 2e-15 of its peak
at the grid's Nyquist frequency), and a margin of 20 cells, so that periodic images are 5.4 / sqrt(scale)
away and add less than 3e-13. Rows meet the grid through a Kaiser-Bessel window of 16 cells (beta = 32),
whose transform is divided out twice. That there is no oversampling is on purpose: what the window aliases,
the Gaussian suppresses.

Spread values are rounded to multiples of 2^-fraction_bits and added as integers, so the grid has the same
bits whatever the threads, the ranks and the order of rows; and two equal rows receive the same bits.

Error. One pair's term is off by at most d KERNEL_ERROR + RESPONSE^d 2^-(fraction_bits + 1) + ROUNDING (of
its largest value, 1); the window and the Gaussian are products over the axes, so the one-dimensional
constants, which a test measures, bound all. n rows together: `GaussianGrid.error_bound`, absolute, usually
much better. Rows whose sum is so small that this is no good relative bound are the caller's to add up
directly.

Cost. Time: n 16^d multiply-adds twice (2-D: 0.1 us a row and core) and two real FFTs of the grid.
Memory: 40 bytes a cell; cells = product over the axes of (3.7 extent sqrt(scale) + 20).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # whose fft is imported when it is used
from scipy.special import i0e

from mgclust.kernels.toolkit.threads import thread_count

__all__ = ["WINDOW", "GaussianGrid", "grid_convolve", "plan_gaussian_grid", "window_polynomials"]

Array = Any

WINDOW = 16  # cells along each axis that a row is spread over
BETA = 32.0
SPACING = 0.27  # in units of 1 / sqrt(scale)
MARGIN = 20
DEGREE = 15

KERNEL_ERROR = 5e-13
RESPONSE = 2.0
ROUNDING = 2e-14


@dataclass(frozen=True)
class GaussianGrid:
    """Position of the grid, and how good it is."""

    shape: tuple[int, ...]  # cells along each axis
    origin: tuple[float, ...]  # coordinates of cell 0
    spacing: float  # of cells, the same along each axis
    scale: float  # of the Gaussian, ``exp(-scale |x - y|^2)``
    fraction_bits: int  # spread values are multiples of ``2**-fraction_bits``
    error_bound: float  # no row's sum is off by more

    @property
    def cells(self) -> int:
        """Number of cells of the grid."""
        return math.prod(self.shape)

    @property
    def memory(self) -> int:
        """Bytes that a rank needs at the most: the integers, their convolution, and its transform."""
        return 40 * self.cells


def plan_gaussian_grid(low: Sequence[float], high: Sequence[float], scale: float, n: int) -> GaussianGrid:
    """Lay a grid over a box of rows.

    Parameters
    ----------
    low, high : sequences of 1 to 3 floats
        Least and largest coordinate of all rows, along each axis.
    scale : float
        The Gaussian is ``exp(-scale |x - y|^2)``.
    n : int
        Rows of all ranks together; bounds the integers.

    Returns
    -------
    GaussianGrid
        Nothing is allocated; see its `memory`.
    """
    spacing = SPACING / math.sqrt(scale)
    shape = tuple(
        scipy.fft.next_fast_len(math.ceil((b - a) / spacing) + MARGIN, real=True)
        for a, b in zip(low, high, strict=True)
    )
    origin = tuple(float(a) - WINDOW // 2 * spacing for a in low)
    # n rows of at most 1 stay below 2^62; and products of three windows are rounded by adding 1.5 * 2^52.
    fraction_bits = min(50, 61 - int(n).bit_length())
    d = len(shape)
    term = d * KERNEL_ERROR + RESPONSE**d * 2.0 ** -(fraction_bits + 1) + ROUNDING
    return GaussianGrid(shape, origin, spacing, float(scale), fraction_bits, n * term)


def grid_convolve(grid: Array, plan: GaussianGrid, xp: Any) -> Array:
    """Turn the spread rows of all ranks into what `interpolate` reads.

    Parameters
    ----------
    grid : int64 array of shape plan.shape
        Sum of what all ranks have spread.
    plan : GaussianGrid
        The grid's plan.
    xp : module
        numpy or cupy.

    Returns
    -------
    float64 array of shape plan.shape
        Band-limited; not yet the Gaussian sum at the cells (the second window is still to come).
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
    """Transform of the Gaussian over that of the window squared, at the frequencies of one axis."""
    u = np.fft.fftfreq(size)  # cycles per cell
    gaussian = math.sqrt(math.pi) / SPACING * np.exp(-((math.pi * u / SPACING) ** 2))
    return gaussian / _window_transform(u) ** 2


def _window(z: Array) -> Array:
    """Kaiser-Bessel window on [-1, 1], 1 at its middle."""
    s = np.sqrt(np.maximum(0.0, 1.0 - z * z))
    return np.where(np.abs(z) <= 1, i0e(BETA * s) * np.exp(BETA * (s - 1.0)), 0.0) / i0e(BETA)


def _window_transform(u: np.ndarray) -> np.ndarray:
    """Fourier integral of the window, in cells; real, since the window is even."""
    nodes, weights = np.polynomial.legendre.leggauss(120)
    half = WINDOW / 2
    return half * np.cos(2 * math.pi * half * u[:, None] * nodes) @ (weights * _window(nodes))


@functools.cache
def window_polynomials() -> np.ndarray:
    """The window's value in each of 16 cells, as polynomials of the row's place between two cells.

    A row at position u (in cells from the origin), f = u - floor(u), covers the cells floor(u) - 7 .. floor(u) + 8; the
    j-th of them receives ``sum_k out[k, j] (f - 1/2)^(DEGREE - k)``: Horner's order.

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
