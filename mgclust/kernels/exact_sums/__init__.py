"""Sums of float64 parts whose bits do not depend on the order of addition; column sums of blocks, which are such parts.

`cpu` has the functions for CPUs, and `gpu` those for GPUs, with ``sums.cu``.
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
        """Sum the columns of each block, in an order that depends only on the size of the block.

        Parameters
        ----------
        x : array of shape (blocks, m, d)
            Rows of the blocks.
        about : float64 array of shape (d,), optional
            If given, the squares of the rows minus this point are summed instead.

        Returns
        -------
        float64 array of shape (blocks, d)
        """

    def from_integers(self, integers: Array, exponents: Array, *, bits: int) -> Array:
        """Convert sums of integers back to numbers.

        Parameters
        ----------
        integers : int64 array
            Sums of `integer_sums`, over all ranks.
        exponents : int32 array of the same shape
            Exponents that were used for these sums.
        bits : int
            As for `integer_sums`.

        Returns
        -------
        float64 array of the same shape
        """

    def integer_sums(self, parts: Array, exponents: Array, *, bits: int) -> Array:
        """Sum parts as integers.

        Parameters
        ----------
        parts : float64 array of shape (count, ...)
            The parts.
        exponents : int32 array of shape (...)
            Exponents from `largest_exponents`, or larger ones.
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
            Finite numbers.

        Returns
        -------
        int32 array of shape (...)
            Exponents with ``abs(part) < 2**exponent``; if all parts are 0, a number far below any exponent.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: ExactSumKernels = cpu
    _gpu: ExactSumKernels = gpu
