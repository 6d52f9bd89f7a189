"""How long a first fit takes, in a fresh process that finds no compiled kernel, and what it compiles.

Seconds of each case: the imports, the device's start, the first fit, the second, and the first fit of a further
process that finds what the first has kept. Rows are made beforehand. On a GPU also how many kernels NVRTC compiled in
the process, nearly all of them CuPy's own, and the seconds that the fit waited for them; other processes compiled the
rest ahead. ``CUPY_NVRTC_USE_PCH=0`` says what precompiled headers are worth.

    python -m benchmarks.kernels.first_fits --device cuda --out benchmarks/results/kernels/first_fits_gpu.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

# Case: name in mgclust, its options, rows, features.
CASES: dict[str, tuple[str, dict[str, Any], int, int]] = {
    "density peaks, 2 features": ("DensityPeaks", {"n_clusters": 50}, 100_000, 2),
    "density peaks, 128 features": ("DensityPeaks", {"n_clusters": 50}, 100_000, 128),
    "density peaks, defaults, 2 features": ("DensityPeaks", {}, 20_000, 2),
    "density peaks, defaults, 128 features": ("DensityPeaks", {}, 20_000, 128),
    "fuzzy c-means": ("FuzzyCMeans", {"n_clusters": 16}, 1_000_000, 32),
    "canopy": ("Canopy", {"t1": 8.0, "t2": 5.0}, 1_000_000, 3),
    "affinity propagation": ("AffinityPropagation", {}, 5_000, 120),
    "adaptive affinity propagation": ("AdaptiveAffinityPropagation", {}, 2_000, 120),
    "nearest neighbours": ("nearest_neighbors", {"n_neighbors": 10}, 100_000, 128),
    "nearest neighbours, 3 features": ("nearest_neighbors", {"n_neighbors": 10}, 100_000, 3),
    "silhouettes": ("silhouette_samples", {}, 100_000, 120),
    "silhouettes, 3 features": ("silhouette_samples", {}, 100_000, 3),
    "communities, greedy": ("Communities", {"strategy": "greedy"}, 200_000, 0),
    "communities, parallel": ("Communities", {"strategy": "parallel"}, 200_000, 0),
}
FEWER = 20  # times, on a CPU


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--only", default="", help="part of a case's name")
    parser.add_argument("--case", help="run one case here and print its figures as JSON: what the fresh processes do")
    options = parser.parse_args()
    if options.case:
        print(json.dumps(measure(options.case, options.device)))
        return
    out = bench.Record(__doc__, options.out)
    for case in CASES:
        if options.only in case:
            with tempfile.TemporaryDirectory() as folder:
                first, kept = (in_fresh_process(case, options.device, folder) for _ in range(2))
            out.add(case, **first, kept_s=kept["first_fit_s"])


def in_fresh_process(case: str, device: str, folder: str) -> dict[str, Any]:
    caches = {"CUPY_CACHE_DIR": "cupy", "CUDA_CACHE_PATH": "cuda", "NUMBA_CACHE_DIR": "numba"}
    environment = os.environ | {name: str(Path(folder, each)) for name, each in caches.items()}
    command = [sys.executable, "-m", "benchmarks.kernels.first_fits", "--device", device, "--case", case]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600, check=True)
    figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return figures


def measure(case: str, device: str) -> dict[str, Any]:
    name, options, n, d = CASES[case]
    n = n if device == "cuda" else n // FEWER
    began = time.perf_counter()
    import mgclust

    door = getattr(mgclust, name)
    figures = {"rows": n, "features": d, "import_s": time.perf_counter() - began}
    rows: Any = graph(n) if name == "Communities" else sets.gaussians(n, d)[0]
    arguments = {
        "nearest_neighbors": (rows,),
        "silhouette_samples": (rows, np.arange(n) % 20),
    }.get(name)

    compiled: list[float] = []  # seconds
    if device == "cuda":
        began = time.perf_counter()
        import cupy

        cupy.zeros(1000).sum().get()
        figures["device_s"] = time.perf_counter() - began
        watch(compiled)

    def fit() -> None:
        if arguments:
            door(*arguments, **options, device=device, client=None)
        else:
            door(**options, device=device, client=None).fit(rows)

    for which in ("first", "second"):
        began = time.perf_counter()
        fit()
        figures[f"{which}_fit_s"] = time.perf_counter() - began
        if which == "first" and device == "cuda":
            figures |= {"waited_for": len(compiled), "waited_s": sum(compiled)}
    return figures


def watch(compiled: list[float]) -> None:
    """Note what NVRTC compiles in this process."""
    from cupy.cuda import nvrtc

    compile_ = nvrtc.compileProgram

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return compile_(*arguments)
        finally:
            compiled.append(time.perf_counter() - began)

    nvrtc.compileProgram = timed


def graph(n: int) -> np.ndarray:
    """Edges of groups of 100 nodes, a fifth of them to elsewhere."""
    rng = np.random.default_rng(0)
    u = rng.integers(0, n, 10 * n)
    v = np.where(rng.random(10 * n) < 0.8, u // 100 * 100 + rng.integers(0, 100, 10 * n), rng.integers(0, n, 10 * n))
    edges = np.sort(np.stack([u, v], axis=1)[u != v], axis=1)
    return np.unique(edges, axis=0).astype(np.int32)


if __name__ == "__main__":
    main()
