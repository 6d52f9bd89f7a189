"""What benchmarks of fuzzy c-means run on every rank, and the formulas in CuPy."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.support import on_ranks
from mgclust.data import Dataset

# Of an H200 as the design has it: bytes a second that a copy moves, float32 operations a second that loops reach.
BANDWIDTH, FLOPS = 4.25e12, 50e12


def limits(n: int, d: int, c: int) -> dict[str, float]:
    """Milliseconds that an iteration takes at least: rows read once; 4 n c d operations."""
    return {"bytes_ms": 1e3 * 4 * n * d / BANDWIDTH, "flops_ms": 1e3 * 4 * n * d * c / FLOPS}


def passes_timed(
    context: Any, *, start: np.ndarray, m: float, iterations: int, repeat: int, copy_count: int = 0, parts: bool = False
) -> dict[str, Any]:
    """Iterations as the estimator makes them, in some batches after a first one.

    Parameters
    ----------
    start : ndarray of shape (c, d)
        In the data's units; the same on every rank.
    iterations : int
        Of a batch; it makes one more pass, which counts as one.
    copy_count : int
        Numbers that a copy moves to find the bandwidth; 0: not.
    parts : bool
        Also the kernel alone, and the sum over blocks and ranks alone.
    """
    from mgclust.algorithms.common.preparation import prepare_rows
    from mgclust.algorithms.fuzzy_c_means.convergence import ConvergenceTest
    from mgclust.algorithms.fuzzy_c_means.prototypes import Prototypes
    from mgclust.algorithms.fuzzy_c_means.ranks import Fit, iterate
    from mgclust.algorithms.fuzzy_c_means.weighted_sums import WeightedSums
    from mgclust.kernels.pairs.metrics import METRICS

    kernels = context.kernels
    on_ranks.free_pool()
    out: dict[str, Any] = {"ranks": context.size, "resident": context.rows.resident}
    if copy_count:
        out["copy_bytes_per_second"] = on_ranks.copy_bandwidth(kernels, copy_count)
    with context.stage("prepare"):
        origin = prepare_rows(context, METRICS["euclidean"]).origin
    sums = WeightedSums(context, m, None)
    times, fit = [], Fit(Prototypes(start - origin))
    for _ in range(repeat + 1):
        fit = Fit(Prototypes(start - origin))
        context.comm.barrier()
        kernels.memory.synchronize()
        began = time.perf_counter()
        iterate(context, sums, [fit], None, max_iter=iterations, convergence=ConvergenceTest("centers", -1.0, 1.0))
        kernels.memory.synchronize()
        times.append((time.perf_counter() - began) / (iterations + 1))
    out |= {
        "first_ms": 1e3 * times[0],
        "ms": 1e3 * statistics.median(times[1:]),
        "batches_ms": [1e3 * t for t in times[1:]],
        "objective": fit.history[-1],
        "bits": on_ranks.digest(fit.centers, np.array(fit.history)),
        "device_bytes": on_ranks.device_bytes(),
        "chunks": context.rows.chunk_count,
    }
    return out | (_parts(context, start - origin, m, repeat) if parts else {})


def _parts(context: Any, centers: np.ndarray, m: float, repeat: int) -> dict[str, float]:
    """Milliseconds of the kernel, and of adding its sums up."""
    kernels, (c, d) = context.kernels, centers.shape
    size, rows = context.partition.block_rows, context.rows
    blocks = len(context.partition.blocks_of(context.rank))
    parts = kernels.xp.zeros((blocks, 1, c * d + c + 3))
    v, x = kernels.memory.to_device(centers[None].astype(context.dtype)), rows.read(rows.start, rows.stop)
    kernel = on_ranks.clocked(
        kernels,
        lambda: kernels.fuzzy_c_means.fuzzy_sums(
            x, v, m=m, weights=None, first_row=rows.start, block_rows=size, out=parts
        ),
        repeat,
    )
    exchange = on_ranks.clocked(kernels, lambda: context.sum_parts(parts), repeat)
    return {"kernel_ms": 1e3 * statistics.median(kernel), "sum_parts_ms": 1e3 * statistics.median(exchange)}


def link_rate(count: int = 1 << 28, repeat: int = 5) -> dict[str, float]:
    """Bytes a second from host to device, of float32 numbers in pinned and in ordinary memory."""
    import cupy
    import cupyx

    from mgclust.kernels import load

    gpu = load("cuda")
    pinned, ordinary = cupyx.empty_pinned(count, "float32"), np.zeros(count, "float32")
    pinned.fill(0)
    target = cupy.empty(count, "float32")
    rates = {}
    for name, source in (("pinned", pinned), ("ordinary", ordinary)):
        times = on_ranks.clocked(gpu, lambda source=source: target.set(source), repeat)
        rates[f"{name}_bytes_per_second"] = target.nbytes / statistics.median(times)
    return rates


def on_host(dataset: Dataset) -> np.ndarray:
    """All rows in ordinary host memory."""
    n, d = dataset.shape
    piece = max(1, (1 << 24) // d)
    rows = np.empty((n, d), "float32")
    for start in range(0, n, piece):
        made = dataset.read(start, min(start + piece, n))
        rows[start : start + piece] = made.get() if hasattr(made, "get") else made
    return rows


# The formulas as they stand, with U stored: what one writes in CuPy (here `xp`) in a quarter of an hour.


def as_written(xp: Any, X: Any, U: Any, m: float, iterations: int) -> tuple[Any, list[float]]:
    """Each formula of the write-up by broadcasting: differences of all rows and centres, all ratios of distances."""
    history = []
    for _ in range(iterations):
        g = U**m
        V = (g.T @ X) / g.sum(axis=0)[:, None]
        d2 = ((X[:, None, :] - V[None]) ** 2).sum(axis=2)
        U = 1 / ((d2[:, :, None] / d2[:, None, :]) ** (1 / (m - 1))).sum(axis=2)
        history.append(float((U**m * d2).sum()))
    return V, history


def by_products(xp: Any, X: Any, U: Any, m: float, iterations: int) -> tuple[Any, list[float]]:
    """The same with |x|^2 + |v|^2 - 2 x v from cuBLAS, and one power a row and cluster."""
    history, lengths = [], (X * X).sum(axis=1)[:, None]
    for _ in range(iterations):
        g = U**m
        V = (g.T @ X) / g.sum(axis=0)[:, None]
        d2 = xp.maximum(lengths + (V * V).sum(axis=1) - 2 * (X @ V.T), 1e-30)
        p = d2 ** (-1 / (m - 1))
        U = p / p.sum(axis=1, keepdims=True)
        history.append(float((U**m * d2).sum()))
    return V, history


def whole_seconds(synchronize: Callable[[], None], call: Callable[[], Any], repeat: int) -> tuple[list[float], Any]:
    """Seconds of some calls after a warm-up, the device waited for on both sides; and the last value."""
    value = call()
    times = []
    for _ in range(repeat):
        synchronize()
        began = time.perf_counter()
        value = call()
        synchronize()
        times.append(time.perf_counter() - began)
    return times, value
