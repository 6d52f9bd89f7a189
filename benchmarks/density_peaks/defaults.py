"""What the defaults find: the number of clusters and the adjusted Rand index on many sets, and what they cost.

Every NAME.npz of the folder that has labels, and sets that are generated here. Compared are dc_fraction=0.02, the
fraction of five whose drop of rho * delta is the largest, dc_fraction="auto", and beside them HDBSCAN with its defaults
(noise counted as a cluster) and k-means at the true number. Sets of one family (a1, a2, a3) are in one half: "auto"
was made on the half "tune", and "report" tells what it is worth elsewhere. CORE are the shapes and Gaussians of the
literature, and pendigits, classes of real data. TARGET are the 22 of them that the aim for "auto" was set on: 17
numbers right and a mean index of 0.82. Uniform and normal noise has one cluster: any other number is wrong, unless a
warning says so.

    python -m benchmarks.density_peaks.defaults --data FOLDER --out NAME.json

`--noise-of` takes a record, and writes it again with the noise of today's code: its fits and their warnings alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn import datasets as generated
from sklearn.cluster import HDBSCAN, KMeans
from sklearn.metrics import adjusted_rand_score

from benchmarks.support import record as bench
from mgclust import DensityPeaks
from mgclust import datasets as own
from mgclust.algorithms.density_peaks.cutoff_distance.fraction_choice import FRACTIONS

CORE = [
    *("a1", "a2", "a3", "aggregation", "birch1", "birch2", "chameleon_t4_8k", "chameleon_t7_10k", "compound", "d31"),
    *("dim032", "dim064", "dim128", "dim256", "dim512", "dim1024", "flame", "jain", "pathbased", "pendigits", "r15"),
    *("s1", "s2", "s3", "s4", "spiral", "unbalance", "worms_2"),
]
TARGET = [  # any one of dim064, dim128, dim512 and dim1024: each method has the same figures on all
    *("a1", "a2", "a3", "aggregation", "chameleon_t4_8k", "chameleon_t7_10k", "compound", "d31", "dim032", "dim064"),
    *("dim256", "flame", "jain", "pathbased", "pendigits", "r15", "s1", "s2", "s3", "s4", "spiral", "unbalance"),
]
SEEDS = (0, 1, 2)
WORSE = 0.01  # in the index, with some seed
RIVAL_NUMBERS = 1 << 20  # of a set: larger ones take the others minutes
NOISE = 20


def half(name: str) -> str:
    """The half of a set, by its family's name alone."""
    family = re.sub(r"[\d_].*$", "", name) or name
    return "report" if hashlib.sha256(family.encode()).digest()[0] % 2 else "tune"


def made() -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Sets of generators."""
    scikit: dict[str, Any] = {
        "moons": generated.make_moons(2000, noise=0.06, random_state=0),
        "circles_made": generated.make_circles(1500, noise=0.05, factor=0.5, random_state=0),
        "blobs8_10d": generated.make_blobs(4000, 10, centers=8, random_state=1),
        "blobs40_5d": generated.make_blobs(6000, 5, centers=40, cluster_std=0.8, random_state=2),
        "varied": generated.make_blobs(3000, centers=3, cluster_std=[1, 2.5, 0.5], random_state=170),
        "unequal4_3d": generated.make_blobs([3000, 1000, 300, 100], 3, cluster_std=0.9, random_state=5),
        "digits_scaled": generated.load_digits(return_X_y=True),
    }
    blobs, y = generated.make_blobs(3000, random_state=170)
    scikit["aniso"] = blobs @ np.array([[0.6, -0.6], [-0.4, 0.8]]), y
    for name, (X, labels) in scikit.items():
        yield name, X, labels
    grid, labels, _ = own.make_gaussian_grid()
    yield "grid100", grid[::5], labels[::5]
    rings, labels, _ = own.make_gaussian_rings()
    yield "rings15", rings, labels
    clusters, labels, _ = own.make_gaussian_clusters()
    yield "clusters31", clusters, labels


def of_folder(folder: Path | None) -> Iterator[tuple[str, np.ndarray, np.ndarray]]:
    """Sets of a folder that have labels."""
    for path in sorted(folder.glob("*.npz")) if folder else ():
        with np.load(path, allow_pickle=False) as archive:
            if "y" in archive:
                yield path.stem, archive["X"], archive["y"]


def fastest(functions: list[Callable[[], Any]], repeat: int) -> list[tuple[float, float]]:
    """Least wall time, and least processor time, of some calls of each, by turns."""
    least = [(np.inf, np.inf)] * len(functions)
    for _ in range(repeat):
        for at, function in enumerate(functions):
            start, used = time.perf_counter(), time.process_time()
            function()
            used = time.process_time() - used
            least[at] = (min(least[at][0], time.perf_counter() - start), min(least[at][1], used))
    return least


def fit(X: np.ndarray, **options: Any) -> DensityPeaks:
    return DensityPeaks(client=None, device="cpu", **options).fit(X)


def measured(name: str, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """Figures of one set."""
    true, repeat = len(np.unique(y)), 12 if X.size < 100_000 else 4

    def figures(labels: np.ndarray, **more: Any) -> dict[str, Any]:
        return {"n_clusters": len(np.unique(labels)), "ari": adjusted_rand_score(y, labels), **more}

    out: dict[str, Any] = {"n": len(X), "d": X.shape[1], "true": true, "half": half(name), "core": name in CORE}
    models = {fraction: fit(X, dc_fraction=fraction) for fraction in FRACTIONS}
    (took, used), (took_auto, used_auto) = fastest([lambda: fit(X, dc_fraction=0.02), lambda: fit(X)], repeat)
    out["fixed"] = figures(models[0.02].labels_, seconds=took, processor_seconds=used)
    clear = max(FRACTIONS, key=lambda fraction: models[fraction].result_.scores["gamma_drop"])
    out["clearest"] = figures(models[clear].labels_, dc_fraction=clear)
    autos = [fit(X, random_state=seed) for seed in SEEDS]
    out["auto"] = [figures(model.labels_, dc_fraction=model.dc_fraction_) for model in autos]
    out["auto_seconds"], out["auto_processor_seconds"] = took_auto, used_auto
    if X.size <= RIVAL_NUMBERS:
        out["hdbscan"] = figures(HDBSCAN(copy=True).fit_predict(X))
        out["kmeans"] = figures(KMeans(true, random_state=0, n_init=10).fit_predict(X))
    return out


def summary(items: list[dict[str, Any]]) -> dict[str, Any]:
    """How often the number is right, and the mean index, over some sets; "auto" over its seeds."""

    def of(found: list[list[dict[str, Any]]]) -> dict[str, Any]:
        right = [np.mean([each["n_clusters"] == item["true"] for each in some]) for item, some in found_of(found)]
        return {
            "right": float(np.sum(right)),
            "ari": float(np.mean([np.mean([each["ari"] for each in some]) for some in found])),
            "sets": len(found),
        }

    def found_of(found: list[list[dict[str, Any]]]) -> Iterator[tuple[dict[str, Any], list[dict[str, Any]]]]:
        return zip(items, found, strict=True)

    out: dict[str, Any] = {kind: of([[item[kind]] for item in items]) for kind in ("fixed", "clearest")}
    out["auto"] = of([item["auto"] for item in items])
    was_right = [item for item in items if item["fixed"]["n_clusters"] == item["true"]]
    out["right_that_became_wrong"] = sorted(
        item["item"] for item in was_right if any(each["n_clusters"] != item["true"] for each in item["auto"])
    )
    out["worse_than_fixed"] = {
        item["item"]: [item["fixed"]["ari"], [each["ari"] for each in item["auto"]]]
        for item in items
        if min(each["ari"] for each in item["auto"]) < item["fixed"]["ari"] - WORSE
    }
    for kind in ("seconds", "processor_seconds"):
        ratios = [item[f"auto_{kind}"] / item["fixed"][kind] for item in items]
        out[kind] = {
            "fixed": sum(item["fixed"][kind] for item in items),
            "auto": sum(item[f"auto_{kind}"] for item in items),
            "median_ratio": float(np.median(ratios)),
            "largest_ratio": max(ratios),
        }
    for rival in ("hdbscan", "kmeans"):
        some = [item for item in items if rival in item]
        hits = [item[rival]["n_clusters"] == item["true"] for item in some]
        out[rival] = {
            "right": sum(hits),
            "ari": float(np.mean([item[rival]["ari"] for item in some])),
            "sets": len(some),
        }
    return out


def summaries(items: list[dict[str, Any]]) -> dict[str, Any]:
    """Those of all sets, of both halves, and of the classical ones."""
    groups = {"all": items, "core": [item for item in items if item["core"]]}
    groups["target"] = [item for item in items if item["item"] in TARGET]
    for part in ("tune", "report"):
        groups[part] = [item for item in items if item["half"] == part]
        groups[f"core {part}"] = [item for item in groups["core"] if item["half"] == part]
    return {name: summary(some) for name, some in groups.items() if some}


def noise() -> dict[str, Any]:
    """Numbers of clusters in noise, and how often there was a warning."""
    out = {}
    for name, draw in (("uniform", np.random.Generator.random), ("normal", np.random.Generator.standard_normal)):
        shapes = [(shape, "euclidean") for shape in ((20, 2), (50, 2), (100, 2), (1000, 2), (1000, 10))]
        shapes += [((rows, 1), "euclidean") for rows in (100, 300, 1000, 3000)]
        shapes += [((rows, 2), metric) for rows in (300, 1000) for metric in ("cosine", "sqeuclidean")]
        for shape, metric in shapes:
            found = [fit(draw(np.random.default_rng(seed), shape), metric=metric) for seed in range(NOISE)]
            by = "" if metric == "euclidean" else f", {metric}"
            out[f"{name} {shape[0]} x {shape[1]}{by}"] = {
                "n_clusters": sorted(model.n_clusters_ for model in found),
                "warned": sum(bool(model.result_.warnings) for model in found),
                "one_cluster_or_warned": sum(model.n_clusters_ == 1 or bool(model.result_.warnings) for model in found),
                "draws": NOISE,
            }
    return out


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--sets", default="", help="names, comma-separated (default: all)")
    parser.add_argument("--noise-of", type=Path, help="a record of which only the noise is measured again")
    options = parser.parse_args()
    if options.noise_of is not None:
        document = json.loads(options.noise_of.read_text(encoding="utf-8"))
        measured_by = bench.Record(__doc__, None).document
        document["noise"] = {name: measured_by[name] for name in ("date", "command", "hardware", "versions")}
        document["noise"]["draws"] = noise()
        options.noise_of.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
        print(document["noise"])
        return
    wanted = options.sets.split(",") if options.sets else None
    out = bench.Record(__doc__, options.out)
    items = []
    for name, X, y in [*made(), *of_folder(options.data)]:
        if wanted is None or name in wanted:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                items.append({"item": name, **out.add(name, **measured(name, X, y))})
    out.note("summary", summaries(items))
    out.note("noise", {"draws": noise()})
    print(out.document["summary"], out.document["noise"])


if __name__ == "__main__":
    main()
