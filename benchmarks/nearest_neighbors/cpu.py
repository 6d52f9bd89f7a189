"""The nearest rows of every row on a CPU beside scikit-learn's brute force and k-d tree: seconds, the same rows.

A mixture of 50 Gaussians, float32, k = 16, all cores. `nearest_neighbors` and ``fit`` and ``kneighbors`` of
scikit-learn, by brute force from 64 features on and by a k-d tree below, one after the other; medians of three after
a warm-up. Distances may differ by the rounding of scikit-learn's products, so rows are compared as sets, by the share
that both name.

    python -m benchmarks.nearest_neighbors.cpu --out benchmarks/results/nearest_neighbors/cpu.json
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np
from sklearn.neighbors import NearestNeighbors

from benchmarks.support import record as bench
from benchmarks.support import sets

K = 16
CASES = [(20_000, 64), (20_000, 128), (100_000, 2), (100_000, 8)]
BRUTE_FEATURES = 64  # from here on scikit-learn's brute force is the faster one of its two


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--small", action="store_true", help="a hundredth of the rows")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)

    from mgclust import nearest_neighbors

    for n, d in CASES:
        X = sets.gaussians(n // 100 if options.small else n, d)[0]
        algorithm = "brute" if d >= BRUTE_FEATURES else "kd_tree"

        def theirs(X: np.ndarray = X, algorithm: str = algorithm) -> Any:
            return NearestNeighbors(n_neighbors=K, algorithm=algorithm, n_jobs=-1).fit(X).kneighbors()[1]

        load = os.getloadavg()[0]
        took, found = bench.seconds(lambda X=X: nearest_neighbors(X, K, device="cpu", client=None))
        peer, indices = bench.seconds(theirs)
        pairs = zip(found.indices, indices, strict=True)
        out.add(
            f"{len(X)} x {d}, k={K}", seconds=took, sklearn=algorithm, sklearn_seconds=peer, times_as_fast=peer / took,
            shared_with_sklearn=np.mean([len(np.intersect1d(a, b)) / K for a, b in pairs]), load_before=load,
        )  # fmt: skip


if __name__ == "__main__":
    main()
