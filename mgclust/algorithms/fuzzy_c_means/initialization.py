r"""Initial centres, the same on any number of ranks: k-means++, k-means||, random rows, canopies, random memberships.

D^2(x) is the squared distance of row x to the nearest centre chosen so far, and w is the weight of the row:

k-means++ (Arthur and Vassilvitskii, SODA 2007)
    Each next centre is a row, drawn with probability w D^2(x) / sum of w D^2. Of 2 + log(c) such rows, the one that
    lowers the sum most is kept. This needs all rows in one place and c passes over them.
k-means|| (Bahmani et al., VLDB 2012), for more than `DIRECT_ROWS` rows
    There are five rounds. In each round, every row independently becomes a candidate with probability
    l w D^2(x) / sum, with l = 2 c. The weight of a candidate is the weight of the rows that are nearest to it. Then
    k-means++ chooses among the candidates.
canopies
    The rows that canopy clustering selects (see `mgclust.algorithms.canopy.estimator`), with the largest radius that
    gives at least c of them. The c rows with the most rows around them are the centres.
random memberships
    u_ij = r_ij / sum_k r_ik with r uniform in (0, 1]; the first step (2) computes centres from them. These centres lie
    within about 1 / sqrt(n) of the data's spread from the mean, which is a stationary point of J. So runs leave the
    mean slowly, or not at all.

Why the result does not depend on the ranks: a row's random number is a function of the seed and of its number in the
data. Sums on which decisions depend are sums of integers, or come from `Context.sum_parts`. Rank 0 does the work that
needs all rows (or candidates) in one place, and sends the result to the other ranks.

Cost: a round of k-means|| takes 2 c distances per row. All rounds together are as much work as ten iterations of fuzzy
c-means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from mgclust.algorithms.canopy.centers import greedy_centers, priorities
from mgclust.algorithms.common.row_hashes import row_hashes
from mgclust.engine.spmd import Context
from mgclust.kernels import Kernels
from mgclust.kernels.masks import any_true

__all__ = ["DRAWN", "INITS", "gathered_bytes", "random_memberships", "starting_centers"]

Array = Any
INITS = ("k-means++", "random", "canopy", "random-memberships")
DRAWN = ("k-means++", "random", "random-memberships")  # names of starts that are drawn, so that repeated starts differ
DIRECT_ROWS = 65_536  # up to this many rows, all rows are gathered
DIRECT_NUMBERS = 1 << 26
TABLE_ROWS = 4096  # up to this many rows, k-means++ computes a table of all distances
ROUNDS = 5
OVERSAMPLING = 2
MEMBERS_RADIUS = 1 / 0.7  # rows within t1 = t2 / 0.7 of a centre are members of its canopy, as in the paper
SHRINK = 0.8
SUM_BITS = 61


def starting_centers(
    context: Context, how: str, c: int, *, starts: int, weights: Array | None, total: float, seed: int
) -> np.ndarray:
    """Return centres to start from, in the coordinates of the prepared rows.

    Parameters
    ----------
    context : Context
    how : {"k-means++", "random", "canopy"}
    c : int
        Number of centres, at most the number of rows with a positive weight.
    starts : int
        Number of independent sets of centres.
    weights : array of shape (own rows,), optional
        Weights of this rank's rows, on the device.
    total : float
        Sum of all weights.
    seed : int

    Returns
    -------
    ndarray of shape (starts, c, n_features), float64
        Equal on all ranks.
    """
    n, d = context.dataset_shape
    streams = np.random.SeedSequence(seed).spawn(starts)
    if how == "random":
        return np.stack([_random_rows(context, c, weights, np.random.default_rng(s)) for s in streams])
    few = _is_few(n, d)
    if how == "canopy":
        chosen = None if few else _sample(n, d, streams[0])
        rows, worth = _gather(context, chosen), _gather_weights(context, weights)
        if worth is not None:
            worth = worth if chosen is None else worth[context.kernels.xp.asarray(chosen)]
            rows = context.kernels.xp.ascontiguousarray(rows[worth > 0])
        return _by_rank_0(context, lambda: _largest_canopies(context.kernels, rows, c)[None])
    everything, all_weights = None, None
    if few:
        everything, all_weights = _by_content(context, _gather(context, None), _gather_weights(context, weights))
    found = []
    for stream in streams:
        rng = np.random.default_rng(stream)
        if everything is not None:
            candidates, worth = everything, all_weights
        else:
            candidates, worth = _candidates(context, c, weights, total, rng)
        found.append(_by_rank_0(context, lambda: _plus_plus(context.kernels, candidates, worth, c, rng)))  # noqa: B023
    return np.stack(found)


def gathered_bytes(n: int, d: int, itemsize: int) -> int:
    """Return the bytes of the rows that every rank holds while centres are chosen, and of the results for each row."""
    if not _is_few(n, d):
        return 0
    return n * (2 * d * itemsize + 64)  # one copy in the order of the data, and one sorted by content


def _is_few(n: int, d: int) -> bool:
    return n <= DIRECT_ROWS and n * d <= DIRECT_NUMBERS


def random_memberships(xp: Any, c: int, *, starts: int, seed: int) -> list[Callable[[int, int], Array]]:
    """Return random memberships, which depend on the seed, on c and on the number of a row in the data.

    Parameters
    ----------
    xp : module
        numpy or cupy.
    c : int
        Number of clusters.
    starts : int
        Number of independent sets of memberships.
    seed : int

    Returns
    -------
    list of functions (start, stop) -> float64 array of shape (stop - start, c)
        Memberships of the rows from `start` to `stop`; they are positive, and each row sums to 1.
    """

    def of_rows(start: int, stop: int, key: int) -> Array:
        shares = 1.0 - _uniform(xp, xp.arange(start * c, stop * c), key).reshape(stop - start, c)
        return shares / shares.sum(axis=1, keepdims=True)

    streams = np.random.SeedSequence(seed).spawn(starts)
    return [partial(of_rows, key=int(np.random.default_rng(stream).integers(2**63))) for stream in streams]


def _by_rank_0(context: Context, function: Any) -> np.ndarray:
    """Call a function on rank 0; return its result on all ranks."""
    value: np.ndarray = context.comm.agree(function() if context.rank == 0 else None)
    return value


def _gather(context: Context, chosen: np.ndarray | None) -> Array:
    """Gather some rows (by ascending number) or all rows on every rank."""
    return context.gather_rows(np.arange(context.dataset_shape[0]) if chosen is None else chosen)


def _by_content(context: Context, x: Array, weights: Array | None) -> tuple[Array, Array | None]:
    """Sort the rows by their content if some rows are equal, or if they have weights other than 1.

    Rows are drawn in this order. So a row of weight 2 is drawn in the same way as a row that occurs twice in the data.
    """
    xp = context.kernels.xp
    if weights is not None:
        some = xp.flatnonzero(weights > 0)
        x, weights = x[some], weights[some]
    hashes = row_hashes(x, xp)
    order = xp.argsort(hashes, kind="stable")
    ordered = hashes[order]
    if any_true(ordered[1:] == ordered[:-1]) or (weights is not None and any_true(weights != 1)):
        return x[order], None if weights is None else weights[order]
    return x, weights


def _gather_weights(context: Context, weights: Array | None) -> Array | None:
    return None if weights is None else context.comm.all_gather(weights).astype("float64")


def _sample(n: int, d: int, stream: np.random.SeedSequence) -> np.ndarray:
    rows = max(1, min(n, DIRECT_ROWS, DIRECT_NUMBERS // d))
    return np.sort(np.random.default_rng(stream).choice(n, rows, replace=False))


def _random_rows(context: Context, c: int, weights: Array | None, rng: np.random.Generator) -> np.ndarray:
    n = context.dataset_shape[0]
    all_weights = _gather_weights(context, weights)
    # A row of weight 0 cannot be a start.
    eligible = n if all_weights is None else np.flatnonzero(context.kernels.memory.to_host(all_weights) > 0)
    chosen = np.sort(rng.choice(eligible, c, replace=False))
    return np.asarray(context.kernels.memory.to_host(_gather(context, chosen)), np.float64)


def _plus_plus(kernels: Kernels, x: Array, weights: Array | None, c: int, rng: np.random.Generator) -> np.ndarray:
    """Choose centres by greedy k-means++ among rows that one device holds."""
    xp = kernels.xp
    n = len(x)
    worth = xp.ones(n) if weights is None else weights
    trials, table = 2 + int(np.log(c)), None
    if n <= min(TABLE_ROWS, 2 * c * trials):  # here, a GPU would spend its time on the launches of small steps
        xp, worth = np, kernels.memory.to_host(worth)
        table = kernels.memory.to_host(kernels.pairs.reduced_distances(x, x, norm="l2"))

    def squares(rows: list[int]) -> Array:
        found = kernels.pairs.reduced_distances(x[rows], x, norm="l2") if table is None else table[rows]
        return found.astype("float64")

    # Rows are drawn with integers, because their cumulative sums are exact.
    cumulative = _cumulative(xp, worth, float(worth.sum()))
    chosen = [_draw(xp, cumulative, rng.random(1))[0]]
    near = squares(chosen)[0]
    while len(chosen) < c:
        cost = near * worth
        total = float(cost.sum())
        if total <= 0.0:
            # Every row coincides with a centre, so any row will do; a warning reports centres that coincide.
            left = np.setdiff1d(np.flatnonzero(kernels.memory.to_host(worth) > 0), chosen)
            chosen += rng.choice(left if len(left) else chosen, c - len(chosen)).tolist()
            break
        drawn = _draw(xp, _cumulative(xp, cost, total), rng.random(trials))
        lower = xp.minimum(near, squares(drawn))
        best = int(xp.argmin((lower * worth).sum(axis=1)))
        near = lower[best]
        chosen.append(drawn[best])
    return np.asarray(kernels.memory.to_host(x[chosen]), np.float64)


def _cumulative(xp: Any, values: Array, total: float) -> Array:
    """Return cumulative sums in integers, scaled so that the last one is near 2^SUM_BITS."""
    scale = 2.0 ** np.floor(SUM_BITS - np.log2(total))
    return xp.cumsum(xp.rint(values * scale).astype("int64"))


def _draw(xp: Any, cumulative: Array, uniforms: np.ndarray) -> list[int]:
    """Draw rows in proportion to the steps of the cumulative sums."""
    levels = (uniforms * float(cumulative[-1])).astype(np.int64)
    drawn: list[int] = xp.searchsorted(cumulative, xp.asarray(levels), side="right").tolist()
    return [min(row, len(cumulative) - 1) for row in drawn]


def _candidates(
    context: Context, c: int, weights: Array | None, total: float, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Return the candidates of k-means||, and for each candidate the weight of the rows that are nearest to it."""
    kernels, xp, rows = context.kernels, context.kernels.xp, context.rows
    n, first = context.dataset_shape[0], rows.start
    near = xp.full(len(rows), xp.inf, dtype=context.dtype)
    nearest = xp.full(len(rows), -1, dtype="int32")

    def worth(start: int, stop: int) -> Array:
        return xp.ones(stop - start) if weights is None else weights[start - first : stop - first].astype("float64")

    def cost(start: int, stop: int) -> Array:
        return near[start - first : stop - first].astype("float64") * worth(start, stop)

    def drawn(start: int, stop: int, turn: int, potential: float) -> Array:
        chance = OVERSAMPLING * c * cost(start, stop) / potential
        return _uniform(xp, xp.arange(start, stop) + turn * n, key) < chance

    key = int(rng.integers(2**63))
    found = _first_row(context, None if weights is None else worth, rng)
    candidates, pieces = found, list(_own_pieces(context))
    for turn in range(1, ROUNDS + 1):
        _approach(context, found, len(candidates) - len(found), near, nearest)
        sums = [xp.zeros((0, 1)), *(_block_sums(context, *piece, cost(*piece)) for piece in pieces)]
        potential = float(context.fetch(context.sum_parts(xp.concatenate(sums)))()[0])
        if potential <= 0.0:
            break
        marks = ((piece[0], kernels.memory.to_host(drawn(*piece, turn, potential))) for piece in pieces)
        chosen = [np.empty(0, np.int64), *(at + np.flatnonzero(each) for at, each in marks)]
        found = context.gather_rows(np.concatenate(chosen))
        candidates = xp.concatenate([candidates, found])
    _approach(context, found, len(candidates) - len(found), near, nearest)
    if len(candidates) < c:
        # There are fewer distinct rows than centres, so some candidates occur twice.
        again = xp.asarray(rng.choice(len(candidates), c - len(candidates)))
        candidates = xp.concatenate([candidates, candidates[again]])
    # Sums of integers do not depend on the order; 2^SUM_BITS exceeds the sum of all weights.
    scale = 2.0 ** np.floor(SUM_BITS - np.log2(total))
    sums = xp.zeros((len(candidates), 1), dtype="int64")
    for start, stop in pieces:
        own = nearest[start - first : stop - first]
        kernels.label_sums.group_sums(worth(start, stop)[:, None], own, scale=scale, out=sums)
    return candidates, context.comm.all_reduce(sums, "sum")[:, 0] / scale


def _own_pieces(context: Context) -> Iterator[tuple[int, int]]:
    """Yield bounds of pieces of the local rows, in whole blocks, for arrays of a dozen 8-byte numbers per row."""
    rows, block = context.rows, context.partition.block_rows
    step = max(1, rows.piece // (3 * block)) * block
    for start in range(rows.start, rows.stop, step):
        yield start, min(start + step, rows.stop)


def _first_row(context: Context, worth: Callable[[int, int], Array] | None, rng: np.random.Generator) -> Array:
    """Draw one row in proportion to the weights: the row of the smallest -log(uniform) / weight, or uniform number."""
    xp, key = context.kernels.xp, int(rng.integers(2**63))
    least, row = np.inf, context.dataset_shape[0]
    for start, stop in _own_pieces(context):
        time = _uniform(xp, xp.arange(start, stop), key)
        if worth is not None:
            of_rows = worth(start, stop)
            time = xp.where(of_rows > 0, -xp.log1p(-time) / xp.where(of_rows > 0, of_rows, 1.0), xp.inf)
        at = int(time.argmin())
        if start == context.rows.start or float(time[at]) < least:
            least, row = float(time[at]), start + at
    first = float(context.comm.all_reduce(np.array([least]), "min")[0])
    own = np.array([row if least == first else context.dataset_shape[0]])
    return _gather(context, context.comm.all_reduce(own, "min"))


def _approach(context: Context, found: Array, number: int, near: Array, nearest: Array) -> None:
    """Update the nearest candidate of each local row, and the squared distance to it, with newly found candidates."""
    kernels, first = context.kernels, context.rows.start
    if not len(found):
        return
    for chunk in context.chunks():
        for start in range(0, len(chunk.x), step := max(1, context.rows.piece)):
            x = chunk.x[start : start + step]
            own = slice(chunk.start + start - first, chunk.start + start - first + len(x))
            index = nearest[own].astype("int64")
            kernels.pairs.nearest_column(x, found, norm="l2", y_start=number, best=near[own], best_index=index)
            nearest[own] = index


def _block_sums(context: Context, start: int, stop: int, values: Array) -> Array:
    """Return the sum of values per block, for local rows from `start` to `stop` in whole blocks: shape (blocks, 1)."""
    size = context.partition.block_rows
    return context.kernels.xp.stack([values[at : at + size].sum(keepdims=True) for at in range(0, stop - start, size)])


def _uniform(xp: Any, numbers: Array, seed: int) -> Array:
    """Return a uniform random number in [0, 1) for each integer."""
    return (priorities(numbers, seed, xp).view("uint64") >> xp.uint64(11)).astype("float64") * 2.0**-53


def _largest_canopies(kernels: Kernels, x: Array, c: int) -> np.ndarray:
    """Return the centres of the c canopies with the most rows, at the largest radius that gives at least c canopies."""
    xp = kernels.xp
    span = float(kernels.pairs.reduced_distances(x[:1], x, norm="l2").max())
    threshold = max(span, np.finfo(x.dtype).tiny * 2.0**24)
    centers = np.zeros(0, np.int64)
    while len(centers) < min(c, len(x)) and threshold > np.finfo(x.dtype).tiny:
        threshold *= SHRINK**2
        centers = greedy_centers(kernels, x, norm="l2", threshold=threshold)
    members = xp.zeros(len(centers), dtype="int64")
    chosen = xp.ascontiguousarray(x[xp.asarray(centers)])
    kernels.pairs.count_within(chosen, x, norm="l2", threshold=threshold * MEMBERS_RADIUS**2, out=members)
    largest = np.argsort(-kernels.memory.to_host(members), kind="stable")[:c]
    picked = centers[largest]
    if len(picked) < c:  # there are fewer distinct rows than centres
        picked = np.concatenate([picked, np.setdiff1d(np.arange(len(x)), picked)[: c - len(picked)]])
    return np.asarray(kernels.memory.to_host(x[xp.asarray(picked)]), np.float64)
