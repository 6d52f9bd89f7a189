"""Similarities with the noise that breaks ties, and the messages of one iteration.

`messages` has the equations and what a rank keeps of all pairs; `listed`, how it keeps lists instead, with functions of
their own. On the CPU `cpu` calls `cpu_similarities` and `cpu_messages`; `cpu_listed` passes messages on lists, which
`cpu_lists` makes. `cpu_hot_columns` has what lists and columns share. On a GPU `gpu` starts ``few_features.cu``,
``similarity.cu`` (``similarity_hopper.cu`` where it can) and ``messages.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.affinity_propagation.messages import Iteration, Messages, Vectors

if TYPE_CHECKING:
    from mgclust.kernels.affinity_propagation import cpu, gpu

__all__ = ["AffinityPropagationKernels"]

Array = Any


class AffinityPropagationKernels(Protocol):
    """Functions that both devices have, with these meanings."""

    def jitter(self, s: Array, numbers: Array, *, n: int, seed: int, draw: int, tiny: float) -> None:
        """Add the noise that breaks ties to similarities of rows.

        Parameters
        ----------
        s : array of shape (m, padded(n))
            Similarities, float32 or float64, in place. Infinite values stay as they are, and finite ones finite.
        numbers : int64 array of shape (m,)
            Of the rows.
        n : int
            How many columns are no padding.
        seed : int
            Below 2**64.
        draw : int
            A number that no other noise of the same seed has; `similarities` draws 0.
        tiny : float
            v becomes ``v + (eps * v + tiny * smallest_normal) * U``, U = byte / 256 by (seed, draw, row, column).
        """

    def pass_columns(self, messages: Vectors, *, damping: float, scale: float, slot: int) -> None:
        """Finish an iteration for all columns: c, A(k,k), the exemplars and how many there are.

        Parameters
        ----------
        messages : Messages or ListedMessages
            In place: c, r_diagonal, a_diagonal, exemplars, last_exemplars, counts; sums become 0; progress. With
            undecided rows in `totals`, nothing but ``progress[0]``, which becomes 1.
        damping, scale : float
            `next_damping` and `scale` of the iteration.
        slot : int
            Where exemplars and counts are written.
        """

    def pass_rows(self, messages: Messages, numbers: Iteration) -> None:
        """Finish A of the last iteration and begin the next: m1, j, m2, u, E, R(k,k) and own part of the sums.

        Parameters
        ----------
        messages : Messages
            In place: a, u, recent_argmax, hot_e, hot_a, hot_most and sums. Every row has a free hot place. Filled
            places come before the free ones, as this function leaves them.
        numbers : Iteration
        """

    def similarities(
        self, x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
    ) -> None:
        """Write similarities, minus the distances, with the noise that breaks ties.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        norm : {"l2", "l2-dot", "l1"}
            Which reduced distance s.
        factor : float
            The similarity is ``-factor * s``; noise as in `jitter`, draw 0 and tiny 100.
        first_row, y_start : int
            Global numbers of the first rows of x and y; y_start a multiple of 1024.
        seed : int
            Below 2**64.
        out : array of shape (m, padded(n)), the rows' type
            Columns y_start .. y_start + k - 1 are written; -inf where a row meets itself.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: AffinityPropagationKernels = cpu
    _gpu: AffinityPropagationKernels = gpu
