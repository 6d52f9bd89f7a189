"""Similarities with the noise that breaks ties, and the messages of one iteration.

::

    messages.py     the equations, and the arrays of a rank that keeps all pairs
    cpu, gpu        one iteration: cpu_messages; messages.cu and messages.cuh
    similarities/   similarities of rows, with their noise: similarity.cu, on a Hopper GPU similarity_hopper.cu,
                    few_features.cu for at most 16 features, chosen_pairs.cu for some pairs
    sparse_forms/   ranks that keep some pairs: listed.py (neighbour lists, which cpu_lists and lists.cu make) and
                    columns.py (some columns); both keep recent columns (cpu_recent_columns, recent_argmax.cuh)
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
            In place: a, u, recent_argmax, recent_e, recent_a, recent_most and sums. Every row has a free recent place.
            Filled places come before the free ones, as this function leaves them.
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
