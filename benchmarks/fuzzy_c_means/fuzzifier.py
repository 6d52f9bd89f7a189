"""Which fuzzifier m finds the known clusters, at their true number, on sets of many kinds.

Of each set the fits of three seeds (`random_state` 0, 1, 2; other parameters at their defaults) for

    2.0, 1.3, 1.1    these, whatever the data are
    SJ               the formula of Schwaemmle and Jensen (2010) by the numbers of rows and features
    SJ, at most 2    the same, but never above 2: what `m="auto"` takes
    DK               Dembele and Kastner (2003): the m at which the distances, raised to 1 / (m - 1), have a coefficient
                     of variation of 0.03 times the number of features, divided by ten, plus 1; 2 where that m is above
                     10. Distances among 1,000 rows, raised to a power as the squares of distances.

with the mean adjusted Rand index against the truth; how many fits gave each of the clusters rows (`whole`), at least
one row in a hundred of the mean size (`even`); and the least distance of two centres, relative to the root mean square
distance of rows from centres in J. Sets of more than `MAX_ROWS` rows are left out, and those without a truth.

    python -m benchmarks.fuzzy_c_means.fuzzifier --data FOLDER --out benchmarks/results/fuzzy_c_means/fuzzifier.json
"""

from __future__ import annotations

import time
import warnings
from typing import Any

import numpy as np
from scipy.spatial.distance import pdist
from sklearn.metrics import adjusted_rand_score

from benchmarks.support import record as bench
from benchmarks.support import sets
from mgclust import FuzzyCMeans

MAX_ROWS, SAMPLE, SEEDS = 20_000, 1000, (0, 1, 2)


def schwaemmle_jensen(n: int, d: int) -> float:
    """Their equation 5."""
    return float(1 + (1418 / n + 22.05) / d**2 + (12.33 / n + 0.243) * d ** (-0.0406 * np.log(n) - 0.1134))


def dembele_kastner(X: np.ndarray) -> float:
    """Their m, from the squared distances of a sample."""
    rows = np.random.default_rng(0).choice(len(X), min(len(X), SAMPLE), replace=False)
    squares = pdist(X[rows].astype("float64"), "sqeuclidean")
    logs = np.log(squares[squares > 0])
    low, high = 1.001, 100.0
    for _ in range(60):
        m = (low + high) / 2
        y = np.exp((logs - logs.max()) / (m - 1))
        if y.std() / y.mean() > 0.03 * X.shape[1]:
            low = m
        else:
            high = m
    return 2.0 if low >= 10 else 1 + low / 10


def fitted(X: np.ndarray, y: np.ndarray, k: int, m: float) -> dict[str, Any]:
    """Figures of the fits of all seeds."""
    scores, whole, even, apart, began = [], 0, 0, [], time.perf_counter()
    for seed in SEEDS:
        with warnings.catch_warnings(action="ignore"):
            model = FuzzyCMeans(k, m=m, random_state=seed, client=None, device="cpu").fit(X)
        scores.append(adjusted_rand_score(y, model.labels_))
        sizes = np.bincount(model.labels_, minlength=k)
        whole += int(sizes.min() > 0)
        even += int(sizes.min() >= len(X) / (100 * k))
        within = np.sqrt(model.objective_ / (np.asarray(model.memberships_, "float64") ** m).sum())
        centers = model.cluster_centers_
        apart.append(float(pdist(centers).min() / within) if within else np.inf)
    seconds = (time.perf_counter() - began) / len(SEEDS)
    return {"m": m, "ari": np.mean(scores), "whole": whole, "even": even, "apart": min(apart), "seconds": seconds}


def main() -> None:
    """Fit each set by each rule."""
    options = bench.parser(__doc__ or "").parse_args()
    out = bench.Record(__doc__ or "", options.out)
    out.note("conditions", f"seeds {SEEDS}; sets of at most {MAX_ROWS} rows; rows as they are, not scaled")
    means: dict[str, list[float]] = {}
    for name in sorted(path.stem for path in options.data.glob("*.npz")):
        loaded = sets.load(name, options.data)
        if loaded is None or loaded[1] is None or len(loaded[0]) > MAX_ROWS:
            continue
        X, y = loaded
        (n, d), k = X.shape, len(np.unique(y))
        rule = schwaemmle_jensen(n, d)
        rules = {"2.0": 2.0, "1.3": 1.3, "1.1": 1.1, "SJ": rule, "SJ, at most 2": min(rule, 2.0)}
        rules["DK"] = dembele_kastner(X)
        known: dict[float, dict[str, Any]] = {}
        for word, m in rules.items():
            known[m] = known[m] if m in known else fitted(X, y, k, m)
            means.setdefault(word, []).append(known[m]["ari"])
            out.add(f"{name}, {word}", n=n, d=d, n_clusters=k, **known[m])
    out.note("mean_ari", {word: round(float(np.mean(scores)), 4) for word, scores in means.items()})
    print(out.document["mean_ari"])


if __name__ == "__main__":
    main()
