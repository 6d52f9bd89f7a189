r"""The state of affinity propagation on one rank, and why it needs two n x n arrays instead of four.

One iteration of Frey and Dueck (Science 315:972, 2007, equations 1 and 2), with damping lam and similarities S that
have the preferences on the diagonal::

    R(i,k) <- lam R(i,k) + (1 - lam) (S(i,k) - max over k' != k of (A(i,k') + S(i,k')))
    c(k)    = R(k,k) + sum over i != k of max(0, R(i,k))
    A(i,k) <- lam A(i,k) + (1 - lam) min(0, c(k) - max(0, R(i,k)))          i != k
    A(k,k) <- lam A(k,k) + (1 - lam) (c(k) - R(k,k))

Responsibilities are not stored. Let m1 be the largest value of row i of A + S, j its column, and m2 the second largest
value. The update subtracts the same m1 in all columns except j. Hence::

    R(i,k) = sigma S(i,k) - u(i) - E(i,k)            i != k
    sigma <- lam sigma + (1 - lam)
    u(i)  <- lam u(i)  + (1 - lam) m1
    E     <- lam E,    and E(i,j) += (1 - lam) (m2 - m1) <= 0

E differs from zero only in the *recent* columns of a row: the few columns that were j in one of the last iterations.
The diagonals of R and A are vectors. The array `a` has -inf in columns of A that are stored elsewhere (the diagonal,
the recent columns) and in the padding. So an element with -inf is never the maximum, and all elements can be treated in
the same way.

Memory traffic per iteration and element: A and S are read, and A is written; 12 bytes in float32. Communication between
ranks: the sums over i of max(0, R(i,k)) and the R(k,k), 2 n integers. S and the preferences bound max(0, R). So the
sums are fixed-point numbers that cannot overflow and do not depend on the order of addition: they are bitwise identical
on any number of ranks.

A pass over the rows finishes A of the previous iteration, for which it needs c of the previous iteration, and then
begins the next iteration::

    pass_rows       A, from the current c, sigma, u, E;  m1, j, m2;  new u, E, R(k,k);  this rank's part of the sums
    all_reduce      sums
    pass_columns    c, A(k,k), the exemplars (A(k,k) + R(k,k) > 0), their number, and whether they have changed

Iterations are queued before their results are known. With neighbour lists (`listed`), an iteration may be impossible to
finish. The last element of `sums` reports this to all ranks, and then all queued functions do nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["PADDING", "RECENT_ARGMAXES", "Iteration", "Messages", "Vectors", "padded"]

Array = Any
PADDING = 32
RECENT_ARGMAXES = 32  # initial number of places for recent columns per row; if more are needed, a multiple of it


def padded(columns: int) -> int:
    """Return the number of stored columns: a multiple of 32, so that rows are aligned for vector loads."""
    return -(-columns // PADDING) * PADDING


class Iteration(NamedTuple):
    """Numbers with which a pass over the rows ends one iteration and begins the next one."""

    sigma: float  # sigma of the iteration that ends: 0 before the first
    next_sigma: float  # sigma of the iteration that begins
    damping: float  # damping of the iteration that ends: 1 before the first, because A does not change
    next_damping: float  # damping of the iteration that begins
    scale: float  # scale of the fixed-point sums
    negligible: float  # E counts as zero if |E| is at most this fraction of max(|u|, |S|), for S of the same element

    @classmethod
    def before_the_first(cls, negligible: float, sigma: float = 0.0, damping: float = 1.0) -> Iteration:
        """Return the numbers before the first iteration; if a run resumes, sigma and damping are from its last one."""
        return cls(0.0, sigma, 1.0, damping, 1.0, negligible)

    def followed_by(self, damping: float, scale: float) -> Iteration:
        """Return the numbers of the next pass over the rows, which begins an iteration with this damping."""
        sigma = damping * self.next_sigma + (1.0 - damping)
        return Iteration(self.next_sigma, sigma, self.next_damping, damping, scale, self.negligible)


@dataclass
class Vectors:
    """Vectors of the message passing on a rank that owns m of n rows; `real` is float32 or float64."""

    # n, first_row: number of rows of the data, and global number of the rank's first row
    n: int
    first_row: int
    u: Array  # shape (m,), float64
    # shape (m, places), int32: recent columns, -1 in free places. `places` is a multiple of `RECENT_ARGMAXES`.
    recent_argmax: Array
    # recent_e, recent_a: shape (m, places), real: E and A in these columns
    recent_e: Array
    recent_a: Array
    recent_most: Array  # shape (1,), int32: largest number of places that a row has filled, updated by `pass_rows`
    c: Array  # shape (at least n,), real: c(k); the padding may hold any values
    # r_diagonal, a_diagonal, preference: shape (n,), float64: R(k,k), A(k,k) and S(k,k), equal on all ranks
    r_diagonal: Array
    a_diagonal: Array
    preference: Array
    # shape (2 n + 1,), int64. First n: sums over this rank's rows of ``rint(max(0, R(i,k)) * scale)``. Next n: bits of
    # the new R(k,k) as float64 for this rank's rows, and 0 for other rows. Last: number of this rank's rows that are
    # undecided. All elements must be 0 when `pass_rows` begins; `pass_columns` sets them to 0.
    sums: Array
    totals: Array  # total of `sums` over all ranks; the array `sums` itself if no row can be undecided, or on one rank
    progress: Array  # shape (2,), int64: 1 if an iteration has undecided rows, else 0; number of finished iterations
    # shape (slots, n), uint8: whether each row was an exemplar after the iteration that was written to the slot
    exemplars: Array
    last_exemplars: Array  # shape (n,), uint8: whether each row was an exemplar after the last finished iteration
    # shape (slots, 2), int64: number of exemplars, and number of rows that became or ceased to be exemplars in the
    # iteration
    counts: Array


@dataclass
class Messages(Vectors):
    """State of the message passing on a rank that stores all elements of its rows."""

    s: Array  # shape (m, padded(n)), real: similarities; -inf on the diagonal and in the padding
    # shape (m, padded(n)), real: availabilities, one iteration behind; -inf on the diagonal, in recent columns
    # and in the padding
    a: Array
