"""Affinity propagation on neighbour lists on one GPU: whole brains to their end, a million rows, hostile data.

    python -m benchmarks.affinity_propagation.brain bold.nii.gz mask.nii.gz --prepare brain.npy
    python -m benchmarks.affinity_propagation.lists bold.nii.gz mask.nii.gz --finer finer.npy
    python -m benchmarks.affinity_propagation.lists brain.npy finer.npy --out NAME.json
    python -m benchmarks.affinity_propagation.lists brain.npy finer.npy --ends --out NAME.json

`--finer` interpolates the series on a grid with 228,000 voxels within the mask, about 2 mm of a brain, and adds white
noise of a fifth of each voxel's standard deviation: neighbours are not copies of each other.

Limit of an iteration on lists: 16 bytes for each element with R > 0, which a copy moves in some ten microseconds.
Wanted: 0.06 ms for 48,751 rows while there are more than 100 clusters (matrices: 7.47 ms), the brain's scan to K = 2 in
20 s (profile "fast"), 228,000 rows to K = 100 in 3 minutes and 16 GiB, 1,000,000 x 64 at the median preference in 2
minutes, and at most 1.3 times the time of matrices where all pairs are nearly equal.
"""

from __future__ import annotations

import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import on_ranks
from benchmarks.support import record as bench

VOXELS = 228_000
CLUSTERS = (250, 120)  # at which an iteration is timed


def interpolate(path: str, mask_path: str, to: Path) -> None:
    """Write the rows of the finer grid, detrended and scaled, float32."""
    import nibabel
    from scipy.ndimage import zoom

    series = np.asarray(nibabel.load(path).dataobj, np.float32)
    mask = np.asarray(nibabel.load(mask_path).dataobj) > 0
    factor = (VOXELS / mask.sum()) ** (1 / 3)
    inside = zoom(mask.astype("uint8"), factor, order=0) > 0
    times = np.arange(series.shape[3]) - (series.shape[3] - 1) / 2
    rows = np.empty((int(inside.sum()), len(times)), np.float32)
    for at in range(len(times)):
        rows[:, at] = zoom(series[..., at], factor, order=1)[inside]
    rows -= rows.mean(axis=1, keepdims=True)
    rows -= np.outer(rows @ times / (times @ times), times).astype("float32")
    rows /= np.maximum(rows.std(axis=1, keepdims=True), 1e-6)
    rows += 0.2 * np.random.default_rng(0).normal(size=rows.shape).astype("float32")
    np.save(to, rows)
    print(f"{to.name}: {rows.shape[0]} voxels x {rows.shape[1]} time points")


def blobs(n: int, d: int) -> np.ndarray:
    """A thousand clusters that overlap somewhat."""
    rng = np.random.default_rng(0)
    return (2 * rng.normal(size=(1000, d))[rng.integers(1000, size=n)] + rng.normal(size=(n, d))).astype("float32")


class Fits:
    """Fits in this process, each an item of the record."""

    def __init__(self, options: Any) -> None:
        self.out = bench.Record(__doc__, options.out)
        self.common = {"device": "cpu" if options.cpu else "cuda", "client": None, "random_state": 0}

    def fit(self, name: str, method: str, X: np.ndarray, **parameters: Any) -> Any:
        """Fit, and keep what came out."""
        import mgclust

        model = getattr(mgclust, method)(**self.common, **parameters)
        on_ranks.free_pool()
        start = time.perf_counter()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(X)
        wall = time.perf_counter() - start
        if name:
            stage = model.timings_.get("scan", model.timings_.get("messages", 0.0))
            self.out.add(
                name,
                rows=len(X),
                features=X.shape[1],
                parameters=parameters,
                wall_seconds=wall,
                timings=dict(model.timings_),
                iterations=model.n_iter_,
                ms_iteration=1e3 * stage / max(1, model.n_iter_),
                ended=bool(model.converged_),
                n_clusters=model.n_clusters_,
                exactness=dict(model.exactness_),
                device_gib=on_ranks.device_bytes() / 2**30,
            )
        return model


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("rows", help="rows of a brain, .npy; with --finer its series")
    parser.add_argument("more", help="rows of the finer grid, .npy; with --finer the mask")
    parser.add_argument("--finer", type=Path, metavar="OUT.npy", help="only write the rows of the finer grid")
    parser.add_argument("--rows-of-many", type=int, default=1_000_000)
    parser.add_argument("--ends", action="store_true", help="only the scans that go on longest")
    parser.add_argument("--cpu", action="store_true", help="the CPU instead")
    parser.add_argument("--small", action="store_true", help="few rows only, to try the script out")
    options = parser.parse_args()
    if options.finer:
        interpolate(options.rows, options.more, options.finer)
        return
    share = 40 if options.small else 1
    brain, finer = (np.ascontiguousarray(np.load(path)[::share]) for path in (options.rows, options.more))
    fits = Fits(options)
    of_brain = {"affinity": "correlation"}
    adaptive, plain = "AdaptiveAffinityPropagation", "AffinityPropagation"
    # The first fits compile.
    fits.fit("", adaptive, brain, profile="fast", max_iter=1500, algorithm="sparse", **of_brain)
    fits.fit("", adaptive, brain[:2000], max_iter=100, **of_brain)
    scan = fits.fit("brain, profile fast, to the end", adaptive, brain, profile="fast", **of_brain).scan_
    if options.ends:
        fits.fit("brain, profile code, 50,000 iterations", adaptive, brain, max_iter=50_000, **of_brain)
        fits.fit("finer brain, profile fast, to the end", adaptive, finer, profile="fast", **of_brain)
        return
    fits.fit(
        "finer brain, profile fast, to K = 100", adaptive, finer, profile="fast",
        n_clusters_range=(100, len(finer)), **of_brain,
    )  # fmt: skip
    many = blobs(options.rows_of_many // share, 64)
    fits.fit("many rows, median preference", plain, many, damping=0.9, max_iter=1000)
    del many
    for k in CLUSTERS:
        at = int(np.abs(scan["n_clusters"] - k / share).argmin())
        given = {"preference": float(scan["preference"][at]), "damping": 0.9, "max_iter": 500, "convergence_iter": 499}
        fits.fit(f"iterations of the brain at K near {k}", plain, brain, algorithm="sparse", **given, **of_brain)
    fits.fit(
        "iterations of the brain, matrices", plain, brain, algorithm="dense", **(given | {"max_iter": 200}), **of_brain
    )
    rng = np.random.default_rng(0)
    for d in (64, 1000):
        noise = rng.normal(size=(10_000 // share, d)).astype("float32")
        for share_of_median in (1, 30):
            given = {"preference": -2.0 * d * share_of_median, "damping": 0.8, "max_iter": 300, "convergence_iter": 299}
            for algorithm in ("dense", "auto"):
                fits.fit(f"noise, {d} features, {algorithm}", plain, noise, algorithm=algorithm, **given)
    fits.fit("brain, profile code, 10,000 iterations", adaptive, brain, max_iter=10_000, **of_brain)


if __name__ == "__main__":
    main()
