"""Sums over rows with the same label, for many labelings at once, and nearest exemplars, on the CPU.

`cluster_sums` combines a panel of 32 rows, one row per lane, with groups of 1024 columns::

    s (1024 columns x 32 rows, 128 KB in float32) stays in the L2 cache        d steps per pair, once
    for each labeling: add up its columns of the group, cluster by cluster     1 load and 1 addition per vector
    for each cluster: convert the partial sum to fixed point, add it to out    32 integer additions

So with 100 features, 30 labelings take little longer than one. Partial sums depend only on the group, and are added as
integers. So the sums are bitwise independent of the number of threads and of the split of the columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mgclust.kernels.label_sums import PARTIAL
from mgclust.kernels.pairs.cpu_loops import pack, pair_distances
from mgclust.kernels.pairs.cpu_values import merge
from mgclust.kernels.toolkit.cpu_compiler import compiled
from mgclust.kernels.toolkit.simd import WIDTH, add, load, splat, store
from mgclust.kernels.toolkit.simd_steps import add_fixed, fixed, square_root
from mgclust.kernels.toolkit.threads import rows_of_a_task, run_tasks, thread_count

__all__ = ["add_by_label", "best_columns", "cluster_sums", "group_sums", "near_share", "same_label_sums"]

Array = Any
GROUP = 1024  # columns per group, which begins at a multiple of 1024; a partial sum stays within a group
PRIVATE_BYTES = 1 << 28  # maximum bytes of the sums of all threads; if sums are large, fewer threads are used


def same_label_sums(s: Array, labels: Array, *, n: int, first_row: int, scale: float, out: Array) -> None:
    members = np.argsort(labels[:n], kind="stable")
    starts = np.concatenate([[0], np.cumsum(np.bincount(labels[:n]))])
    flat, rows, width = s.reshape(-1), rows_of_a_task(n), s.shape[1]

    def task(index: int, _: int) -> None:
        sums = np.zeros(n, np.int64)
        start, stop = index * rows, min((index + 1) * rows, len(s))
        add_same_label(flat, width, start, stop, first_row, labels, members, starts, float(scale), sums)
        merge(sums, out)

    run_tasks(-(-len(s) // rows), task)


def best_columns(s: Array, columns: Array, *, out: Array) -> None:
    rows, width = rows_of_a_task(len(columns)), s.shape[1]
    flat = s.reshape(-1)

    def task(index: int, _: int) -> None:
        find_best(flat, width, index * rows, min((index + 1) * rows, len(s)), columns, out)

    run_tasks(-(-len(s) // rows), task)


def near_share(x: Array, *, n: int, norm: str, root: bool, labelings: int, clusters: int) -> float:
    return 0.0


def cluster_sums(
    x: Array,
    y: Array,
    labels: Array,
    *,
    norm: str,
    root: bool,
    scale: float,
    y_start: int,
    out: Array,
    about: tuple[Array, Array] | None = None,
) -> None:
    if y_start % GROUP:
        raise ValueError(f"y_start={y_start} should be a multiple of {GROUP}.")
    (m, d), k = x.shape, len(y)
    panels = np.empty(-(-m // WIDTH) * WIDTH * d, x.dtype)
    pack(x, 0, panels, 0, -(-m // WIDTH))
    flat, manhattan, segments = y.reshape(-1), norm == "l1", _Segments(labels)
    buffers = np.empty((thread_count(), GROUP * WIDTH), x.dtype)

    def fill(panel: int, start: int, stop: int, buffer: Array) -> None:
        group_distances(flat, d, start, stop, panels, panel, manhattan, root, buffer)

    _by_panels(m, k, d + len(labels), segments, fill, buffers, scale, out)


def add_by_label(values: Array, labels: Array, *, n: int, scale: float, out: Array) -> None:
    m, width = values.shape
    flat, segments = values.reshape(-1), _Segments(labels[:, :n])
    buffers = np.empty((thread_count(), GROUP * WIDTH), values.dtype)

    def fill(panel: int, start: int, stop: int, buffer: Array) -> None:
        group_values(flat, width, start, stop, panel * WIDTH, min((panel + 1) * WIDTH, m), buffer)

    _by_panels(m, n, len(labels), segments, fill, buffers, scale, out)


def group_sums(x: Array, labels: Array, *, scale: float, out: Array) -> None:
    m, d = x.shape
    threads = max(1, min(thread_count(), m * d // (1 << 18), PRIVATE_BYTES // max(out.nbytes, 1)))
    sums = [out] + [np.zeros_like(out) for _ in range(threads - 1)]

    def task(index: int, _: int) -> None:
        add_rows(x, labels, m * index // threads, m * (index + 1) // threads, float(scale), sums[index])

    run_tasks(threads, task)
    for part in sums[1:]:
        out += part


class _Segments:
    """Columns of each group, sorted for each labeling by cluster and then by number, and cut into partial sums.

    Group t has the partial sums b from ``first[t]`` to ``first[t + 1] - 1``. Partial sum b belongs to cluster
    ``cluster[b]``, and adds the columns at the positions ``order[bounds[b]:bounds[b + 1]]`` within the group.
    """

    def __init__(self, labels: Array) -> None:
        layers, k = labels.shape
        self.groups = -(-k // GROUP)
        self.order = np.empty(layers * k, np.int16)
        bounds, clusters, first, done = [], [], [0], 0
        for start in range(0, k, GROUP):
            part = labels[:, start : start + GROUP]
            order = np.argsort(part, axis=1, kind="stable")
            ordered = np.take_along_axis(part, order, axis=1)
            size = part.shape[1]
            self.order[done : done + layers * size] = order.reshape(-1)
            begins = _begins(ordered)
            bounds.append(begins + done)
            clusters.append(ordered.reshape(-1)[begins])
            first.append(first[-1] + len(begins))
            done += layers * size
        self.bounds = np.concatenate([*bounds, [done]]).astype(np.int64)
        self.cluster = np.concatenate([*clusters, []]).astype(np.int64)
        self.first = np.array(first)


def _begins(ordered: Array) -> Array:
    """Return the flat positions, in rows of ascending labels, at which partial sums of one label begin."""
    layers, size = ordered.shape
    new = np.ones((layers, size), bool)
    new[:, 1:] = ordered[:, 1:] != ordered[:, :-1]
    at = np.arange(size)
    since = at - np.maximum.accumulate(np.where(new, at, 0), axis=1)
    return np.flatnonzero(new | (since % PARTIAL == 0))


def _by_panels(
    m: int,
    k: int,
    cost: int,
    segments: _Segments,
    fill: Callable[[int, int, int, Array], None],
    buffers: Array,
    scale: float,
    out: Array,
) -> None:
    """Add the partial sums of all panels of 32 rows and all groups of columns.

    `fill` writes the values of one panel and one group to a buffer, 32 values per column.
    """
    panels = -(-m // WIDTH)
    step = max(1, min((1 << 22) // max(1, k * WIDTH * cost), -(-panels // (4 * thread_count()))))

    def task(index: int, thread: int) -> None:
        buffer, sums = buffers[thread], np.empty(WIDTH, np.int64)
        for group in range(segments.groups):
            start, stop = group * GROUP, min((group + 1) * GROUP, k)
            for panel in range(index * step, min((index + 1) * step, panels)):
                fill(panel, start, stop, buffer)
                add_segments(
                    buffer, segments.order, segments.bounds, segments.cluster, segments.first[group],
                    segments.first[group + 1], panel * WIDTH, min((panel + 1) * WIDTH, m), float(scale), sums, out,
                )  # fmt: skip

    run_tasks(-(-panels // step), task)


@compiled
def add_same_label(
    s: Any,
    width: int,
    start: int,
    stop: int,
    first_row: int,
    labels: Any,
    members: Any,
    starts: Any,
    scale: float,
    out: Any,
) -> None:
    """Compute `same_label_sums` for rows start..stop-1; columns of label c are ``members[starts[c]:starts[c + 1]]``."""
    for i in range(start, stop):
        g = first_row + i
        for q in range(starts[labels[g]], starts[labels[g] + 1]):
            k = members[q]
            if k != g:
                out[k] += fixed(s[i * width + k], scale)


@compiled
def find_best(s: Any, width: int, start: int, stop: int, columns: Any, out: Any) -> None:
    """Compute `best_columns` for rows start..stop-1."""
    for i in range(start, stop):
        best, found = s[i * width + columns[0]], 0
        for q in range(1, len(columns)):
            value = s[i * width + columns[q]]
            if value > best:
                best, found = value, q
        out[i] = found


@compiled
def add_rows(x: Any, labels: Any, start: int, stop: int, scale: float, out: Any) -> None:
    """Compute `group_sums` for rows start..stop-1."""
    for i in range(start, stop):
        for f in range(x.shape[1]):
            out[labels[i], f] += fixed(x[i, f], scale)


@compiled
def group_distances(
    y: Any, d: int, start: int, stop: int, panels: Any, panel: int, manhattan: bool, root: bool, buffer: Any
) -> None:
    """Write the distances of a panel's 32 rows to columns start..stop-1, 32 distances per column."""
    for j in range(start, stop, 4):
        s0, s1, s2, s3 = pair_distances(y, j, stop - 1, d, panels, panel, manhattan)
        if root:
            s0, s1, s2, s3 = square_root(s0), square_root(s1), square_root(s2), square_root(s3)
        at = (j - start) * WIDTH
        store(buffer, at, s0)
        store(buffer, at + WIDTH, s1)
        store(buffer, at + 2 * WIDTH, s2)
        store(buffer, at + 3 * WIDTH, s3)


@compiled
def group_values(values: Any, width: int, start: int, stop: int, first: int, last: int, buffer: Any) -> None:
    """Write the values of rows first..last-1 in columns start..stop-1, 32 places per column; -inf becomes 0."""
    for i in range(first, last):
        for j in range(start, stop):
            v = values[i * width + j]
            buffer[(j - start) * WIDTH + i - first] = v if v > -np.inf else 0


@compiled
def add_segments(
    buffer: Any,
    order: Any,
    bounds: Any,
    cluster: Any,
    first: int,
    last: int,
    row: int,
    stop: int,
    scale: float,
    sums: Any,
    out: Any,
) -> None:
    """Add the partial sums first..last-1 of a group to rows row..stop-1.

    Each partial sum has four accumulators, which are added in pairs.
    """
    for b in range(first, last):
        begin, end = bounds[b], bounds[b + 1]
        t0 = splat(buffer.dtype.type(0))
        t1, t2, t3 = t0, t0, t0
        for q in range(begin, end - 3, 4):
            t0 = add(t0, load(buffer, np.int64(order[q]) * WIDTH))
            t1 = add(t1, load(buffer, np.int64(order[q + 1]) * WIDTH))
            t2 = add(t2, load(buffer, np.int64(order[q + 2]) * WIDTH))
            t3 = add(t3, load(buffer, np.int64(order[q + 3]) * WIDTH))
        for q in range(end - (end - begin) % 4, end):
            t0 = add(t0, load(buffer, np.int64(order[q]) * WIDTH))
        sums[:] = 0
        add_fixed(sums, 0, add(add(t0, t1), add(t2, t3)), scale)
        for i in range(row, stop):
            out[i, cluster[b]] += sums[i - row]
