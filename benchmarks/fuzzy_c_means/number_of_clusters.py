r"""Which validity index of fuzzy c-means finds the number of clusters, on sets whose truth is known.

Of each set of at most `MAX_ROWS` rows and `MAX_FEATURES` features, partitions into 2 to twice the true number of
clusters, at least 10 (three starts, seed 0, other parameters at their defaults), all with their indices; for each index
the number that it chooses and the adjusted Rand index of that partition, besides that of the true number.

    python -m benchmarks.fuzzy_c_means.number_of_clusters --data FOLDER --out \
        benchmarks/results/fuzzy_c_means/number_of_clusters.json
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.support import record as bench
from benchmarks.support import sets
from mgclust import FuzzyCMeans
from mgclust.algorithms.fuzzy_c_means.options import CRITERIA

MAX_ROWS, MAX_FEATURES, MIN_REACH = 12_000, 256, 10
OPTIONS = {"n_init": 3, "random_state": 0, "client": None, "device": "cpu"}


def main() -> None:
    """Choose by each index on each set."""
    options = bench.parser(__doc__ or "").parse_args()
    out = bench.Record(__doc__ or "", options.out)
    out.note("conditions", f"sets of at most {MAX_ROWS} rows and {MAX_FEATURES} features, as they are; {OPTIONS}")
    right: dict[str, list[bool]] = {}
    scores: dict[str, list[float]] = {}
    for name in sorted(path.stem for path in options.data.glob("*.npz")):
        loaded = sets.load(name, options.data)
        if loaded is None or loaded[1] is None or len(loaded[0]) > MAX_ROWS or loaded[0].shape[1] > MAX_FEATURES:
            continue
        X, y = loaded
        truth = len(np.unique(y))
        reach = (2, max(MIN_REACH, 2 * truth))
        known: dict[int, float] = {}

        def ari(k: int, X: np.ndarray = X, y: np.ndarray = y, known: dict[int, float] = known) -> float:
            if k not in known:
                known[k] = adjusted_rand_score(y, FuzzyCMeans(k, **OPTIONS).fit(X).labels_)
            return known[k]

        with warnings.catch_warnings(action="ignore"):
            model = FuzzyCMeans(n_clusters_range=reach, criterion="fuzzy_silhouette", **OPTIONS).fit(X)
            table = model.scan_
            figures = {"n": len(X), "d": X.shape[1], "n_clusters": truth, "range": reach, "ari": ari(truth)}
            scores.setdefault("true number", []).append(ari(truth))
            for criterion, best in CRITERIA.items():
                values = np.where(np.isfinite(table[criterion]), table[criterion], np.inf if best is min else -np.inf)
                k = int(table["n_clusters"][(np.argmin if best is min else np.argmax)(values)])
                figures[criterion] = {"n_clusters": k, "ari": ari(k)}
                right.setdefault(criterion, []).append(k == truth)
                scores.setdefault(criterion, []).append(ari(k))
        out.add(name, **figures)
    out.note("right", {criterion: sum(found) for criterion, found in right.items()})
    out.note("mean_ari", {criterion: round(float(np.mean(found)), 4) for criterion, found in scores.items()})
    print(out.document["right"], out.document["mean_ari"])


if __name__ == "__main__":
    main()
