"""Greedy modularity merging after Newman: merge by merge, exact.

On the CPU `cpu` has the loop, `cpu_keys` says which pair is next, `cpu_rows` holds a hash table a community, `cpu_hubs`
the pairs of long rows. On a GPU `gpu` starts ``greedy.cu``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from mgclust.kernels.greedy_merges import cpu, gpu

__all__ = ["GreedyMergeKernels"]

Array = Any


class GreedyMergeKernels(Protocol):
    """Functions that both devices have, with these meanings."""

    def greedy_merges(
        self,
        starts: Array,
        columns: Array,
        weights: Array,
        strength: Array,
        *,
        resolution: float,
        on_progress: Callable[[int], None],
    ) -> tuple[np.ndarray, np.ndarray]:
        """Merge the connected pair of communities with the largest gain until no connected pair is left.

        The gain of i and j is ``g = two_m * m_ij - resolution * (d_i * d_j)``, of which the modularity rises by
        ``2 g / two_m**2``; two_m is the sum of all strengths. Of equal gains the smallest (i, j), i < j, comes first; j
        is folded into i. Negative gains are merged too.

        Parameters
        ----------
        starts : int64 array of shape (n + 1,)
            Where each node's neighbours begin.
        columns : int32 array of shape (nnz,)
            Neighbours, ascending within a node: symmetric, no loops, none twice.
        weights : int64 or float64 array of shape (nnz,)
            Of the edges to them, not negative.
        strength : array of shape (n,), the weights' type
            Each node's weights summed, its loops twice. int64: the sum of all is below 2**32.
        resolution : float
            1.0 where the weights are int64.
        on_progress : callable
            Called with the number of merges so far, some ten times a second. May raise, which ends the run.

        Returns
        -------
        merges : int32 array of shape (k, 2)
            Kept and absorbed community of each merge, known by their smallest nodes; k is n less the components.
        gains : array of shape (k,), the weights' type
            Of each merge.

        Notes
        -----
        One thread on the CPU, one block on a GPU. Memory: 24 to 35 bytes an entry of `columns` as measured (float64: 51
        to 70), and 100 a node; on a GPU 32 an entry and 90 a node, and for a moment 68 an entry that is left when rows
        that grew have used that up.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: GreedyMergeKernels = cpu
    _gpu: GreedyMergeKernels = gpu
