"""Similarities, with noise that breaks ties, and the messages of one iteration.

::

    messages.py     the equations, and the arrays of a rank that keeps all pairs
    cpu, gpu        one iteration: cpu_messages; messages.cu and messages.cuh
    similarities/   similarities of rows with noise: similarity.cu, similarity_hopper.cu on a Hopper GPU,
                    few_features.cu for at most 16 features, chosen_pairs.cu for selected pairs
    sparse_forms/   ranks that keep only some pairs: listed.py (neighbour lists, made by cpu_lists and lists.cu) and
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
    """Functions that the CPU and GPU modules provide."""

    def jitter(self, s: Array, numbers: Array, *, n: int, seed: int, draw: int, tiny: float) -> None:
        """Add noise to the similarities of rows, to break ties.

        Parameters
        ----------
        s : array of shape (m, padded(n))
            Similarities, float32 or float64, changed in place. Infinite values do not change, and finite values stay
            finite.
        numbers : int64 array of shape (m,)
            Global numbers of the rows.
        n : int
            Number of columns without the padding.
        seed : int
            Seed of the noise, less than 2**64.
        draw : int
            Number of the draw: different draws with the same seed give different noise. `similarities` uses 0.
        tiny : float
            A similarity v becomes ``v + (eps * v + tiny * smallest_normal) * U``. U is a random byte divided by 256,
            which is determined by (seed, draw, row, column).
        """

    def pass_columns(self, messages: Vectors, *, damping: float, scale: float, slot: int) -> None:
        """Finish an iteration for all columns: compute c, A(k,k), the exemplars and their number.

        Parameters
        ----------
        messages : Messages or ListedMessages
            Changed in place: c, r_diagonal, a_diagonal, exemplars, last_exemplars, counts and progress; sums become 0.
            If ``messages.totals`` reports undecided rows, only ``progress[0]`` is changed, to 1.
        damping, scale : float
            `next_damping` and `scale` of the ``Iteration``.
        slot : int
            Slot to which exemplars and counts are written.
        """

    def pass_rows(self, messages: Messages, numbers: Iteration) -> None:
        """Finish A of the previous iteration and begin the next: compute m1, j, m2, u, E, R(k,k) and this rank's sums.

        Parameters
        ----------
        messages : Messages
            Changed in place: a, u, recent_argmax, recent_e, recent_a, recent_most and sums. Every row must have a free
            place for a recent column. Filled places must come before free places; this function keeps this order.
        numbers : Iteration
            Numbers of both iterations.
        """

    def similarities(
        self, x: Array, y: Array, *, norm: str, factor: float, first_row: int, y_start: int, seed: int, out: Array
    ) -> None:
        """Write similarities (negative distances) with noise that breaks ties.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        norm : {"l2", "l2-dot", "l1"}
            Reduced distance s to compute.
        factor : float
            The similarity is ``-factor * s`` with the noise of `jitter` for draw=0 and tiny=100.
        first_row, y_start : int
            Global numbers of the first rows of x and y; y_start is a multiple of 1024.
        seed : int
            Seed of the noise, less than 2**64.
        out : array of shape (m, padded(n)), the rows' type
            Columns y_start .. y_start + k - 1 are written, with -inf on the diagonal.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: AffinityPropagationKernels = cpu
    _gpu: AffinityPropagationKernels = gpu
