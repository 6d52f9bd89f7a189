"""Fuzzy c-means on 1, 2 and 4 GPUs, same bits on all of them; and rows that the device may not hold, streamed.

m = 2, float32, d = 32, c = 64. The rows, a mixture of Gaussians, are made on the GPU that owns them; ranks are
processes that this script starts (no Dask). Weak scaling: 100M rows a GPU; efficiency is the time of an iteration of
100M rows on one GPU over that of 100M rows times the GPUs. The same data on one GPU alone: bits (final centres, J of
every iteration) must be those of the other numbers of GPUs, and the times give the efficiency of strong scaling.
Written before measuring:

    100M rows a GPU    12.8 GB read, 3.0 ms; 4 n c d = 8.2e11 operations, 16.4 ms at 50 TFLOP/s; predicted 24 ms
    the exchange       2 x 2,115 numbers an iteration: 0.1 ms, so that 4 GPUs should reach 98%; asked for 85%

Streaming: 5.1 GB of rows (40M x 32) in ordinary host memory, memory_limit = 2 GB, so that 1 GB of rows at most is on
the device. An iteration then takes 5.1 GB over the link: 0.1 s at 55 GB/s, the kernel (10 ms) hidden behind it. The
rate is the rows' bytes over the time of an iteration, against that of copying 1 GiB from pinned memory, measured in the
same process; asked for 70% of it.

    python -m benchmarks.fuzzy_c_means.scaling --gpus 1,2,4 --out benchmarks/results/fuzzy_c_means/scaling.json
    python -m benchmarks.fuzzy_c_means.scaling --gpus "" --out benchmarks/results/fuzzy_c_means/streaming.json
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from benchmarks.support import fuzzy_ranks, made_rows, on_ranks
from benchmarks.support import record as bench
from benchmarks.support.rank_processes import Processes
from mgclust.data.arrays import ArrayDataset
from mgclust.engine.spmd import RunSpec

FEATURES, CLUSTERS = 32, 64
EFFICIENCY, LINK_SHARE = 0.85, 0.7
ROWS_PER_GPU = 100_000_000
STREAMED_ROWS, STREAMED_LIMIT = 40_000_000, 2_000_000_000


def start() -> np.ndarray:
    """Where every run begins: the centres of the mixture, each moved by a little."""
    made = made_rows.Made(1, FEATURES, CLUSTERS, "cpu")
    return made.means() + np.random.default_rng(1).normal(size=(CLUSTERS, FEATURES))


def measure(out: bench.Record, ranks: Processes, n: int, options: Any) -> dict[str, Any]:
    made = made_rows.Made(n, FEATURES, CLUSTERS, options.device)
    began = time.perf_counter()
    parameters = {"start": start(), "m": 2.0, "iterations": options.iterations, "repeat": options.repeat}
    outcome = ranks.run(RunSpec(fuzzy_ranks.passes_timed, parameters, metric="euclidean"), made)
    least = fuzzy_ranks.limits(n, FEATURES, CLUSTERS)
    found: dict[str, Any] = outcome.value
    out.add(
        f"FCM n={n} on {ranks.size}",
        n=n,
        gpus=ranks.size,
        ms=found["ms"],
        **{name: value / ranks.size for name, value in least.items()},
        share_of_limit=max(least.values()) / ranks.size / found["ms"],
        batches_ms=found["batches_ms"],
        first_ms=found["first_ms"],
        bits=found["bits"],
        objective=found["objective"],
        device_gib_of_rank_0=found["device_bytes"] / 2**30,
        timings=outcome.timings,
        wall_seconds=time.perf_counter() - began,
    )
    return found


def scaling(out: bench.Record, sizes: list[int], options: Any) -> None:
    alone: dict[int, dict[str, Any]] = {}
    largest = sizes[-1] * options.rows
    # First on one GPU: small to warm up, its share, and what the largest number of GPUs holds together.
    with Processes(1, options.device) as ranks:
        for n in dict.fromkeys((min(options.rows, 1_000_000), options.rows, *(size * options.rows for size in sizes))):
            if n < largest or options.whole:
                alone[n] = measure(out, ranks, n, options)
    for size in sizes:
        if size == 1:
            continue
        with Processes(size, options.device) as ranks:
            measure(out, ranks, min(options.rows, 1_000_000), options)
            found = measure(out, ranks, size * options.rows, options)
        same = alone.get(size * options.rows)
        out.add(
            f"FCM efficiency on {size}",
            weak=alone[options.rows]["ms"] / found["ms"],
            target=EFFICIENCY,
            met=alone[options.rows]["ms"] / found["ms"] >= EFFICIENCY,
            strong=None if same is None else same["ms"] / size / found["ms"],
            same_bits=None if same is None else same["bits"] == found["bits"],
        )


def streaming(out: bench.Record, options: Any) -> None:
    rates = {"pinned_bytes_per_second": 0.0} if options.device == "cpu" else fuzzy_ranks.link_rate()
    out.add("host link", **rates)
    on_ranks.free_pool()
    rows, limit = (STREAMED_ROWS, STREAMED_LIMIT) if not options.small else (60_000, 6_000_000)
    X = fuzzy_ranks.on_host(made_rows.Made(rows, FEATURES, CLUSTERS, options.device))
    for name, kind in (("streamed", {"memory_limit": limit}), ("resident", {})):
        outcome = on_ranks.on(
            None,
            1,
            options.device,
            fuzzy_ranks.passes_timed,
            ArrayDataset(X),
            start=start(),
            m=2.0,
            iterations=2,
            repeat=3,
            options=kind,
        )
        found = outcome.value
        rate = X.nbytes / found["ms"] * 1e3
        share = rate / rates["pinned_bytes_per_second"] if rates["pinned_bytes_per_second"] else None
        out.add(
            f"FCM {name} n={rows}",
            ms=found["ms"],
            bytes=X.nbytes,
            bytes_per_second=rate,
            memory_limit=kind.get("memory_limit"),
            streamed=not found["resident"],
            chunks=found["chunks"],
            share_of_link=share if kind else None,
            target_share=LINK_SHARE if kind else None,
            met=share >= LINK_SHARE if kind and share else None,
            device_gib=found["device_bytes"] / 2**30,
            bits=found["bits"],
            timings=outcome.timings,
            batches_ms=found["batches_ms"],
        )
    items = out.document["items"][-2:]
    out.note("streamed_and_resident_same_bits", items[0]["bits"] == items[1]["bits"])


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", default="1,2,4", help='numbers of GPUs, comma-separated (default 1,2,4); "": none')
    parser.add_argument("--device", default="cuda", choices=["cpu", "cuda"])
    parser.add_argument("--rows", type=int, default=ROWS_PER_GPU, help="on each GPU")
    parser.add_argument("--iterations", type=int, default=8, help="of a batch")
    parser.add_argument("--repeat", type=int, default=3, help="batches timed after a first one")
    parser.add_argument("--no-whole", dest="whole", action="store_false", help="not the largest data on one GPU")
    parser.add_argument("--no-streaming", action="store_true")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    options = parser.parse_args()
    if options.small:
        options.rows, options.iterations, options.repeat = 30_000, 3, 2
    out = bench.Record(__doc__, options.out)
    out.note("limit", {"bytes_per_second": fuzzy_ranks.BANDWIDTH, "operations_per_second": fuzzy_ranks.FLOPS})
    sizes = sorted(int(size) for size in options.gpus.split(",") if size)
    if sizes:
        scaling(out, sizes, options)
    if not options.no_streaming:
        streaming(out, options)


if __name__ == "__main__":
    main()
