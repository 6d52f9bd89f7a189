"""Near-linear ways to the same figures in one, two or three dimensions.

All-pairs passes cost n^2. With few features every rank can hold all rows (12 bytes each in 3-D), sorted into a tree of
boxes (`mgclust.kernels.low_dimension.box_tree`), and answer its share of the questions by skipping what is far away:

dc       counts pairs of boxes that lie wholly within or beyond the bracket at once       same bits as all pairs
delta    nearest denser row, best box first                                               same bits
cutoff   whole boxes within dc at once                                                    same bits
halo     boxes of other labels only                                                       same bits
rho      Gaussian: a convolution, by non-uniform FFT (`low_dimension.gaussian_grid`)      stated absolute error

The error of the FFT is a bound on any row's sum. Rows whose rho is too small for it to be a relative error of
`RHO_TOLERANCE` are summed directly; `exactness_` says how many.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from mgclust.algorithms.common.equal_rows import first_of_equal
from mgclust.engine.spmd import Context
from mgclust.errors import InputError
from mgclust.kernels.low_dimension.box_tree import BoxTree
from mgclust.kernels.low_dimension.gaussian_grid import grid_convolve, plan_gaussian_grid
from mgclust.kernels.pairs.metrics import Metric

__all__ = ["applies", "build_tree", "count_within", "gaussian_rho", "halo_border", "nearest_higher", "pair_histogram"]

Array = Any

MOST_FEATURES = 3
WORTH_IT = 10_000  # rows from which "auto" takes this path
RHO_TOLERANCE = 1e-6
BYTES_PER_CELL = 40
BYTES_PER_ROW = 96  # rows, tree, and what a search keeps, in float32
CELLS_PER_ROW = 32
LEAST_CELLS, MOST_CELLS = 1 << 21, 1 << 24


class Rho(NamedTuple):
    """Densities of all rows and how good they are."""

    values: Array
    recomputed: int
    relative_error: float


def applies(shape: tuple[int, int], metric: Metric, algorithm: str) -> bool:
    """Whether a run takes this path."""
    n, d = shape
    possible = d <= MOST_FEATURES and metric.norm == "l2"
    if algorithm == "grid" and not possible:
        raise InputError(
            f"algorithm='grid' needs at most {MOST_FEATURES} features and metric='euclidean', 'sqeuclidean', 'cosine' "
            f"or 'correlation'; there are n_features={d} and metric='{metric.name}'. Use algorithm='brute' or 'auto'."
        )
    return possible and (algorithm == "grid" or (algorithm == "auto" and n >= WORTH_IT))


def most_cells(n: int) -> int:
    """Cells of the largest grid that `gaussian_rho` takes; finer ones are left to all pairs."""
    return min(max(LEAST_CELLS, CELLS_PER_ROW * n), MOST_CELLS)


def build_tree(context: Context) -> BoxTree:
    """The tree of all rows, the same on every rank."""
    xp = context.kernels.xp
    own = [chunk.x for chunk in context.rows.chunks()]
    return BoxTree.build(context.comm.all_gather(own[0] if len(own) == 1 else xp.concatenate(own)), xp)


def pair_histogram(context: Context, tree: BoxTree, low: int, shift: int, out: Array) -> None:
    """Count a share of the pairs into the bins of `mgclust.kernels.pairs.cpu.pair_histogram`."""
    context.kernels.low_dimension.tree_pair_histogram(
        tree, part=context.rank, parts=context.size, low=low, shift=shift, out=out
    )


def gaussian_rho(context: Context, tree: BoxTree, scale: float) -> Rho | None:
    """Gaussian density of all rows without themselves, or None if the grid would be too large."""
    kernels, xp, comm = context.kernels, context.kernels.xp, context.comm
    n = len(tree.index)
    low, high = (kernels.memory.to_host(end).tolist() for end in (tree.rows.min(axis=0), tree.rows.max(axis=0)))
    plan = plan_gaussian_grid(low, high, scale, n)
    if plan.cells > most_cells(n):
        return None
    start, stop = _share(context, n)
    x = tree.rows[start:stop]
    grid = xp.zeros(plan.shape, dtype="int64")
    kernels.low_dimension.spread(x, plan, grid)
    grid = grid_convolve(comm.all_reduce(grid, "sum"), plan, xp)
    rho = xp.empty(stop - start, dtype="float64")
    kernels.low_dimension.interpolate(x, grid, plan, rho)
    rho -= 1.0
    smallest = plan.error_bound / RHO_TOLERANCE
    few = xp.flatnonzero(rho < smallest)
    if few.size:
        direct = xp.zeros(few.size, dtype="float64")
        alike = first_of_equal(tree.rows, few + start, xp)
        for first in range(0, n, context.partition.block_rows):
            columns = tree.rows[first : first + context.partition.block_rows]
            context.progress(first / n)
            kernels.pairs.gaussian_sum(
                x[few], columns, norm="l2", scale=scale, power=1, rows=alike, y_start=first, out=direct
            )
        rho[few] = direct
    recomputed = comm.all_reduce(xp.asarray([few.size]), "sum")
    return Rho(_by_row(context, tree, rho), int(recomputed[0]), RHO_TOLERANCE)


def count_within(context: Context, tree: BoxTree, threshold: float) -> Array:
    """How many rows lie within a reduced distance of each, itself included; int64."""
    start, stop = _share(context, len(tree.index))
    counts = context.kernels.xp.zeros(stop - start, dtype="int64")
    context.kernels.low_dimension.tree_count_within(tree, start=start, stop=stop, threshold=threshold, out=counts)
    return _by_row(context, tree, counts)


def nearest_higher(context: Context, tree: BoxTree, order: Array) -> tuple[Array, Array]:
    """Reduced distance and index of each row's nearest denser row."""
    xp = context.kernels.xp
    start, stop = _share(context, len(tree.index))
    best, index = xp.empty(stop - start, dtype=context.dtype), xp.empty(stop - start, dtype="int64")
    context.kernels.low_dimension.tree_nearest_higher(tree, order, start=start, stop=stop, best=best, best_index=index)
    return _by_row(context, tree, best), _by_row(context, tree, index)


def halo_border(context: Context, tree: BoxTree, labels: Array, threshold: float) -> Array:
    """Which rows have a row of another label within a reduced distance; uint8."""
    start, stop = _share(context, len(tree.index))
    marks = context.kernels.xp.zeros(stop - start, dtype="uint8")
    context.kernels.low_dimension.tree_border(tree, labels, start=start, stop=stop, threshold=threshold, out=marks)
    return _by_row(context, tree, marks)


def _share(context: Context, n: int) -> tuple[int, int]:
    """Positions of the tree that this rank answers for."""
    return n * context.rank // context.size, n * (context.rank + 1) // context.size


def _by_row(context: Context, tree: BoxTree, mine: Array) -> Array:
    """All ranks' answers, put from tree positions back into row order."""
    every = context.comm.all_gather(mine)
    out = context.kernels.xp.empty_like(every)
    out[tree.index] = every
    return out
