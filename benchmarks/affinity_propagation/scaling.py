"""Messages on 1, 2 and 4 GPUs: time an iteration, same bits, and rows whose matrices no single GPU can hold.

d = 64, float32, 60 Gaussians, preference at the median similarity, a bounded number of iterations. There is one
cluster of workers; runs use 1, 2, ... of them. First n = 60,000 on every number of GPUs: efficiency is the single GPU's
time over (GPUs x time), and a hash over all that the ranks know together (c, diagonals, every iteration's number of
exemplars, the last exemplars) must be the same. Then n = 150,000, two matrices of 90 GB: on 2 or more GPUs with the
time an iteration against the limit, 12 n^2 bytes / (GPUs x bandwidth of a copy); on one GPU the refusing sentence.

    python -m benchmarks.affinity_propagation.scaling --gpus 1,2,4 --out NAME.json
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.density_peaks.scaling import cluster
from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench

FEATURES = 64


def measure(out: bench.Record, client: Any, size: int, path: Path, n: int, options: Any, first: dict) -> None:
    device = "cpu" if options.cpu else "cuda"
    from mgclust.algorithms.affinity_propagation.exemplars import estimate

    extra: dict[str, Any] = {"copy_count": 1 << 20} if options.cpu else {}
    start = time.perf_counter()
    try:
        found = on_ranks.on(
            client,
            size,
            device,
            on_ranks.messages_timed,
            str(path),
            iterations=options.iterations,
            options={"estimate": estimate},
            **extra,
        ).value
    except Exception as error:
        out.add(f"n={n} on {size}", failed=f"{type(error).__name__}: {error}")
        return
    wall = time.perf_counter() - start
    batches = found["first_batches_ms"][1:] or found["first_batches_ms"]
    ms = statistics.median(batches)
    limit = 1e3 * on_ranks.BYTES * n * n / size / found["copy_bytes_per_second"]
    ranks, one, bits = first.setdefault(n, (size, ms, found["bits"]))
    out.add(
        f"n={n} on {size}",
        n=n,
        gpus=size,
        ms_iteration=ms,
        limit_ms=limit,
        share_of_limit=limit / ms,
        efficiency=one * ranks / (size * ms),
        efficiency_relative_to_gpus=ranks,
        same_bits=found["bits"] == bits,
        bits=found["bits"],
        all_reduce_ms=found["all_reduce_ms"],
        pass_columns_ms=found["pass_columns_ms"],
        similarities_seconds=found["similarities_first_seconds"],
        preference_seconds=found["preference_seconds"],
        iterations=found["iterations"],
        clusters=found["clusters"],
        device_gib_of_rank_0=found["device_bytes"] / 2**30,
        copy_bytes_per_second=found["copy_bytes_per_second"],
        batches_ms=found["first_batches_ms"],
        wall_seconds=wall,
    )


def refused(out: bench.Record, path: Path, n: int, options: Any) -> None:
    """What the estimator says where the matrices do not fit into one device."""
    from mgclust import AffinityPropagation
    from mgclust.base.errors import InsufficientMemoryError

    limit = {"memory_limit": "20 MB"} if options.cpu else {}
    device = "cpu" if options.cpu else "cuda"
    try:
        AffinityPropagation(device=device, client=None, max_iter=1, **limit).fit(str(path))
        out.add(f"n={n} on 1, refusal", refused=False)
    except InsufficientMemoryError as error:
        out.add(f"n={n} on 1, refusal", refused=True, sentence=str(error))
    except Exception as error:
        out.add(f"n={n} on 1, refusal", failed=f"{type(error).__name__}: {error}")


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", default="1,2,4", help="numbers of GPUs, comma-separated (default 1,2,4)")
    parser.add_argument("--rows", type=int, default=60_000, help="on every number of GPUs")
    parser.add_argument("--large-rows", type=int, default=150_000, help="on 2 GPUs or more; 0: not")
    parser.add_argument("--iterations", type=int, default=96)
    parser.add_argument("--cpu", action="store_true", help="CPU ranks instead, to try the script out")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    options = parser.parse_args()
    if options.small:
        options.rows, options.large_rows, options.iterations = 2_500, 4_100, 64
    sizes = sorted(int(size) for size in options.gpus.split(","))
    out = bench.Record(__doc__, options.out)
    out.note("limit", "12 n^2 bytes an iteration / (GPUs x bandwidth of a copy on rank 0)")
    first: dict[int, tuple[int, float, str]] = {}
    with tempfile.TemporaryDirectory() as folder:
        path, large, warm = (Path(folder) / f"{name}.npy" for name in ("rows", "large", "warm"))
        np.save(path, sets.gaussians(options.rows, FEATURES, 60)[0])
        np.save(warm, sets.gaussians(1024 * 2 * sizes[-1], FEATURES, 60)[0])
        if options.large_rows:
            np.save(large, sets.gaussians(options.large_rows, FEATURES, 60)[0])
            # Before the workers hold memory on the same device.
            refused(out, large, options.large_rows, options)
        start = time.perf_counter()
        with cluster(sizes[-1], options.cpu) as client:
            out.note("cluster_started_seconds", round(time.perf_counter() - start, 2))
            for size in sizes:
                on_ranks.on(
                    client, size, "cpu" if options.cpu else "cuda", on_ranks.messages_timed, str(warm), iterations=32,
                    copy_count=1 << 20,
                )  # fmt: skip
                measure(out, client, size, path, options.rows, options, first)
            for size in sizes if options.large_rows else ():
                if size > 1:
                    measure(out, client, size, large, options.large_rows, options, first)


if __name__ == "__main__":
    main()
