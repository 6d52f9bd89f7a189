"""Significant density peaks beside the defaults and DADApy, on many sets and on noise.

The sets are those of `benchmarks.density_peaks.defaults`, up to MAX_ROWS rows. Compared are the defaults,
``density="knn", k="adaptive", significance=1.65``, and, where its Python is given, DADApy's ADP with Z = 1.65: once as
it comes (its intrinsic dimension may exceed the number of features; 100 neighbours), and once with the same dimension
and neighbours and its form in pure Python (the compiled one may miss borders), so that k*, densities and labels should
be the same. Noise has one cluster: any other number is wrong,
unless a warning says so. The half of a set is that of `benchmarks.density_peaks.defaults`; nothing here was tuned.

    python -m benchmarks.density_peaks.significance --data FOLDER --peers-python PEERS/bin/python --out NAME.json
"""

from __future__ import annotations

import subprocess
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import adjusted_rand_score

from benchmarks.density_peaks.defaults import CORE, fit, half, made, of_folder
from benchmarks.support import record as bench
from mgclust import DensityPeaks

MAX_ROWS, MAX_NUMBERS = 12_000, 1 << 21
NOISE, DRAWS = 20, 20
SHAPES = ((300, 2), (1000, 1), (1000, 2), (1000, 5), (1000, 10), (5000, 2), (5000, 5))
TEST: dict[str, Any] = {"density": "knn", "k": "adaptive", "significance": 1.65}
PEER = """
import sys, time
import numpy as np
from dadapy import Data
X, dim, neighbors = np.load(sys.argv[1]).astype("float64"), float(sys.argv[3]), int(sys.argv[4])
pure = bool(dim)
start = time.perf_counter()
data = Data(X, maxk=min(neighbors, len(X) - 1), verbose=False)
data.compute_distances()
data.compute_id_2NN()
if dim:
    data.set_id(dim)
data.compute_density_PAk()
(data.compute_clustering_ADP_pure_python if pure else data.compute_clustering_ADP)(Z=1.65)
took = time.perf_counter() - start
np.savez(
    sys.argv[2], k=data.kstar, value=data.log_den, error=data.log_den_err, labels=data.cluster_assignment, took=took,
    dim=data.intrinsic_dim,
)
"""


def peer(python: Path, X: np.ndarray, dim: float, neighbors: int) -> dict[str, np.ndarray] | None:
    """What DADApy finds; None where it ends with an error."""
    with tempfile.TemporaryDirectory() as folder:
        rows, out = Path(folder) / "rows.npy", Path(folder) / "out.npz"
        np.save(rows, X)
        done = subprocess.run([python, "-c", PEER, rows, out, str(dim), str(neighbors)], capture_output=True)
        if done.returncode:
            return None
        with np.load(out) as archive:
            return dict(archive)


def stability(X: np.ndarray, **options: Any) -> float:
    """Mean adjusted Rand index with the clusters of halves."""
    return float(fit(X, stability=DRAWS, **options).stability_["mean"])


def measured(name: str, X: np.ndarray, y: np.ndarray, python: Path | None) -> dict[str, Any]:
    """Figures of one set."""

    def figures(labels: np.ndarray, **more: Any) -> dict[str, Any]:
        return {"n_clusters": len(np.unique(labels)), "ari": adjusted_rand_score(y, labels), **more}

    out: dict[str, Any] = {
        "n": len(X), "d": X.shape[1], "true": len(np.unique(y)), "half": half(name), "core": name in CORE,
    }  # fmt: skip
    took, plain = bench.seconds(lambda: fit(X))
    out["default"] = figures(
        plain.labels_, seconds=took, warned=bool(plain.result_.warnings), stability=stability(X),
    )  # fmt: skip
    took, model = bench.seconds(lambda: fit(X, **TEST))
    out["test"] = figures(
        model.labels_, seconds=took, warned=bool(model.result_.warnings), intrinsic_dim=model.intrinsic_dim_,
        lowest_height=float(model.significance_.min()) if len(model.saddles_) else None, stability=stability(X, **TEST),
    )  # fmt: skip
    if python is None:
        return out
    theirs = peer(python, X, 0, 100)
    out["dadapy"] = "error" if theirs is None else figures(theirs["labels"], seconds=float(theirs["took"]))
    double = fit(X, dtype="float64", **TEST)
    same = peer(python, X, double.intrinsic_dim_, 101)  # it takes one less
    if same is not None:
        alike = same["k"] == double.k_
        out["against_dadapy"] = {
            "rows_with_another_k": int((~alike).sum()),
            "rows_with_another_density": int((abs(same["value"] - double.log_density_)[alike] > 1e-3).sum()),
            "largest_difference_of_errors": float(abs(same["error"] - double.log_density_error_)[alike].max()),
            "n_clusters": len(np.unique(same["labels"])),
            "ari_of_labels": adjusted_rand_score(same["labels"], double.labels_),
        }
    return out


def summary(items: list[dict[str, Any]]) -> dict[str, Any]:
    """How often the number is right, and the mean index; where both agree; and how the labels are DADApy's."""
    out: dict[str, Any] = {"sets": len(items)}
    for kind in ("default", "test", "dadapy"):
        some = [item for item in items if isinstance(item.get(kind), dict)]
        if some:
            out[kind] = {
                "sets": len(some),
                "right": sum(item[kind]["n_clusters"] == item["true"] for item in some),
                "ari": float(np.mean([item[kind]["ari"] for item in some])),
            }
    agree = [item for item in items if item["default"]["n_clusters"] == item["test"]["n_clusters"]]
    either = [item for item in items if item["true"] in (item["default"]["n_clusters"], item["test"]["n_clusters"])]
    out["both_agree"] = {"sets": len(agree), "right": sum(i["test"]["n_clusters"] == i["true"] for i in agree)}
    out["either_right"] = len(either)
    out["seconds"] = {kind: sum(item[kind]["seconds"] for item in items) for kind in ("default", "test")}
    out["median_ratio_of_seconds"] = float(
        np.median([item["test"]["seconds"] / item["default"]["seconds"] for item in items])
    )
    compared = [item["against_dadapy"] for item in items if "against_dadapy" in item]
    if compared:
        out["against_dadapy"] = {
            "sets": len(compared),
            "same_number": sum(
                item["against_dadapy"]["n_clusters"] == item["test"]["n_clusters"]
                for item in items
                if "against_dadapy" in item
            ),
            "same_labels": sum(each["ari_of_labels"] == 1 for each in compared),
            "least_ari_of_labels": min(each["ari_of_labels"] for each in compared),
        }
    return out


def noise() -> dict[str, Any]:
    """Numbers of clusters in noise, the heights of what was found, and how often there was a warning."""

    def kind(models: list[DensityPeaks]) -> dict[str, Any]:
        passed = [model.n_clusters_ == 1 or bool(model.result_.warnings) for model in models]
        return {"n_clusters": sorted(model.n_clusters_ for model in models), "one_or_warned": sum(passed)}

    def stabilities(rows: list[np.ndarray]) -> dict[str, float]:
        found = [stability(X) for X in rows[:5]]
        return {"least": min(found), "largest": max(found)}

    out = {}
    for name, draw in (("uniform", np.random.Generator.random), ("normal", np.random.Generator.standard_normal)):
        for shape in SHAPES:
            rows = [draw(np.random.default_rng(seed), shape) for seed in range(NOISE)]
            tests = [fit(X, **TEST) for X in rows]
            heights = [model.significance_.min() for model in tests if len(model.saddles_)]
            out[f"{name} {shape[0]} x {shape[1]}"] = {
                "draws": NOISE,
                "default": kind([fit(X) for X in rows]) | {"stability_of_5": stabilities(rows)},
                "test": kind(tests) | {"largest_of_lowest_heights": max(heights, default=None)},
            }
    return out


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--peers-python", type=Path, help="a Python with DADApy")
    parser.add_argument("--sets", default="", help="names, comma-separated (default: all)")
    options = parser.parse_args()
    wanted = options.sets.split(",") if options.sets else None
    out = bench.Record(__doc__, options.out)
    items = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if options.peers_python is not None:
            told = "import importlib.metadata as m; print(m.version('dadapy'))"
            out.note("dadapy", subprocess.check_output([options.peers_python, "-c", told], text=True).strip())
        out.note("noise", noise())
        for name, X, y in [*made(), *of_folder(options.data)]:
            if (wanted is None or name in wanted) and len(X) <= MAX_ROWS and X.size <= MAX_NUMBERS:
                items.append({"item": name, **out.add(name, **measured(name, X, y, options.peers_python))})
    groups = {"all": items, "core": [item for item in items if item["core"]]}
    for part in ("tune", "report"):
        groups[part] = [item for item in items if item["half"] == part]
    out.note("summary", {name: summary(some) for name, some in groups.items() if some})
    print(out.document["summary"], out.document["noise"])


if __name__ == "__main__":
    main()
