"""Canopies: a greedily chosen independent set of a few rows, and lists of the columns near to a row.

`cpu`, with the boxes and loops of `mgclust.kernels.pairs`; `gpu` with ``canopy.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.canopy import cpu, gpu

__all__ = ["Canopy"]

Array = Any


class Canopy(Protocol):
    """Functions that both devices have, with these meanings.

    Norm and threshold are those of `mgclust.kernels.pairs.Pairs`.
    """

    def first_independent(self, x: Array, *, norm: str, threshold: float, out: Array) -> None:
        """Pick rows in their order, each that no picked row before it is near (s < threshold).

        One thread on the CPU: a picked row rules out many that come after it, and 4096 rows take well under a
        millisecond a feature.

        Parameters
        ----------
        x : array of shape (k, d)
            Rows in order of priority, float32 or float64; k <= 4096.
        out : uint8 array of shape (k,)
            1 where the row is picked, else 0; overwritten.
        """

    def write_within(self, x: Array, y: Array, *, norm: str, threshold: float, starts: Array, out: Array) -> None:
        """List each row's columns with s < threshold, in ascending order.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        starts : int64 array of shape (m,)
            Where each row's list begins; `count_within` with the same threshold says how long it is.
        out : int32 array
            Written from ``out[starts[i]]`` on.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: Canopy = cpu
    _gpu: Canopy = gpu
