"""The nearest rows of every row on one GPU where rows have few features: boxes of columns, beside scikit-learn's tree.

A mixture of 50 Gaussians, k = 16. Whole runs through `nearest_neighbors`, rows on the device, lists on the host in the
end; medians of three after a warm-up. scikit-learn's k-d tree on the host, on all cores, is built for all rows and
answers 100,000 of them; its time for all is that of the tree, and of the answers times n / 100,000.

    python -m benchmarks.nearest_neighbors.few_features --out NAME.json
"""

from __future__ import annotations

import time

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

CASES = [(100_000, 3), (1_000_000, 2), (1_000_000, 3), (1_000_000, 8), (10_000_000, 3)]
K, ANSWERED = 16, 100_000


def main() -> None:
    options = bench.parser(__doc__).parse_args()
    out = bench.Record(__doc__, options.out)

    import cupy as cp
    from sklearn.neighbors import NearestNeighbors

    from mgclust import nearest_neighbors

    for n, d in CASES:
        X = sets.gaussians(n, d)[0]
        device = cp.asarray(X)
        given = {"n_neighbors": K, "device": "cuda", "client": None}
        nearest_neighbors(device, **given)
        took, found = bench.seconds(lambda device=device, given=given: nearest_neighbors(device, **given), 3)
        some = np.random.default_rng(0).choice(n, ANSWERED, replace=False)
        start = time.perf_counter()
        tree = NearestNeighbors(n_neighbors=K + 1, algorithm="kd_tree", n_jobs=-1).fit(X)
        built = time.perf_counter() - start
        answers, (_, theirs) = bench.seconds(lambda tree=tree, X=X, some=some: tree.kneighbors(X[some]), 1)
        peer = built + answers * n / ANSWERED
        pairs = zip(found.indices[some], theirs, some, strict=True)
        others = [(mine, [j for j in row if j != i][:K]) for mine, row, i in pairs]
        out.add(
            f"{n} x {d}, k={K}", seconds=took, sklearn_seconds_for_all=peer, times_as_fast=peer / took,
            shared_with_sklearn=float(np.mean([len(np.intersect1d(a, b)) / K for a, b in others])),
        )  # fmt: skip


if __name__ == "__main__":
    main()
