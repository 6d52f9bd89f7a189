"""Sums of float64 parts, bitwise independent of the order of addition, and column sums of blocks as such parts.

`cpu` has the functions for CPUs, and `gpu` the functions for GPUs, whose kernels are in ``sums.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.exact_sums import cpu, gpu

__all__ = ["ExactSumKernels"]

Array = Any
ZERO = -1100  # exponent if all parts are 0; it is below the exponent of any nonzero float64


class ExactSumKernels(Protocol):
    """Functions that the CPU and GPU modules provide."""

    def column_sums(self, x: Array, about: Array | None = None) -> Array:
        """Sum the columns of each block, in an order that depends only on the size of the block.

        Parameters
        ----------
        x : array of shape (blocks, m, d)
            Rows of the blocks.
        about : float64 array of shape (d,), optional
            If given, the values (x - about)**2 are summed instead of x.

        Returns
        -------
        float64 array of shape (blocks, d)
        """

    def from_integers(self, integers: Array, exponents: Array, *, bits: int) -> Array:
        """Convert sums of integers back to numbers.

        Parameters
        ----------
        integers : int64 array
            Results of `integer_sums`, added up over all ranks.
        exponents : int32 array of the same shape
            The exponents that `integer_sums` got.
        bits : int
            The same value as for `integer_sums`.

        Returns
        -------
        float64 array of the same shape
        """

    def integer_sums(self, parts: Array, exponents: Array, *, bits: int) -> Array:
        """Round scaled parts to integers, and sum these.

        Parameters
        ----------
        parts : float64 array of shape (count, ...)
            The parts.
        exponents : int32 array of shape (...)
            Exponents from `largest_exponents`, or larger ones.
        bits : int
            Defines the scale: ``2**exponent`` becomes ``2**bits``.

        Returns
        -------
        int64 array of shape (...)
        """

    def largest_exponents(self, parts: Array) -> Array:
        """Find, for each element, the power of two that is above the absolute values of all parts.

        Parameters
        ----------
        parts : float64 array of shape (count, ...)
            Finite numbers.

        Returns
        -------
        int32 array of shape (...)
            Exponents with ``abs(part) < 2**exponent``; ``ZERO`` if all parts are 0.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: ExactSumKernels = cpu
    _gpu: ExactSumKernels = gpu
