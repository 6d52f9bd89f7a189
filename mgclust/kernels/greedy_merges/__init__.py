"""Newman's greedy modularity merging, with one exact merge after another.

On the CPU, `cpu` has the loop, `cpu_keys` finds the next pair, `cpu_rows` has a hash table for each community, and
`cpu_hubs` has the pairs of long rows. On a GPU, `gpu` starts ``greedy.cu``.
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
    """Functions that the CPU and GPU modules provide."""

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

        The gain of i and j is ``g = two_m * m_ij - resolution * (d_i * d_j)``, and the merge raises the modularity by
        ``2 g / two_m**2``; two_m is the sum of all strengths. Ties go to the smallest (i, j) with i < j; i absorbs j.
        Pairs with negative gains are also merged.

        Parameters
        ----------
        starts : int64 array of shape (n + 1,)
            Start of each node's neighbours.
        columns : int32 array of shape (nnz,)
            Neighbours of each node, in any order. The graph is symmetric, without loops and without repeated
            neighbours.
        weights : int64 or float64 array of shape (nnz,)
            Weights of the edges to these neighbours, not negative.
        strength : array of shape (n,), the weights' type
            Sum of each node's weights, with its loops counted twice. If int64, the sum of all strengths is less than
            2**32.
        resolution : float
            Resolution; 1.0 if the weights are int64.
        on_progress : callable
            Called with the number of merges so far, about ten times per second. If it raises an error, the run ends.

        Returns
        -------
        merges : int32 array of shape (k, 2)
            Kept and absorbed community of each merge, each named by its smallest node; k is n minus the number of
            connected components.
        gains : array of shape (k,), the weights' type
            Gain of each merge.

        Notes
        -----
        This uses one thread on the CPU, and one block on a GPU. Measured memory on the CPU: 24 to 35 bytes per entry of
        `columns` (float64: 51 to 70), and 100 bytes per node. Memory on a GPU: 32 bytes per entry and 90 bytes per
        node. If growing rows have used up this memory, 68 bytes per remaining entry are needed temporarily.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: GreedyMergeKernels = cpu
    _gpu: GreedyMergeKernels = gpu
