"""How exact: exemplars and labels beside scikit-learn's, and adaptive scans beside what is known of their sets.

Affinity propagation with the same preference and damping on R15, D31, the Dim sets, 3,000 pendigits and a slice of a
BOLD series (530 voxels, correlation, given to scikit-learn as a matrix); in float32 and float64. Rows whose labels
differ are listed. Of clusters that are the same but for their exemplar: how much less similar ours is to the members
than theirs, relative, in exact arithmetic (0: a tie). Adaptive scans of wine and ionosphere beside what the authors'
package finds: candidates, best K, Fowlkes and Mallows' index (FM) against the truth.

    python -m benchmarks.affinity_propagation.accuracy --out benchmarks/results/affinity_propagation/accuracy.json
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

# name: (rows: None for all, damping, affinity)
CASES: dict[str, tuple[int | None, float, str]] = {
    "r15": (None, 0.9, "euclidean"),
    "d31": (None, 0.9, "euclidean"),
    **{f"dim{d:03d}": (None, 0.9, "euclidean") for d in (32, 64, 128, 256, 512, 1024)},
    "pendigits": (3_000, 0.9, "euclidean"),
    "haxby": (None, 0.9, "correlation"),
}
# Checked beforehand with float64 NumPy written from the description of the authors' package ("code") and of the paper.
KNOWN = {
    ("wine", "code"): {"best_k": 3, "candidates": "2 to 14", "iterations": 2538, "fm": 0.801},
    ("wine", "paper"): {"best_k": 3},
    ("ionosphere", "code"): {"best_k": 2, "candidates": "31 to 37 of them", "iterations": "7182 to 7772", "fm": 0.745},
}


def loaded(name: str, data: Path | None) -> tuple[np.ndarray, np.ndarray | None] | None:
    """Rows and truth; of the BOLD slice the z-scored, detrended voxels."""
    if name != "haxby":
        return sets.load(name, data)
    try:
        from mgclust.data import open_dataset

        folder = sets.ROOT / "tests" / "sets"
        dataset = open_dataset(
            str(folder / "haxby2001-slice_bold.nii.gz"),
            mask=str(folder / "haxby2001-slice_mask.nii.gz"),
            standardize="zscore",
            detrend=True,
        )
    except Exception as error:
        print(f"haxby: left out, {error}", flush=True)
        return None
    return np.asarray(dataset.read(0, dataset.shape[0])), None


def theirs(X: np.ndarray, affinity: str, preference: float, damping: float) -> tuple[Any, float]:
    from sklearn.cluster import AffinityPropagation

    S = -(1 - np.corrcoef(X)) / 2 if affinity == "correlation" else X
    kind = "precomputed" if affinity == "correlation" else affinity
    model = AffinityPropagation(damping=damping, preference=preference, affinity=kind, max_iter=400, random_state=0)
    start = time.perf_counter()
    model.fit(S)
    return model, time.perf_counter() - start


def lost_similarity(X: np.ndarray, affinity: str, ours: Any, reference: Any) -> float:
    """Largest relative difference of the members' similarity to two different exemplars of equal clusters."""
    if affinity == "correlation":
        X = X - X.mean(axis=1, keepdims=True)
        X = X / np.linalg.norm(X, axis=1, keepdims=True)
    worst = 0.0
    pairs = zip(ours.cluster_centers_indices_, reference.cluster_centers_indices_, strict=False)
    for label, (mine, other) in enumerate(pairs):
        members = X[ours.labels_ == label]
        sums = [((members - X[exemplar]) ** 2).sum() for exemplar in (mine, other)]
        if mine != other:
            worst = max(worst, float((sums[0] - sums[1]) / sums[1]))
    return worst


def compare(out: bench.Record, name: str, X: np.ndarray, y: np.ndarray | None, device: str) -> None:
    from sklearn.metrics import adjusted_rand_score

    from mgclust import AffinityPropagation
    from mgclust.algorithms.affinity_propagation import estimator as affinity_propagation

    affinity_propagation.FEW_SIMILARITIES = 0  # float32 is what `dtype` says, of small data too
    _, damping, affinity = CASES[name]
    reference = None
    for dtype in ("float64", "float32"):
        model = AffinityPropagation(
            damping=damping, affinity=affinity, max_iter=400, device=device, client=None, dtype=dtype, random_state=0
        )
        start = time.perf_counter()
        model.fit(X)
        took = time.perf_counter() - start
        if reference is None:
            reference, their_seconds = theirs(X.astype("float64"), affinity, float(model.preference_), damping)
        differ = np.flatnonzero(model.labels_ != reference.labels_)
        exemplars = np.array_equal(model.cluster_centers_indices_, reference.cluster_centers_indices_)
        out.add(
            f"{name} {dtype}",
            n=len(X),
            d=X.shape[1],
            damping=damping,
            clusters=len(model.cluster_centers_indices_),
            exemplars_equal=exemplars,
            exemplars_that_differ=int(
                np.setdiff1d(model.cluster_centers_indices_, reference.cluster_centers_indices_).size
            ),
            similarity_lost_by_them=lost_similarity(X.astype("float64"), affinity, model, reference)
            if not len(differ)
            else None,
            labels_that_differ=len(differ),
            rows_that_differ=differ[:20].tolist(),
            ari_between=float(adjusted_rand_score(model.labels_, reference.labels_)),
            ari_to_truth=None if y is None else float(adjusted_rand_score(y, model.labels_)),
            iterations=model.n_iter_,
            iterations_of_sklearn=reference.n_iter_,
            converged=model.converged_,
            net_similarity=model.net_similarity_,
            seconds=took,
            sklearn_seconds=their_seconds,
        )


def adaptive(
    out: bench.Record, name: str, profile: str, X: np.ndarray, y: np.ndarray, device: str, max_iter: int
) -> None:
    from sklearn.metrics import adjusted_rand_score, fowlkes_mallows_score

    from mgclust import AdaptiveAffinityPropagation

    for dtype in ("float64", "float32"):
        model = AdaptiveAffinityPropagation(
            profile=profile, max_iter=max_iter, device=device, client=None, dtype=dtype, random_state=0
        )
        start = time.perf_counter()
        model.fit(X)
        candidates = model.scan_["n_clusters"].tolist()
        out.add(
            f"adaptive {name} {profile} {dtype}",
            n=len(X),
            d=X.shape[1],
            best_k=model.n_clusters_,
            candidates=candidates,
            silhouettes=model.scan_["silhouette"].tolist(),
            iterations=model.n_iter_,
            ended_by_itself=model.converged_,
            fm=float(fowlkes_mallows_score(y, model.labels_)),
            ari_to_truth=float(adjusted_rand_score(y, model.labels_)),
            seconds=time.perf_counter() - start,
            known=KNOWN.get((name, profile)),
        )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sets", default=",".join([*CASES, "wine", "ionosphere"]))
    parser.add_argument("--max-iter", type=int, default=50_000, help="of an adaptive scan")
    parser.add_argument("--small", action="store_true", help="only wine, to try the script out")
    options = parser.parse_args()
    names = ["wine"] if options.small else options.sets.split(",")
    out = bench.Record(__doc__, options.out)
    out.note("device", options.device)
    for name in names:
        found = loaded(name, options.data)
        if found is None:
            continue
        X, y = found
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                if name in CASES:
                    rows = CASES[name][0]
                    compare(out, name, X[:rows], None if y is None else y[:rows], options.device)
                else:
                    for profile in ("code", "paper"):
                        adaptive(out, name, profile, X, y, options.device, options.max_iter)
            except Exception as error:
                out.add(name, failed=f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    main()
