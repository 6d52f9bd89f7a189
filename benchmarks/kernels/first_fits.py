"""How long a first fit takes, in a fresh process that finds no compiled kernel, and what it compiles.

Seconds of each case: the imports, the device's start, the first fit, the second, and the first fit of a further
process that finds what the first has kept. Rows are made beforehand. On a GPU also how many kernels NVRTC compiled,
and how many of them the fit waited for; ``CUPY_NVRTC_USE_PCH=0`` says what precompiled headers are worth.

    python -m benchmarks.kernels.first_fits --device cuda --out benchmarks/results/kernels/first_fits_gpu.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
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
    "fuzzy c-means": ("FuzzyCMeans", {"n_clusters": 16}, 1_000_000, 32),
    "canopy": ("Canopy", {"t1": 8.0, "t2": 5.0}, 1_000_000, 3),
    "affinity propagation": ("AffinityPropagation", {}, 5_000, 120),
    "nearest neighbours": ("nearest_neighbors", {"k": 10}, 100_000, 128),
    "silhouettes": ("silhouette_samples", {}, 100_000, 120),
    "communities, greedy": ("FastNewman", {"strategy": "greedy"}, 200_000, 0),
    "communities, parallel": ("FastNewman", {"strategy": "parallel"}, 200_000, 0),
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
    rows: Any = graph(n) if name == "FastNewman" else sets.gaussians(n, d)[0]
    if name == "nearest_neighbors":
        rows = (rows, options["k"])
    elif name == "silhouette_samples":
        rows = (rows, np.arange(n) % 20)

    compiled: list[tuple[float, bool]] = []  # seconds, and whether the fit waited for it
    if device == "cuda":
        began = time.perf_counter()
        import cupy

        cupy.zeros(1000).sum().get()
        figures["device_s"] = time.perf_counter() - began
        watch(compiled)

    def fit() -> None:
        if name[0].islower():
            door(*rows, device=device, client=None)
        else:
            door(**options, device=device, client=None).fit(rows)

    for which in ("first", "second"):
        began = time.perf_counter()
        fit()
        figures[f"{which}_fit_s"] = time.perf_counter() - began
        if which == "first" and device == "cuda":
            waited = [seconds for seconds, here in compiled if here]
            figures |= {"compiled": len(compiled), "waited_for": len(waited), "waited_s": sum(waited)}
    return figures


def watch(compiled: list[tuple[float, bool]]) -> None:
    """Note what NVRTC compiles: in this thread, or ahead in another one."""
    from cupy_backends.cuda.libs import nvrtc

    compile_ = nvrtc.compileProgram

    def timed(*arguments: Any) -> Any:
        began = time.perf_counter()
        try:
            return compile_(*arguments)
        finally:
            here = threading.current_thread() is threading.main_thread()
            compiled.append((time.perf_counter() - began, here))

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
