r"""The state of affinity propagation on one rank, and why that is two n x n arrays and not four.

One iteration of Frey and Dueck (Science 315:972, 2007, equations 1 and 2), damped by lam, on similarities S with the
preferences on the diagonal::

    R(i,k) <- lam R(i,k) + (1 - lam) (S(i,k) - max over k' != k of (A(i,k') + S(i,k')))
    c(k)    = R(k,k) + sum over i != k of max(0, R(i,k))
    A(i,k) <- lam A(i,k) + (1 - lam) min(0, c(k) - max(0, R(i,k)))          i != k
    A(k,k) <- lam A(k,k) + (1 - lam) (c(k) - R(k,k))

Responsibilities are not stored. With m1, j and m2 the largest value of row i of A + S, its column, and the second
largest value, the update subtracts the same m1 in all columns but j, hence::

    R(i,k) = sigma S(i,k) - u(i) - E(i,k)            i != k
    sigma <- lam sigma + (1 - lam)
    u(i)  <- lam u(i)  + (1 - lam) m1
    E     <- lam E,    and E(i,j) += (1 - lam) (m2 - m1) <= 0

where E is zero but in the few columns that lately were a row's j: its *recent* columns. The diagonals of R and A are
vectors. Columns of A that are kept elsewhere (the diagonal, the recent columns, the padding) hold -inf in `a`: then
they are never the maximum, and every element can be treated alike.

Per iteration, element and rank: A and S are read, A is written; 12 bytes in float32. Across ranks: the sums over i of
max(0, R(i,k)) and the R(k,k), 2 n integers. S and the preferences bound max(0, R), so the sums are fixed-point
numbers that cannot overflow and do not depend on the order of addition: the same bits on any number of ranks.

A pass over the rows finishes A of the last iteration, for which it needs that iteration's c, and then begins the next::

    pass_rows       A with the c, sigma, u, E it finds;  m1, j, m2;  new u, E, R(k,k);  own part of the sums
    all_reduce      sums
    pass_columns    c, A(k,k), which are exemplars (A(k,k) + R(k,k) > 0), how many, and whether that has changed

Iterations are queued, so each of these does nothing once an iteration cannot be finished, as those of lists may be
(`listed`): a number behind the sums tells all ranks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

__all__ = ["PADDING", "RECENT_ARGMAXES", "Iteration", "Messages", "Vectors", "padded"]

Array = Any
PADDING = 32
RECENT_ARGMAXES = 32  # places of a row at first; a multiple of this whenever more are needed


def padded(columns: int) -> int:
    """Columns of an n x n matrix as it is stored: a multiple of 32, so that rows are aligned for vector loads."""
    return -(-columns // PADDING) * PADDING


class Iteration(NamedTuple):
    """Numbers with which a pass over the rows ends one iteration and begins the next."""

    sigma: float  # of the iteration that ends: 0 before the first
    next_sigma: float  # of the iteration that begins
    damping: float  # of the iteration that ends: 1 before the first, since A stays
    next_damping: float  # of the iteration that begins
    scale: float  # of the fixed-point sums
    negligible: float  # E counts as zero up to this share of max(|u|, |S|) of its row and place

    @classmethod
    def before_the_first(cls, negligible: float, sigma: float = 0.0, damping: float = 1.0) -> Iteration:
        """The numbers from which the first iteration follows; of a run that resumes, sigma and damping of its last."""
        return cls(0.0, sigma, 1.0, damping, 1.0, negligible)

    def followed_by(self, damping: float, scale: float) -> Iteration:
        """The numbers of the next pass over the rows, which begins an iteration of this damping."""
        sigma = damping * self.next_sigma + (1.0 - damping)
        return Iteration(self.next_sigma, sigma, self.next_damping, damping, scale, self.negligible)


@dataclass
class Vectors:
    """Vectors of the message passing on one rank, with m own rows of n; `real` is float32 or float64."""

    # n, first_row: rows of the data, and the number of the rank's first
    n: int
    first_row: int
    u: Array  # shape (m,), float64
    # shape (m, places), int32: columns with E != 0; -1: a free place. Places are a multiple of `RECENT_ARGMAXES`.
    recent_argmax: Array
    # recent_e, recent_a: of shape (m, places), real: E and A there
    recent_e: Array
    recent_a: Array
    recent_most: Array  # shape (1,), int32: the most places that a row has ever filled: raised by `pass_rows`
    c: Array  # shape (at least n,), real: as above; anything in the padding
    # r_diagonal, a_diagonal, preference: of shape (n,), float64: R(k,k), A(k,k) and S(k,k), equal on all ranks
    r_diagonal: Array
    a_diagonal: Array
    preference: Array
    # shape (2 n + 1,), int64. First sums over own rows of ``rint(max(0, R(i,k)) * scale)``; then the bits of the new
    # R(k,k) as float64, of own rows; 0 elsewhere. To be zero when `pass_rows` begins; `pass_columns` leaves them so.
    # Last the number of own rows that are undecided.
    sums: Array
    totals: Array  # the same of all ranks; `sums` itself where nothing is ever undecided, or there is one rank
    progress: Array  # shape (2,), int64: 1 once an iteration has undecided rows; how many have been finished
    # shape (slots, n), uint8: whether each row was an exemplar after the iterations that were written to these
    # slots
    exemplars: Array
    last_exemplars: Array  # shape (n,), uint8: the same after the last iteration
    # shape (slots, 2), int64: how many exemplars there were, and how many rows differ in that from the
    # iteration before
    counts: Array


@dataclass
class Messages(Vectors):
    """State of the message passing on one rank, with all elements of its rows."""

    s: Array  # shape (m, padded(n)), real: similarities; -inf on the diagonal and in the padding
    # shape (m, padded(n)), real: availabilities, one iteration behind; -inf on the diagonal, in recent columns
    # and in the padding
    a: Array
