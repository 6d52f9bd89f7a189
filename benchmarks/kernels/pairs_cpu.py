"""Products beside direct differences on a CPU, kernel by kernel, and beside a matrix product of BLAS alone.

Seconds of one thread's CPU time, the least of several repeats that take turns, so that other load on the machine moves
them little. `multiply_adds` is n^2 d (half of it for the histogram) a second; `sgemm` computes tiles of 256 x 2048
products of the same rows and does nothing with them. The limit is a loop of multiply-adds in registers, or of
subtractions and multiply-adds. Then whole fits of 20,000 x 64, with products and without.

    python -m benchmarks.kernels.pairs_cpu --out benchmarks/results/kernels/pairs_cpu.json
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit
from threadpoolctl import threadpool_limits

from benchmarks.support import record as bench
from benchmarks.support import sets
from mgclust import DensityPeaks
from mgclust.kernels import load
from mgclust.kernels.pairs.products import cpu_products
from mgclust.kernels.toolkit.simd import WIDTH, broadcast, splat, square_step, store
from mgclust.kernels.toolkit.simd import load as vector
from mgclust.kernels.toolkit.simd_steps import fma

CASES = ((12_000, 17), (20_000, 64), (8_000, 128), (4_000, 768))
REPEATS = 5
STEPS = 1 << 20


@njit(nogil=True)
def multiply_adds(x: Any, out: Any, squares: bool) -> None:
    """Eight chains of 32 lanes, as long as a chain takes to answer."""
    y = vector(x, 0)
    s0 = splat(x.dtype.type(0))
    s1, s2, s3, s4, s5, s6, s7 = s0, s0, s0, s0, s0, s0, s0
    for k in range(STEPS):
        own = broadcast(x, k & 31)
        if squares:
            s0, s1, s2, s3 = (
                square_step(s0, own, y), square_step(s1, y, own), square_step(s2, own, y), square_step(s3, y, own)
            )  # fmt: skip
            s4, s5, s6, s7 = (
                square_step(s4, own, s0), square_step(s5, s1, own), square_step(s6, own, s2), square_step(s7, s3, own)
            )  # fmt: skip
        else:
            s0, s1, s2, s3 = fma(own, y, s0), fma(own, y, s1), fma(own, y, s2), fma(own, y, s3)
            s4, s5, s6, s7 = fma(own, y, s4), fma(own, y, s5), fma(own, y, s6), fma(own, y, s7)
    for lane, s in enumerate((s0, s1, s2, s3, s4, s5, s6, s7)):
        store(out, lane * WIDTH, s)


def jobs(x: np.ndarray) -> dict[str, Callable[[], Any]]:
    """What is measured, with a threshold at 2% of the distances."""
    pairs, n = load("cpu").pairs, len(x)
    s = pairs.reduced_distances(x[:2048], x[:2048], norm="l2")[np.triu_indices(2048, 1)]
    low, cut, high = (float(value) for value in np.quantile(s, [0.0191, 0.02, 0.0209]))
    first, last = (int(np.float32(value).view("int32")) for value in (low, high))
    shift = max(0, (-(-(last - first) >> 20)).bit_length() - 1)

    def lists(k: int) -> dict[str, np.ndarray]:
        return {"near": np.full((n, k), np.inf, x.dtype), "near_index": np.full((n, k), -1)}

    def gaussian(k: int) -> None:
        given = lists(k) if k else {}
        own = {"out": np.zeros(n), "rows": np.arange(n)}
        pairs.gaussian_sum(x, x, norm="l2-dot", scale=1 / cut, power=1, **own, **given)

    def histogram() -> None:
        out = np.zeros(((last - first) >> shift) + 2, np.int64)
        pairs.pair_histogram(x, x, norm="l2", diagonal=True, low=first, shift=shift, out=out)

    return {
        "Gaussian sum": lambda: gaussian(0),
        "Gaussian sum, 8 nearest kept": lambda: gaussian(8),
        "count within": lambda: pairs.count_within(x, x, norm="l2", threshold=cut, out=np.zeros(n, np.int64)),
        "histogram of a bracket": histogram,
        "16 nearest": lambda: pairs.nearest_rows(x, x, norm="l2", y_start=0, rows=np.arange(n), **lists(16)),
    }


def sgemm(x: np.ndarray) -> None:
    """All products, tile by tile, over one another."""
    tile = np.empty((256, 2048), x.dtype)
    for i in range(0, len(x) - 255, 256):
        for j in range(0, len(x) - 2047, 2048):
            np.matmul(x[i : i + 256], x[j : j + 2048].T, out=tile)


def seconds(variants: dict[str, Callable[[], Any]], repeats: int = REPEATS) -> dict[str, float]:
    """The least CPU time of each, by turns; once before that, to compile."""
    best = {}
    for _ in range(1 + repeats):
        for name, run in variants.items():
            start = time.process_time()
            run()
            best[name] = min(time.process_time() - start, best.get(name, np.inf))
    return best


def by_differences(run: Callable[[], Any]) -> Any:
    """The same without products."""
    suit, cpu_products.suit = cpu_products.suit, lambda x, norm: False
    try:
        return run()
    finally:
        cpu_products.suit = suit


def main() -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    options = bench.parser(__doc__).parse_args()
    out = bench.Record(__doc__, options.out)
    x = np.random.default_rng(0).random(WIDTH).astype("float32")
    room = np.empty(8 * WIDTH, "float32")
    loops = {
        name: lambda squares=squares: multiply_adds(x, room, squares)
        for name, squares in (("products", False), ("differences", True))
    }
    limit = {name: STEPS * 8 * WIDTH / took for name, took in seconds(loops, 40).items()}
    out.add("limit, multiply-adds a second and core", **limit)
    for n, d in CASES:
        rows = sets.gaussians(n, d, 20)[0]
        rows = (rows - rows.mean(axis=0)).astype("float32")
        with threadpool_limits(1):
            took = seconds({"sgemm": lambda rows=rows: sgemm(rows)})["sgemm"]
        work = (n // 256 * 256) * (n // 2048 * 2048) * d
        out.add(f"n={n} d={d} sgemm alone", seconds=took, multiply_adds=work / took)
        for name, run in jobs(rows).items():
            took = seconds({"products": run, "differences": lambda run=run: by_differences(run)})
            work = n * n * d / (2 if name.startswith("hist") else 1)
            shares = {f"{key}_share_of_limit": work / each / limit[key] for key, each in took.items()}
            out.add(f"n={n} d={d} {name}", **took, ratio=took["differences"] / took["products"], **shares)
    points = sets.gaussians(20_000, 64, 20)[0]
    found = {}

    def fit(name: str) -> None:
        found[name] = DensityPeaks(n_clusters=20, device="cpu", client=None).fit(points)

    took = seconds(
        {"products": lambda: fit("products"), "differences": lambda: by_differences(lambda: fit("differences"))}
    )
    ours, others = found["products"], found["differences"]
    out.add(
        "whole fit, n=20000 d=64",
        **took,
        ratio=took["differences"] / took["products"],
        same_dc=ours.dc_ == others.dc_,
        nearest_higher_that_differ=int((ours.nearest_higher_ != others.nearest_higher_).sum()),
        labels_that_differ=int((ours.labels_ != others.labels_).sum()),
        rho_largest_relative_difference=float(np.abs(ours.rho_ / others.rho_ - 1).max()),
    )


if __name__ == "__main__":
    main()
