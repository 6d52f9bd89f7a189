"""Choice of the rows that become centres of canopies: the block-greedy method, exact on any number of ranks.

By definition, the first candidate becomes a centre, every candidate within t2 of it is dropped, and this repeats until
no candidate is left. The centres are the lexicographically first maximal independent set of the graph that joins rows
within t2 of each other. So for each order of the rows there is exactly one result, however it is computed. Here, each
step takes 4096 candidates::

    each rank    offers its first 4096 candidates                all_gather of 8 bytes each, 16 in random order
    all ranks    take the first 4096 of all offered candidates   all_gather of their rows
    all ranks    pick centres among these                        `first_independent`, the same on every rank
    each rank    drops its candidates near a new centre          `border`, or `mark_near`

Each of the 4096 candidates is picked or dropped, so there are at most n / 4096 steps. Usually, most other candidates
are also dropped: a million rows that make a thousand canopies take three or four steps. If few candidates are dropped,
a rank puts its rows into bounding boxes once. From then on, a step reads only rows near its new centres (`mark_near`),
and rows are no longer moved in memory.

If nearly all candidates of a step are picked, thousands of steps could follow. On a GPU, starting these steps and their
collectives takes longer than the computation. In this case, the ranks offer more candidates per step, and each rank
picks centres among them, 4096 candidates at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from mgclust.base.errors import InsufficientMemoryError
from mgclust.base.hashing import GOLDEN, splitmix64
from mgclust.engine.checkpoint import Saved
from mgclust.engine.memory import human
from mgclust.engine.spmd import Context
from mgclust.kernels import Kernels
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["Candidates", "Picked", "greedy_centers", "pick_centers", "priorities", "threshold_of"]

Array = Any
STEP = 4096  # candidates per step
# If a step leaves more than this fraction of the candidates, at least about ten more steps follow. These steps take
# longer than making bounding boxes.
MANY_LEFT = 7 / 8
MANY_PICKED = 7 / 8  # if a larger fraction of a step's candidates is picked, the next step has more candidates
GROWTH = 4  # factor by which the number of candidates then grows
# Largest fraction of all rows that are candidates of one step; every rank compares all pairs of these candidates.
LARGEST_SHARE = 1 / 64


class Picked(NamedTuple):
    """Centres, in the order in which they were picked."""

    rows: np.ndarray  # (K,), int64, on the host: global row numbers
    x: Array  # (K, n_features), on the device: the rows
    steps: int


def threshold_of(measure: Metric, t: float, dtype: Any) -> float:
    """Find the bound for which ``s < bound`` is equivalent to ``distance <= t``, in the number type of the rows.

    The distance that belongs to a reduced distance s is correctly rounded and grows with s. So there is a largest s
    whose distance is at most t, and the bound is the next larger number.

    Parameters
    ----------
    measure : Metric
    t : float
        Non-negative. It is first rounded to `dtype`, in the same way as distances.
    dtype : dtype
        float32 or float64.

    Returns
    -------
    float
    """
    real = np.dtype(dtype).type
    factor, infinity = real(measure.factor), real(np.inf)

    def within(s: Any) -> bool:
        return bool((s * factor if measure.squared else np.sqrt(s)) <= limit)

    with np.errstate(over="ignore"):
        limit = real(t)
        s = limit / factor if measure.squared else limit * limit
        while s > 0 and not within(s):
            s = np.nextafter(s, real(0))
        while s < infinity and within(s):
            s = np.nextafter(s, infinity)
    return float(s)


def priorities(rows: Array, seed: int, xp: Any = np) -> Array:
    """Return random numbers that order rows, smallest first; each depends only on the seed and the row number.

    The number is `splitmix64` of the seed plus the row number. This function is one-to-one, so no two rows have the
    same priority.

    Parameters
    ----------
    rows : int64 array
        Global row numbers.
    seed : int
        Less than 2**64.
    xp : module
        numpy or cupy.

    Returns
    -------
    int64 array of the same shape
    """
    start = xp.asarray([seed % 2**64], dtype="uint64")
    return splitmix64(rows.astype("uint64") + splitmix64(start + xp.uint64(GOLDEN))).view("int64")


class Candidates:
    """The rows of a rank that are neither centres nor near a centre, in order of priority.

    Parameters
    ----------
    kernels : module
    read : callable
        ``read(start, stop)`` returns rows by global number, on the device.
    bounds : list of tuple of int
        Bounds of batches of this rank's rows that fit on the device one at a time. With a single batch, the rows of the
        candidates are kept on the device.
    seed : int, optional
        Seed of random priorities; None: priorities are the row numbers.
    boxed : bool
        Whether bounding boxes around the rows fit into memory. Boxes are used only if there is a single batch.
    """

    def __init__(
        self,
        kernels: Kernels,
        read: Callable[[int, int], Array],
        bounds: list[tuple[int, int]],
        seed: int | None = None,
        boxed: bool = False,
    ) -> None:
        xp = kernels.xp
        self._kernels, self._read, self._bounds = kernels, read, bounds
        self._x = read(*bounds[0]) if len(bounds) == 1 else None
        self._boxed = boxed and self._x is not None
        self._boxes: Any = None
        # Once there are boxes: position of each candidate among the rows in boxes, and flags of rows near a centre.
        self._at = self._near = xp.empty(0, dtype="int64")
        self.rows = xp.arange(bounds[0][0], bounds[-1][1])
        self.priority = self.rows
        self.shuffled = seed is not None
        if seed is not None:
            priority = priorities(self.rows, seed, xp)
            order = xp.argsort(priority)
            self._keep(order, priority)
        self._zeros = xp.zeros(len(self.rows), dtype="int32")
        self._ones = xp.ones(max(STEP, kernels.canopy.MAX_OFFERED), dtype="int32")

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, count: int) -> Array:
        """Return the rows of the first `count` candidates, on the device."""
        if self._x is not None:
            return self._x[:count] if self._boxes is None else self._x[self._at[:count]]
        xp = self._kernels.xp
        wanted = self.rows[:count]
        out = None
        for at, x in self._met(wanted):
            out = xp.empty((count, x.shape[1]), x.dtype) if out is None else out
            out[at] = x
        return self._read(self._bounds[0][0], self._bounds[0][0]) if out is None else out

    def drop_near(self, centers: Array, norm: str, threshold: float) -> None:
        """Drop the candidates whose reduced distance to a centre is less than `threshold`."""
        xp, before = self._kernels.xp, len(self)
        if self._boxes is not None:
            self._kernels.canopy.mark_near(self._boxes, centers, norm=norm, threshold=threshold, out=self._near)
            self._keep(xp.flatnonzero(self._near[self._at] == 0), self.priority)
            return
        near = xp.zeros(len(self), dtype="uint8")
        others = self._ones[: len(centers)]

        def mark(x: Array) -> Array:
            out = xp.zeros(len(x), dtype="uint8")
            self._kernels.pairs.border(
                x, centers, self._zeros[: len(x)], others, norm=norm, threshold=threshold, out=out
            )
            return out

        if self._x is not None:
            near = mark(self._x)
        else:
            for at, x in self._met(self.rows):
                near[at] = mark(x)
        self._keep(xp.flatnonzero(near == 0), self.priority)
        if self._boxed and len(self) > max(self._kernels.canopy.MIN_BOXED, MANY_LEFT * before):
            self._put_into_boxes()

    def _put_into_boxes(self) -> None:
        xp = self._kernels.xp
        self._boxes = self._kernels.canopy.row_boxes(self._x)
        self._boxed = False
        if self._boxes is not None:
            self._at, self._near = xp.arange(len(self)), xp.zeros(len(self), dtype="uint8")

    def _keep(self, at: Array, priority: Array) -> None:
        self.rows, self.priority = self.rows[at], priority[at]
        if self._boxes is not None:
            self._at = self._at[at]
        elif self._x is not None:
            self._x = self._x[at]

    def _met(self, rows: Array) -> Iterator[tuple[Array, Array]]:
        """Yield positions in `rows`, and the rows themselves, one batch of local rows after the other."""
        for start, stop in self._bounds:
            at = self._kernels.xp.flatnonzero((rows >= start) & (rows < stop))
            if len(at):
                yield at, self._read(start, stop)[rows[at] - start]


def pick_centers(
    context: Context, candidates: Candidates, measure: Metric, t2: float, saved: Saved | None = None
) -> Picked:
    """Pick the centres among the candidates of all ranks; every rank picks the same centres.

    A checkpoint contains the row numbers of the centres. Dropping all rows near them restores the candidates of that
    step.

    Parameters
    ----------
    context : Context
    candidates : Candidates
        The candidates of this rank; none are left afterwards.
    measure : Metric
    t2 : float
        The tight distance, positive.
    saved : Saved, optional
        The checkpoint to continue from.

    Returns
    -------
    Picked

    Raises
    ------
    InsufficientMemoryError
        If there are so many centres that a rank cannot hold their rows.
    """
    comm, kernels, (n, d) = context.comm, context.kernels, context.dataset_shape
    norm, threshold = measure.norm, threshold_of(measure, t2, context.dtype)
    room = int(comm.all_reduce(np.array([context.spare // 2], np.int64), "min")[0])
    most = _most_offered(context, room // 2)
    offers = STEP
    rows: list[np.ndarray] = []
    x: list[Array] = []
    count = steps = 0
    if saved is not None:
        rows, steps = [saved.arrays["centers"]], saved.control["steps"]
        count = len(rows[0])
        x = [_rows_in_order(context, rows[0])]
        for first in range(0, count, STEP):
            candidates.drop_near(x[0][first : first + STEP], norm, threshold)
    while True:
        context.progress(1 - len(candidates) / max(1, len(context.rows)), n_canopies=count)
        numbers, offered = _offered(context, candidates, offers)
        if not len(numbers):
            break
        if len(offered) > STEP:
            chosen = kernels.xp.asarray(greedy_centers(kernels, offered, norm=norm, threshold=threshold))
        else:
            chosen = _independent(kernels, offered, norm, threshold)
        many = len(chosen) >= MANY_PICKED * len(numbers)
        offers = max(STEP, min(GROWTH * offers, most)) if many else STEP
        rows.append(kernels.memory.to_host(numbers[chosen]))
        x.append(offered[chosen])
        candidates.drop_near(x[-1], norm, threshold)
        steps += 1
        count += len(rows[-1])
        if count * d * context.dtype.itemsize > room:
            raise InsufficientMemoryError(
                f"t2={t2:g} makes more than {count} centres of {n} rows, and these centres exceed half of the free "
                f"memory of a rank ({human(room)}); raise t2, or use workers with more memory."
            )
        if context.checkpoint.due():
            context.checkpoint.save({"steps": steps}, {"centers": np.concatenate(rows)})
    return Picked(np.concatenate(rows), kernels.xp.concatenate(x), steps)


def _most_offered(context: Context, room: int) -> int:
    """Return the largest number of candidates of a step; each rank has at least four times `room` bytes free."""
    n, d = context.dataset_shape
    of_memory = room // 4 // ((1 + context.comm.size) * (d * context.dtype.itemsize + 16))
    return min(context.kernels.canopy.MAX_OFFERED, int(LARGEST_SHARE * n), of_memory)


def _rows_in_order(context: Context, numbers: np.ndarray) -> Array:
    """Return the rows with these global numbers, in the order of the numbers, on the device of every rank."""
    order = np.argsort(numbers)
    place = np.empty_like(order)
    place[order] = np.arange(len(order))
    return context.gather_rows(numbers[order])[context.kernels.xp.asarray(place)]


def greedy_centers(kernels: Kernels, x: Array, *, norm: str, threshold: float) -> np.ndarray:
    """Pick centres, in row order, among rows that one device holds.

    Parameters
    ----------
    kernels : module
    x : array of shape (n, n_features)
        The rows, on the device of `kernels`, float32 or float64.
    norm : {"l2", "l1"}
        Kind of reduced distance.
    threshold : float
        Two rows are near each other if s < threshold, which is positive; see `threshold_of`.

    Returns
    -------
    int64 ndarray
        Positions of the picked rows, ascending. No two of them are near each other, and every row is near one of them.
    """
    candidates = Candidates(kernels, lambda start, stop: x[start:stop], [(0, len(x))])
    picked = [np.empty(0, np.int64)]
    while len(candidates):
        offered, rows = candidates.take(STEP), candidates.rows
        chosen = _independent(kernels, offered, norm, threshold)
        picked.append(kernels.memory.to_host(rows[chosen]))
        candidates.drop_near(offered[chosen], norm, threshold)
    return np.concatenate(picked)


def _offered(context: Context, candidates: Candidates, count: int) -> tuple[Array, Array]:
    """Return the row numbers and rows of the first `count` candidates of all ranks, in order of priority."""
    comm, xp = context.comm, context.kernels.xp
    own = candidates.priority[:count]
    if comm.size == 1:
        return candidates.rows[:count], candidates.take(len(own))
    offered = comm.all_gather(own)
    if len(offered) > count:
        last = xp.sort(offered)[count - 1]
        own, offered = own[own <= last], offered[offered <= last]
    order = xp.argsort(offered)
    rows = comm.all_gather(candidates.rows[: len(own)]) if candidates.shuffled else offered
    x = comm.all_gather(xp.ascontiguousarray(candidates.take(len(own))))
    return rows[order], xp.ascontiguousarray(x[order])


def _independent(kernels: Kernels, x: Array, norm: str, threshold: float) -> Array:
    """Return the positions of the rows that become centres, among the candidates of a step."""
    picked = kernels.xp.empty(len(x), dtype="uint8")
    kernels.canopy.first_independent(x, norm=norm, threshold=threshold, out=picked)
    return kernels.xp.flatnonzero(picked)
