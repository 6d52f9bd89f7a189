"""How runs scale from 1 to 8 GPUs, with the same bits on every number of them and under a memory cap.

One LocalCUDACluster a number of GPUs; ranks read their own rows from one ``.npy`` file. Efficiency is the
single GPU's time over (GPUs x time), of the stages after the data is loaded; all pairs, Gaussian, exact
dc.

    python -m benchmarks.density_peaks.scaling --gpus 1,2,4 --out NAME.json
"""

from __future__ import annotations

import hashlib
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

CASES = {
    # name: (rows, features, centres)
    "2-D": (4_000_000, 2, 100),
    "128-D": (1_000_000, 128, 50),
    "1024-D": (1_280_000, 1024, 1000),  # as many as the largest set of PECANN's authors
}
TARGET_EFFICIENCY = {4: 0.85}


def fingerprint(model) -> str:
    """One hash over the bits of everything that must not depend on the ranks."""
    digest = hashlib.sha256(np.float64(model.dc_).tobytes())
    for name in ("rho_", "delta_", "nearest_higher_", "labels_"):
        digest.update(np.ascontiguousarray(getattr(model, name)).tobytes())
    return digest.hexdigest()[:16]


def computing(model) -> float:
    """Seconds of all stages but reading the data and opening the communicator."""
    return sum(took for stage, took in model.timings_.items() if stage not in ("load", "connect"))


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--gpus", default="1,2,4", help="numbers of GPUs, comma-separated (default 1,2,4)")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--scale", type=float, default=1.0, help="share of the rows, to try the script out")
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--cpu", action="store_true", help="CPU ranks instead, to try the script out")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("target_efficiency", TARGET_EFFICIENCY)
    sizes = [int(size) for size in options.gpus.split(",")]
    options.first, options.last = sizes[0], sizes[-1]
    with tempfile.TemporaryDirectory() as folder:
        files = {}
        for name in options.cases.split(","):
            n, d, k = CASES[name]
            n = int(n * options.scale)
            X = sets.birch_like(n) if d == 2 else sets.gaussians(n, d, k)[0] if d < 1024 else sets.embeddings(n, d, k)
            files[name] = (Path(folder) / f"{name}.npy", n, d, k)
            np.save(files[name][0], X)
        small = Path(folder) / "small.npy"
        np.save(small, sets.birch_like(20_000))
        single: dict[str, tuple[float, str]] = {}
        for size in sizes:
            with cluster(size, options.cpu) as client:
                for name, case in files.items():
                    run(out, client, size, name, case, small, options, single)


def cluster(size: int, cpu: bool):
    """A client whose cluster goes when it does."""
    from distributed import Client

    if cpu:
        from distributed import LocalCluster

        local = LocalCluster(n_workers=size, threads_per_worker=1, dashboard_address=None)
    else:
        from dask_cuda import LocalCUDACluster

        local = LocalCUDACluster(n_workers=size, dashboard_address=None)

    class Both(Client):
        def __exit__(self, *arguments):
            super().__exit__(*arguments)
            local.close()

    return Both(local)


def run(out, client, size, name, case, small, options, single) -> None:
    from mgclust import DensityPeaks

    path, n, d, k = case
    device = "cpu" if options.cpu else "cuda"

    def fit(source, **more):
        start = time.perf_counter()
        model = DensityPeaks(n_clusters=k, device=device, client=client, n_workers=size, algorithm="brute", **more)
        model.fit(str(source))
        return model, time.perf_counter() - start

    fit(small)  # compiled kernels, communicators' first use
    if d > 2:
        fit_rows = np.load(path, mmap_mode="r")[: 4096 * size]
        head = path.with_name("head.npy")
        np.save(head, fit_rows)
        fit(head)
    best = None
    for _ in range(options.repeat):
        model, wall = fit(path)
        compute = computing(model)
        if best is None or compute < best[0]:
            best = (compute, wall, dict(model.timings_), fingerprint(model))
    compute, wall, stages, bits = best
    one, reference = single.setdefault(name, (compute * size, bits))
    out.add(
        f"{name} n={n} on {size}",
        seconds=compute,
        wall_seconds=wall,
        efficiency=one / (size * compute),
        target=TARGET_EFFICIENCY.get(size),
        stages=stages,
        bits=bits,
        same_bits=bits == reference,
    )
    if name != "128-D" or size not in (options.first, options.last):
        return
    # Half of the cap is for rows: they exceed it, stay on the host and are streamed.
    cap = max(4 * n * d // size, 80 * n + 24_000_000)
    try:
        model, wall = fit(path, memory_limit=cap)
    except MemoryError as error:
        out.add(f"{name} n={n} on {size}, capped", memory_limit=cap, failed=str(error))
        return
    out.add(
        f"{name} n={n} on {size}, capped",
        memory_limit=cap,
        rows_bytes_per_rank=4 * n * d // size,
        seconds=computing(model),
        wall_seconds=wall,
        same_bits=fingerprint(model) == reference,
    )


if __name__ == "__main__":
    main()
