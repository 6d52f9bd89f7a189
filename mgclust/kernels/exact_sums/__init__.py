"""Sums of float64 parts whose bits do not depend on their order, and of the columns of blocks, which are such parts.

On the CPU in `cpu`; on a GPU in `gpu` with ``sums.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.exact_sums import cpu, gpu

__all__ = ["ExactSumKernels"]

Array = Any
ZERO = -1100  # below every exponent of a float64


class ExactSumKernels(Protocol):
    """Functions that both devices have, with these meanings."""

    def column_sums(self, x: Array, about: Array | None = None) -> Array:
        """Sum the columns of each block, in an order that its size alone decides.

        Parameters
        ----------
        x : array of shape (blocks, m, d)
        about : float64 array of shape (d,), optional
            With it, the squares of what is left of the rows beside it.

        Returns
        -------
        float64 array of shape (blocks, d)
        """

    def from_integers(self, integers: Array, exponents: Array, *, bits: int) -> Array:
        """Sums as numbers again.

        Parameters
        ----------
        integers : int64 array
        exponents : int32 array of the same shape
        bits : int

        Returns
        -------
        float64 array of the same shape
        """

    def integer_sums(self, parts: Array, exponents: Array, *, bits: int) -> Array:
        """Sum parts as integers.

        Parameters
        ----------
        parts : float64 array of shape (count, ...)
        exponents : int32 array of shape (...)
            Of `largest_exponents`, or larger ones.
        bits : int
            A part of ``2**exponent`` would become ``2**bits``.

        Returns
        -------
        int64 array of shape (...)
        """

    def largest_exponents(self, parts: Array) -> Array:
        """Find the power of two that is above all parts, for each element.

        Parameters
        ----------
        parts : float64 array of shape (count, ...)
            Finite.

        Returns
        -------
        int32 array of shape (...)
            ``abs(part) < 2**exponent``; far below any exponent where all parts are 0.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: ExactSumKernels = cpu
    _gpu: ExactSumKernels = gpu
