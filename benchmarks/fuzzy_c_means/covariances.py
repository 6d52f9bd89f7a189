r"""Fuzzy c-means with covariances beside spheres, on generated clusters of many shapes, and iris and wine.

Of each set the adjusted Rand index at the true number of clusters, ten starts of which the lowest J is kept, for
spheres and for covariances (m by "auto" and 2), and the numbers that two criteria choose of 2 to about 1.6 times the
true one. And seconds of an iteration.

    python -m benchmarks.fuzzy_c_means.covariances --out benchmarks/results/fuzzy_c_means/covariances.json
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_iris, load_wine
from sklearn.metrics import adjusted_rand_score

from benchmarks.support import record as bench
from mgclust import FuzzyCMeans

Set = tuple[np.ndarray, np.ndarray]
PLACE = {"client": None, "device": "cpu", "random_state": 0}
STARTS, STARTS_OF_RANGE = 10, 3
MODELS = {
    "spheres": {},
    "covariances": {"covariance_type": "full"},
    "covariances, m = 2": {"covariance_type": "full", "m": 2.0},
}
CRITERIA = ("fuzzy_hypervolume", "modified_partition_coefficient")
# features, rows of a cluster, clusters, separation
SETS = ((2, 100, 6, 5), (3, 60, 8, 5), (4, 50, 5, 4), (6, 60, 4, 3), (8, 60, 3, 5), (16, 90, 3, 3))
SHAPES = ((100_000, 2, 8), (100_000, 16, 8), (20_000, 64, 8))  # rows, features, clusters


def clusters(rng: np.random.Generator, k: int, n: int, d: int, separation: float, kind: str) -> Set:
    """Normal clusters: round, of a covariance each, or round in a line."""
    places = separation * (np.arange(k)[:, None] * np.ones(d) if kind == "line" else rng.normal(size=(k, d)))
    shapes = [rng.normal(size=(d, d)) if kind == "turned" else np.eye(d) for _ in range(k)]
    rows = [rng.normal(size=(n, d)) @ shape + place for shape, place in zip(shapes, places, strict=True)]
    return np.concatenate(rows), np.repeat(np.arange(k), n)


def sets() -> dict[str, Set]:
    """All sets, by name."""
    rng = np.random.default_rng(7)
    stripes = [rng.normal(size=(300, 2)) * [6, 0.5] + [0, 4 * k] for k in range(3)]
    cross = [rng.normal(size=(300, 2)) * scale for scale in ([6, 0.5], [0.5, 6])]
    found = {
        "stripes": (np.concatenate(stripes), np.repeat([0, 1, 2], 300)),
        "cross": (np.concatenate(cross), np.repeat([0, 1], 300)),
        "iris": load_iris(return_X_y=True),
        "wine": load_wine(return_X_y=True),
    }
    for d, n, k, separation in (
        (2, 100, 6, 5),
        (3, 60, 8, 5),
        (4, 50, 5, 4),
        (6, 60, 4, 3),
        (8, 60, 3, 5),
        (16, 90, 3, 3),
    ):
        for kind in ("round", "turned", "line"):
            found[f"{kind}, {k} clusters of {n} x {d}"] = clusters(rng, k, n, d, separation, kind)
    return found


def main() -> None:
    """Fit all, and time an iteration."""
    options = bench.parser(__doc__ or "").parse_args()
    out = bench.Record(__doc__ or "", options.out)
    scores: dict[str, list[float]] = {}
    right: dict[str, int] = dict.fromkeys(CRITERIA, 0)
    everything = sets()
    for name, (X, y) in everything.items():
        truth = len(np.unique(y))
        figures: dict[str, object] = {"n": len(X), "d": X.shape[1], "n_clusters": truth}
        with warnings.catch_warnings(action="ignore"):
            for model, parameters in MODELS.items():
                fitted = FuzzyCMeans(truth, n_init=STARTS, **parameters, **PLACE).fit(X)
                ari = float(adjusted_rand_score(y, fitted.labels_))
                figures[model] = {"ari": ari, "m": fitted.m_, "n_iter": fitted.n_iter_}
                scores.setdefault(model, []).append(ari)
            reach = (2, max(5, round(1.6 * truth)))
            ranged = {"n_clusters_range": reach, "n_init": STARTS_OF_RANGE, "covariance_type": "full"}
            table = FuzzyCMeans(**ranged, **PLACE).fit(X).scan_
        for criterion, best in zip(CRITERIA, (np.argmin, np.argmax), strict=True):
            chosen = int(table["n_clusters"][best(table[criterion])])
            figures[criterion] = chosen
            right[criterion] += chosen == truth
        out.add(name, **figures)
    out.note("mean_ari", {model: round(float(np.mean(found)), 3) for model, found in scores.items()})
    out.note("right", {**right, "sets": len(everything)})
    for n, d, c in SHAPES:
        X = np.random.default_rng(0).normal(size=(n, d))
        seconds = {}
        for kind in ("spherical", "full"):
            model = FuzzyCMeans(
                c, covariance_type=kind, m=2.0, init=X[:c], max_iter=10, tol=0.0, dtype="float64", **PLACE
            )
            with warnings.catch_warnings(action="ignore"):
                model.fit(X)
                seconds[kind] = min(model.fit(X).timings_["iterate"] for _ in range(3)) / 11
        out.add(f"{n} x {d}, {c} clusters, an iteration in float64", **seconds)
    print(out.document["mean_ari"], out.document["right"])


if __name__ == "__main__":
    main()
