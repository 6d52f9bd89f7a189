r"""The state of affinity propagation on one rank without n x n arrays, and why the messages are the same bits.

`messages` has the equations. Two facts of them make most elements of a row superfluous.

1. *A is a vector of the columns but for few elements.* The update of A(i,k) has R(i,k) only as max(0, R(i,k)). An
   element whose R was never positive has gone through the same operations as all others of its column like that, and
   has their value, a(k): one number a column. All others of the column are at most a(k), since every operation of the
   update, rounding included, does not decrease where its operands do not.
2. *R > 0 is a prefix of a row sorted by similarity.* R(i,k) = sigma S(i,k) - u(i) outside the few recent columns, so
   R(i,k) > 0 holds for the most similar columns and no others.

So a row keeps a list of its most similar columns, sorted (equal similarities by column). The elements of a prefix of
it, its *own* elements, have an A that is stored; a row's own prefix contains every element whose A may differ from
a(k), but for the recent columns, which are kept beside as in `messages`. What the list leaves out has a similarity
below the row's *floor*.

An iteration needs of a row:

=============================  ========================================================================================
the two largest of A + S       Own elements and recent columns are looked at one by one. Another element has the value
                               a(k) + S(i,k), at most S(i,k) since a(k) <= 0: the list is read down to the first
                               similarity below the second largest value so far; or, where that would be long, the
                               *active* columns, those with the largest a(k), are read in the order of a(k) down to the
                               first with a(k) + S < the second largest, S being the largest similarity behind the own
                               elements. Either finds all elements that could change the two largest, ties included.
the sums of max(0, R(i,k))     The list is read down to the first R <= 0.
=============================  ========================================================================================

A row is *undecided* where its list ends before: where the second largest value lies below the floor (and the active
columns do not decide), or R would be positive at the floor. Nothing of it has changed then but A; its list is made
longer from the data, and it is looked at again; iterations that are queued behind do nothing meanwhile. Hence every
number is that of the dense engine, whatever the lists: m1, m2, j, u, E, the fixed-point sums and all that follows. How
long lists are, and which columns are active, decides about time and memory alone, and may differ between ranks. So a
list may also become shorter, down to its own elements: its floor rises to the least similarity that it keeps.

Cost. Let K be the number of exemplars. Own elements are about 1 / (2 K) of all pairs; lists are somewhat longer. An
iteration reads and writes each own element twice, and reads some ten more elements a row. On data without structure at
any scale (all similarities of a row nearly equal) lists grow to whole rows: then the dense engine is faster.
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
Step = tuple[int, Iteration]  # the slot of an iteration's exemplars, and its numbers


@dataclass
class ListedMessages(Vectors):
    """State of the message passing on one rank, on lists; m own rows of n; `real` is float32 or float64."""

    # begin, length: of shape (m,), int64: where each row's list is, and how long
    begin: Array
    length: Array
    own: Array  # shape (m,), int64: how many of a list have an A of their own
    floor: Array  # shape (m,), real: what a list leaves out is less similar; -inf where it leaves out nothing
    # column, s, a: flat, int32, real and real: the lists, each in a multiple of 32 elements. S is -inf behind a list, A
    # behind its own elements and in recent columns
    column: Array
    s: Array
    a: Array
    a_column: Array  # shape (n,), real: a(k)
    # recent_place, recent_s: of shape (m, places), int32 and real: where recent columns are among the own elements
    # (-1: they are not), and S there
    recent_place: Array
    recent_s: Array
    # shape (n_active,), int32, and (m, n_active), real: some columns, and S there; -inf on the diagonal
    active: Array
    active_s: Array
    outside: Array  # shape (2,), unsigned and as wide as real: a GPU's, for the largest a(k) of the other columns
    # wanted, slack: of shape (m,), real: of undecided rows, the least similarity that their lists should have; of the
    # others, how far a(k) of a column has to be above to be looked at
    wanted: Array
    slack: Array
    # shape (m,), int64: how many elements of its list behind the own ones the last look at a row read; -1: active
    # columns decided; -2: they did where the list had not
    read: Array
    undecided: Array  # shape (m,), uint8: 1 where the two largest are, 2 where R > 0 alone is


class ListedPassing(Protocol):
    """Functions on neighbour lists that both devices have, with these meanings.

    Parameters of several functions:

    messages : ListedMessages
        The state, in place.
    rows, numbers : int64 array of shape (m,)
        Own rows, by their positions among them; rows by their numbers among all.
    low : array of shape (m,), the similarities' type
        Finite.
    """

    def count_similar(self, s: Array, low: Array, *, out: Array) -> None:
        """Count each row's similarities >= low.

        Parameters
        ----------
        s : array of shape (m, padded(n))
        out : int64 array of shape (m,)
        """

    def gather_own(self, messages: ListedMessages, rows: Array) -> tuple[Array, Array, Array]:
        """Own elements of rows: how many each has; of all, one row behind the other, the columns and A."""

    def jitter_lists(
        self, s: Array, bounds: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float
    ) -> None:
        """Add to the similarities s of some pairs what `jitter` adds to them.

        Parameters
        ----------
        s, columns : arrays of shape (pairs,), real and int32
            One row behind the other.
        bounds : int64 array of shape (rows + 1,)
            Where each row begins and ends.
        numbers : int64 array of shape (rows,)
        """

    def jitter_pairs(self, s: Array, numbers: Array, columns: Array, *, seed: int, draw: int, tiny: float) -> None:
        """Add to s, of shape (m, k), what `jitter` adds to these rows and columns; columns: int array of shape (k,)."""

    def list_similar(self, s: Array, low: Array, begin: Array, *, column: Array, out: Array) -> None:
        """Write each row's similarities >= low from its `begin` on, the largest first, of equals the lowest column.

        With -inf behind them, up to a multiple of 32 elements.
        """

    def move_lists(self, messages: ListedMessages, begin: Array, *, values: Array, out: Array) -> None:
        """Copy what all lists have in `values` to where they begin in another array.

        Up to a multiple of 32 elements, behind a list -inf; of columns, whatever there is.

        Parameters
        ----------
        begin : int64 array of shape (own rows,)
        values, out : arrays
            `column`, `s` or `a` of the messages, and one of its type in its place.
        """

    def move_own(self, rows: Array, begin: Array, to: Array, length: Array, own: Array, a: Array) -> None:
        """Copy A of rows' own elements from where their lists began to where they begin, with which length.

        -inf behind them. `own` is of all own rows, the other arrays of `rows`.
        """

    def nearest_flagged(self, messages: ListedMessages, flags: Array, *, out: Array, out_s: Array) -> None:
        """Find the most similar flagged column of each list, the lowest of equals.

        Parameters
        ----------
        flags : uint8 array of shape (n,)
        out, out_s : arrays of shape (own rows,), int64 and the similarities' type
            The column, and its similarity; -1 where a list has none.
        """

    def pass_listed_iterations(
        self, messages: ListedMessages, steps: Sequence[Step], *, passed: bool, meet: Callable[[], None]
    ) -> None:
        """Do iterations, of all own rows and of all columns, until one has undecided rows: ``progress`` tells.

        Parameters
        ----------
        steps : sequence of Step
            One for each.
        passed : bool
            The rows of the first have been passed, and those that were undecided again.
        meet : callable
            Queues the sum over ranks, between rows and columns: all ranks call it as often, or all find out before that
            what is left does nothing.
        """

    def pass_listed_rows(self, messages: ListedMessages, rows: Array, numbers: Iteration, *, again: bool) -> None:
        """Do for rows what ``pass_rows`` does for all; for undecided ones, only what concerns A.

        Parameters
        ----------
        messages : ListedMessages
            In place: besides what ``pass_rows`` changes, own, a_column, undecided, wanted, slack, read and the last of
            `sums`. Nothing, unless `again`, while ``progress[0]`` is 1.
        numbers : Iteration
        again : bool
            These rows were undecided: their A is up to date.
        """

    def place_own(self, messages: ListedMessages, rows: Array, counts: Array, columns: Array, values: Array) -> None:
        """Give rows, whose lists are new, the own elements that `gather_own` gave, and recent columns their places."""

    def redraw_lists(self, messages: ListedMessages, numbers: Array, *, seed: int, draw: int, tiny: float) -> None:
        """Add the noise of `jitter` to similarities in lists and of recent columns, and sort the lists."""

    def similarities_of_columns(
        self, x: Array, numbers: Array, y: Array, columns: Array, *, norm: str, factor: float, seed: int, out: Array
    ) -> None:
        """Write what ``similarities`` writes to out of shape (m, k), for rows x and y of these numbers, ascending."""

    def similarities_of_rows(
        self, x: Array, numbers: Array, y: Array, *, norm: str, factor: float, seed: int, out: Array
    ) -> None:
        """Write what ``similarities`` writes, for rows x with these numbers, ascending, and all rows y."""


if TYPE_CHECKING:
    _cpu: ListedPassing = cpu_listed
    _gpu: ListedPassing = gpu_listed


def load_lists(device: str) -> ListedPassing:
    """The functions of a device, "cpu" or "cuda"."""
    name = {"cpu": "cpu_listed", "cuda": "gpu_listed"}[device]
    found: ListedPassing = importlib.import_module(f"mgclust.kernels.affinity_propagation.sparse_forms.{name}")
    return found
