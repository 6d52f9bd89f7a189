r"""The state of affinity propagation on one rank with neighbour lists instead of n x n arrays, and why this is exact.

`messages` has the equations. Because of two facts, most elements of a row are not needed.

1. *Except for few elements, A depends only on the column.* The update of A(i,k) uses R(i,k) only as max(0, R(i,k)). If
   R was never positive at some elements of a column, their A results from the same operations, and so has the same
   value, a(k). A of all other elements of the column is at most a(k), because the operations of the update, with their
   rounding, are monotone.
2. *R > 0 is a prefix of a row sorted by similarity.* R(i,k) = sigma S(i,k) - u(i) outside the few recent columns. So
   R(i,k) > 0 holds only for the most similar columns.

So a row has a list of its most similar columns, sorted by similarity (equal similarities by column). A is stored for
the elements of a prefix of the list, which are the *own* elements of the row. Every element whose A may differ from
a(k) is an own element or a recent column. Recent columns are stored separately, as in `messages`. The similarities of
columns that are not in the list are less than the *floor* of the row.

For each row, an iteration needs:

=============================  ========================================================================================
the two largest of A + S       Own elements and recent columns are read one by one. Any other element has the value
                               a(k) + S(i,k), which is at most S(i,k) because a(k) <= 0. So the list is read down to the
                               first similarity below the second largest value so far. If this would take long, the
                               *active* columns, which have the largest a(k), are read instead, in the order of a(k),
                               down to the first with a(k) + S < the second largest value. Here S is the largest
                               similarity after the own elements. Both ways find all elements that could change the two
                               largest values, including ties.
the sums of max(0, R(i,k))     The list is read down to the first R <= 0.
=============================  ========================================================================================

A row is *undecided* if its list ends too early. This is so if the second largest value is below the floor (and the
active columns do not decide), or if R would be positive at the floor. An undecided row has changed only in A. Its list
is extended from the data, and the row is processed again; iterations that are already queued do nothing. So all numbers
are the same as without lists, whatever the lists are: m1, m2, j, u, E, the fixed-point sums and everything computed
from them. The lengths of lists and the choice of active columns affect only time and memory, and may differ between
ranks. So a list may also be shortened, down to its own elements; its floor then rises to the smallest similarity in the
list.

Cost. Let K be the number of exemplars. Own elements are about 1 / (2 K) of all pairs; lists are somewhat longer. An
iteration reads and writes each own element twice, and reads about ten more elements per row. On data without structure
at any scale (all similarities of a row are nearly equal), lists grow to whole rows, and dense arrays are faster.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.affinity_propagation.messages import Iteration, Vectors

if TYPE_CHECKING:
    from mgclust.kernels.affinity_propagation.sparse_forms import cpu_listed, gpu_listed

__all__ = ["ListedMessages", "ListedPassing", "Step", "load_lists"]

Array = Any
Step = tuple[int, Iteration]  # slot for the exemplars of an iteration, and the numbers of the iteration


@dataclass
class ListedMessages(Vectors):
    """State of the message passing with lists on a rank that owns m of n rows; `real` is float32 or float64."""

    # begin, length: shape (m,), int64: start and length of each row's list
    begin: Array
    length: Array
    own: Array  # shape (m,), int64: number of own elements of each list
    floor: Array  # shape (m,), real: columns outside a list are less similar than this; -inf if a list has all columns
    # column, s, a: flat, int32, real and real: the lists, each in a multiple of 32 elements. S is -inf after a list; A
    # is -inf after the own elements and in recent columns
    column: Array
    s: Array
    a: Array
    a_column: Array  # shape (n,), real: a(k)
    # recent_place, recent_s: shape (m, places), int32 and real: positions of recent columns among the own elements (-1
    # if they are not there), and their S
    recent_place: Array
    recent_s: Array
    # shape (n_active,), int32, and (m, n_active), real: the active columns, and their S; -inf on the diagonal
    active: Array
    active_s: Array
    # shape (2,), unsigned and as wide as real: on a GPU, space for the largest a(k) of the columns that are not active
    outside: Array
    # wanted, slack: shape (m,), real. wanted: for undecided rows, the smallest similarity that their lists should have.
    # slack: for other rows, columns with a smaller a(k) need not be read as active columns
    wanted: Array
    slack: Array
    # shape (m,), int64: number of list elements after the own elements that the last pass read; -1: active columns
    # decided; -2: active columns decided, after the list had been read first and had not decided
    read: Array
    undecided: Array  # shape (m,), uint8: 1 if the two largest values are undecided, 2 if only R > 0 is undecided


class ListedPassing(Protocol):
    """Functions on neighbour lists that the CPU and GPU modules provide.

    Parameters of several functions:

    messages : ListedMessages
        The state, changed in place.
    rows, numbers : int64 array of shape (m,)
        `rows`: positions among the rows of this rank. `numbers`: global numbers of rows.
    low : array of shape (m,), the similarities' type
        Lower bound of similarities for each row, finite.
    """

    def count_similar(self, s: Array, low: Array, *, out: Array) -> None:
        """Count each row's similarities >= low.

        Parameters
        ----------
        s : array of shape (m, padded(n))
        out : int64 array of shape (m,)
        """

    def gather_own(self, messages: ListedMessages, rows: Array) -> tuple[Array, Array, Array]:
        """Return the number of own elements of each row, and the columns and A of all own elements, row by row."""

    def jitter_lists(
        self, s: Array, bounds: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float
    ) -> None:
        """Add the noise of `jitter` to the similarities s of some pairs.

        Parameters
        ----------
        s, columns : arrays of shape (pairs,), real and int32
            Similarities and columns of the pairs, row by row.
        bounds : int64 array of shape (rows + 1,)
            Start and end of each row in these arrays.
        numbers : int64 array of shape (rows,)
            Global numbers of the rows.
        """

    def jitter_pairs(self, s: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
        """Add the noise of `jitter` to s, of shape (m, k), for these rows and columns; columns has shape (k,)."""

    def list_similar(self, s: Array, low: Array, begin: Array, *, column: Array, out: Array) -> None:
        """Write each row's similarities >= low from its `begin` on, in descending order; ties by ascending column.

        Each list is padded with -inf to a multiple of 32 elements.
        """

    def move_lists(self, messages: ListedMessages, begin: Array, *, values: Array, out: Array) -> None:
        """Copy the values of all lists to another array, in which the lists have other starts.

        Each list is padded to a multiple of 32 elements: with -inf, or with any numbers if the values are columns.

        Parameters
        ----------
        begin : int64 array of shape (rows of this rank,)
            Starts of the lists in `out`.
        values, out : arrays
            `column`, `s` or `a` of the messages, and an array of the same type that will replace it.
        """

    def move_own(self, rows: Array, begin: Array, to: Array, length: Array, own: Array, a: Array) -> None:
        """Copy A of the own elements of rows from the old starts of their lists, `begin`, to the new starts, `to`.

        The rest of each new list becomes -inf. `length` has the lengths of the lists. `own` has an element for each row
        of this rank; `begin`, `to` and `length` have an element for each of `rows`.
        """

    def nearest_flagged(self, messages: ListedMessages, flags: Array, *, out: Array, out_s: Array) -> None:
        """Find the most similar flagged column of each list; ties go to the lowest column.

        Parameters
        ----------
        flags : uint8 array of shape (n,)
            1 for flagged columns, else 0.
        out, out_s : arrays of shape (rows of this rank,), int64 and the similarities' type
            Overwritten with the column, or -1 if the list has no flagged column, and its similarity.
        """

    def pass_listed_iterations(
        self, messages: ListedMessages, steps: Sequence[Step], *, passed: bool, meet: Callable[[], None]
    ) -> None:
        """Do iterations on all rows of this rank and all columns, until an iteration has undecided rows.

        ``progress`` counts the finished iterations.

        Parameters
        ----------
        steps : sequence of Step
            One step for each iteration.
        passed : bool
            Whether the pass over the rows of the first iteration is complete, including rows that were undecided.
        meet : callable
            Queues the sum over ranks; called after the rows and before the columns of each iteration. All ranks call it
            equally often, unless all of them know already that the remaining iterations do nothing.
        """

    def pass_listed_rows(self, messages: ListedMessages, rows: Array, numbers: Iteration, *, again: bool) -> None:
        """Do the work of ``pass_rows`` for some rows; in undecided rows, update only A.

        Parameters
        ----------
        messages : ListedMessages
            Changed in place: the arrays that ``pass_rows`` changes, and own, a_column, undecided, wanted, slack, read
            and the last element of `sums`. If ``progress[0]`` is 1, nothing is done, unless `again`.
        numbers : Iteration
            Numbers of both iterations.
        again : bool
            Whether these rows were undecided in the last pass; then their A is up to date.
        """

    def place_own(self, messages: ListedMessages, rows: Array, counts: Array, columns: Array, values: Array) -> None:
        """Write own elements from `gather_own` to the new lists of their rows, and set the places of recent columns."""

    def redraw_lists(self, messages: ListedMessages, numbers: Array, *, seed: int, draw: int, tiny: float) -> None:
        """Add the noise of `jitter` to all stored similarities of lists and recent columns, and sort the lists."""

    def similarities_of_columns(
        self, x: Array, numbers: Array, y: Array, columns: Array, *, norm: str, factor: float, seed: int, out: Array
    ) -> None:
        """Write the values of ``similarities`` for rows x and y with ascending numbers; `out` has shape (m, k)."""

    def similarities_of_rows(
        self, x: Array, numbers: Array, y: Array, *, norm: str, factor: float, seed: int, out: Array
    ) -> None:
        """Write the values of ``similarities`` for rows x with ascending numbers and all rows y."""


if TYPE_CHECKING:
    _cpu: ListedPassing = cpu_listed
    _gpu: ListedPassing = gpu_listed


def load_lists(device: str) -> ListedPassing:
    """Return the functions of a device, "cpu" or "cuda"."""
    name = {"cpu": "cpu_listed", "cuda": "gpu_listed"}[device]
    found: ListedPassing = importlib.import_module(f"mgclust.kernels.affinity_propagation.sparse_forms.{name}")
    return found
