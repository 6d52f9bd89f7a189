"""Fits on a CPU by two versions of the source: processor time, and whether the results have the same bits.

Each case is fitted in processes of either version in turns, each process three times after a warm-up; the figure is the
least processor time of all threads, which other load on the machine moves little. `results` are hashes of what a fit
returns.

    git worktree add ../before COMMIT
    python -m benchmarks.kernels.two_versions --before ../before --out benchmarks/results/kernels/two_versions_cpu.json
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

ROUNDS, REPEATS = 3, 3
HERE = Path(__file__).resolve().parents[2]


def cases() -> dict[str, Callable[[], Callable[[], list[Any]]]]:
    """Makers of fits, each of which returns arrays that its result consists of."""
    import scipy.sparse

    import mgclust
    from benchmarks.support import sets

    def rows(n: int, d: int) -> np.ndarray:
        return sets.gaussians(n, d, 30)[0]

    def graph() -> scipy.sparse.csr_matrix:
        rng, n = np.random.default_rng(0), 100_000
        i = rng.integers(0, n, 5 * n)
        half = scipy.sparse.coo_matrix((np.ones(len(i)), (i, (i + rng.integers(1, 200, len(i))) % n)), (n, n))
        return (half + half.T).tocsr()

    def fit(name: str, data: Any, attributes: str, **parameters: Any) -> Callable[[], list[Any]]:
        model = getattr(mgclust, name)(device="cpu", client=None, **parameters)

        def fitted() -> list[Any]:
            model.fit(data)
            return [getattr(model, each) for each in attributes.split()]

        return fitted

    def silhouettes(data: np.ndarray) -> Callable[[], list[Any]]:
        labels = np.arange(len(data)) % 30
        return lambda: [mgclust.silhouette_samples(data, labels, device="cpu", client=None)]

    def neighbors(data: np.ndarray) -> Callable[[], list[Any]]:
        return lambda: list(mgclust.nearest_neighbors(data, 16, device="cpu", client=None))

    return {
        "density peaks 20,000 x 64": lambda: fit(
            "DensityPeaks", rows(20_000, 64), "rho_ delta_ labels_", n_clusters=10
        ),
        "density peaks 8,000 x 8": lambda: fit("DensityPeaks", rows(8_000, 8), "rho_ delta_ labels_", n_clusters=10),
        "density peaks 200,000 x 2": lambda: fit(
            "DensityPeaks", rows(200_000, 2), "rho_ delta_ labels_", n_clusters=10
        ),
        "fuzzy c-means 100,000 x 16, c=8": lambda: fit(
            "FuzzyCMeans", rows(100_000, 16), "cluster_centers_", n_clusters=8, max_iter=20, tol=0, random_state=0
        ),
        "canopies 200,000 x 2": lambda: fit("Canopy", rows(200_000, 2), "labels_", t1=0.6, t2=0.3, random_state=0),
        "canopies 20,000 x 16": lambda: fit("Canopy", rows(20_000, 16), "labels_", t1=8, t2=4, random_state=0),
        "communities 100,000 nodes, parallel": lambda: fit("Communities", graph(), "labels_", strategy="parallel"),
        "silhouettes 20,000 x 32": lambda: silhouettes(rows(20_000, 32)),
        "affinity propagation 2,000 x 20, matrices": lambda: fit(
            "AffinityPropagation", rows(2_000, 20), "labels_", random_state=0, max_iter=100, algorithm="dense"
        ),
        "affinity propagation 10,000 x 20, lists": lambda: fit(
            "AffinityPropagation", rows(10_000, 20), "labels_", random_state=0, max_iter=100, algorithm="sparse"
        ),
        "16 neighbours of 20,000 x 20": lambda: neighbors(rows(20_000, 20)),
    }


def work(name: str) -> dict[str, Any]:
    """One case in this process, by the version that it imports."""
    warnings.simplefilter("ignore")
    case, times = cases()[name](), []
    found = case()
    for _ in range(REPEATS):
        start = time.process_time()
        case()
        times.append(time.process_time() - start)
    bits = hashlib.sha256(b"".join(np.ascontiguousarray(each).tobytes() for each in found)).hexdigest()
    return {"seconds": min(times), "bits": bits}


def main() -> None:
    from benchmarks.support import record as bench

    parser = bench.parser(__doc__ or "")
    parser.add_argument("--before", type=Path, required=True, help="checkout of the other version")
    args = parser.parse_args()
    out = bench.Record(__doc__ or "", args.out)
    trees = {"before": args.before.resolve(), "now": HERE}
    shown = ["git", "rev-parse", "--short", "HEAD"]
    commits = {each: subprocess.check_output(shown, cwd=tree, text=True).strip() for each, tree in trees.items()}
    out.note("commits", commits)
    for name in cases():
        found: dict[str, list[dict[str, Any]]] = {each: [] for each in trees}
        for _ in range(ROUNDS):
            for each, tree in trees.items():
                told = subprocess.run(
                    [sys.executable, __file__, name],
                    env=os.environ | {"PYTHONPATH": str(tree), "NUMBA_CACHE_DIR": str(tree / ".numba")},
                    check=True, capture_output=True, text=True,
                )  # fmt: skip
                found[each].append(json.loads(told.stdout.splitlines()[-1]))
        least = {each: min(one["seconds"] for one in found[each]) for each in trees}
        same = len({one["bits"] for each in trees for one in found[each]}) == 1
        out.add(name, **least, ratio=least["before"] / least["now"], same_bits=same)


if __name__ == "__main__":
    if len(sys.argv) == 2 and not sys.argv[1].startswith("-"):
        print(json.dumps(work(sys.argv[1])))
    else:
        main()
