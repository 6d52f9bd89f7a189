"""Newman's greedy modularity merging: one exact merge after the other.

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

        The gain of i and j is ``g = two_m * m_ij - resolution * (d_i * d_j)``, and the merge raises the modularity by
        ``2 g / two_m**2``; two_m is the sum of all strengths. Among equal gains, the smallest (i, j) with i < j comes
        first; j is absorbed by i. Pairs with negative gains are also merged.

        Parameters
        ----------
        starts : int64 array of shape (n + 1,)
            Start of each node's neighbours.
        columns : int32 array of shape (nnz,)
            Neighbours, ascending for each node: symmetric, without loops, each once.
        weights : int64 or float64 array of shape (nnz,)
            Weights of the edges to these neighbours, not negative.
        strength : array of shape (n,), the weights' type
            Sum of each node's weights, with its loops counted twice. If int64, the sum of all is less than 2**32.
        resolution : float
            Resolution; 1.0 if the weights are int64.
        on_progress : callable
            Called with the number of merges so far, about ten times per second. If it raises an error, the run ends.

        Returns
        -------
        merges : int32 array of shape (k, 2)
            Kept and absorbed community of each merge, named by their smallest nodes; k is n minus the number of
            connected components.
        gains : array of shape (k,), the weights' type
            Gain of each merge.

        Notes
        -----
        This uses one thread on the CPU, and one block on a GPU. Memory on the CPU, as measured: 24 to 35 bytes per
        entry of `columns` (float64: 51 to 70), and 100 per node. On a GPU: 32 bytes per entry and 90 per node. If rows
        that grew have used this up, it needs 68 bytes per remaining entry for a moment.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: GreedyMergeKernels = cpu
    _gpu: GreedyMergeKernels = gpu
