"""The nearest rows of every row on one GPU: exact, against the tensor cores' rate and scikit-learn on the host.

A mixture of 50 Gaussians. Two filters of one product a pair find the columns that can be among the nearest, so the
limit is 4 d operations a pair at what the data sheet says of halves. Whole runs through `nearest_neighbors`, lists on
the host in the end, and the kernel alone; medians after a warm-up. scikit-learn's brute force answers 2,000 of the
rows, on all cores; its time for all rows is that, times n / 2,000. FAISS, where it is installed, answers all rows by
brute force on the same GPU, from arrays of the host as ours returns them there; it does not leave a row itself out, so
it is asked for k + 1.

    python -m benchmarks.nearest_neighbors.gpu --out NAME.json
"""

from __future__ import annotations

import statistics

import numpy as np

from benchmarks.support import on_ranks, sets
from benchmarks.support import record as bench

TENSOR = 989e12  # operations a second on halves
CASES = [(100_000, 128, 16), (100_000, 768, 16), (1_000_000, 128, 16), (1_000_000, 128, 100)]
TARGETS = {(1_000_000, 128, 16): 3.0}
SKLEARN_ROWS = 2_000


def faiss_on_gpu(X: np.ndarray, k: int) -> tuple[float, np.ndarray] | None:
    """Seconds of FAISS's brute force for all rows, the median of three after a first, and its indices."""
    try:
        import faiss
    except ImportError:
        return None
    resources = faiss.StandardGpuResources()
    faiss.knn_gpu(resources, X[:4096], X, k + 1)
    took, (_, indices) = bench.seconds(lambda: faiss.knn_gpu(resources, X, X, k + 1), 3)
    return took, indices


def shared(found: np.ndarray, theirs: np.ndarray, rows: np.ndarray) -> float:
    """The share of the neighbours of `rows` that both name; theirs may hold the row itself."""
    k = found.shape[1]
    others = [[j for j in row if j != i][:k] for i, row in zip(rows, theirs, strict=True)]
    return float(np.mean([len(np.intersect1d(a, b)) / k for a, b in zip(found, others, strict=True)]))


def main() -> None:
    options = bench.parser(__doc__).parse_args()
    out = bench.Record(__doc__, options.out, beside=("faiss-gpu",))
    out.note("limit_operations_per_second", TENSOR)

    import cupy as cp
    from sklearn.neighbors import NearestNeighbors

    from mgclust import nearest_neighbors
    from mgclust.kernels import load

    gpu = load("cuda")
    for n, d, k in CASES:
        X = sets.gaussians(n, d)[0]
        device = cp.asarray(X)
        limit = 4.0 * d * n * n / TENSOR
        options_ = {"n_neighbors": k, "device": "cuda", "client": None}
        nearest_neighbors(device, **options_)
        whole, found = bench.seconds(lambda device=device, o=options_: nearest_neighbors(device, **o), 3)
        x, rows = device - device.mean(axis=0), cp.arange(n)

        def kernel(x=x, rows=rows, n=n, k=k) -> None:
            near, index = cp.full((n, k), np.inf, dtype="float32"), cp.full((n, k), -1, dtype="int64")
            gpu.pairs.nearest_rows(x, x, norm="l2", y_start=0, near=near, near_index=index, rows=rows)

        took = statistics.median(on_ranks.clocked(gpu, kernel, 3))
        figures = {"limit_seconds": limit, "kernel_seconds": took, "share_of_limit": limit / took}
        target = TARGETS.get((n, d, k))
        if target:
            figures |= {"target": target, "met": whole <= target}
        some = np.random.default_rng(0).choice(n, SKLEARN_ROWS, replace=False)
        peer = NearestNeighbors(n_neighbors=k + 1, algorithm="brute", n_jobs=-1).fit(X)
        peer.kneighbors(X[some[:10]])
        theirs, (_, indices) = bench.seconds(lambda p=peer, X=X, s=some: p.kneighbors(X[s]), 1)
        same = shared(found.indices[some], indices, some)
        beside = faiss_on_gpu(X, k)
        if beside:
            figures |= {
                "faiss_seconds": beside[0], "times_as_fast_as_faiss": beside[0] / whole,
                "shared_with_faiss": shared(found.indices[some], beside[1][some], some),
            }  # fmt: skip
        out.add(
            f"{n} x {d}, k={k}", seconds=whole, **figures,
            sklearn_seconds_for_all=theirs * n / SKLEARN_ROWS, shared_with_sklearn=same,
        )  # fmt: skip


if __name__ == "__main__":
    main()
