"""Parcels of one series by one method, in a process of its own, so that its processor time and memory can be measured.

The benchmarks of this folder start these processes with `run`:

    python -m benchmarks.parcellation.methods METHOD 50,200 [--whole] SERIES.npz ...

A series holds ``rows`` (n_voxels, n_timepoints), ``mask`` and ``affine``. Its labels, of shape (3, n_numbers,
n_voxels), are saved next to it: parcels of the whole series, of its first half and of its second half. With --whole,
only the whole series has parcels. Each half is standardised by itself. One line of JSON with the measurements is
printed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.support import record as bench


class Series(NamedTuple):
    """Rows of mean 0 and standard deviation 1, the mask whose voxels they are, and the affine of its grid."""

    rows: np.ndarray
    mask: np.ndarray
    affine: np.ndarray

    @classmethod
    def read(cls, path: Path) -> Series:
        """Read a file of these three arrays."""
        with np.load(path) as file:
            return cls(file["rows"], file["mask"], file["affine"])

    @property
    def places(self) -> np.ndarray:
        """Coordinates of the voxels in mm."""
        return np.argwhere(self.mask) @ self.affine[:3, :3].T + self.affine[:3, 3]

    def part(self, which: int) -> Series:
        """Return the whole series (0), its first half (1) or its second half (2)."""
        half = self.rows.shape[1] // 2
        cut = (slice(None), slice(half), slice(half, None))[which]
        return self._replace(rows=standardised(self.rows[:, cut]))

    def neighbors(self, connectivity: int = 26) -> Any:
        """Return the neighbouring voxels of each voxel."""
        from mgclust.data.neighbors import volume_neighbors

        return volume_neighbors(self.mask, self.mask.shape, connectivity)

    def edges(self) -> np.ndarray:
        """Return the pairs of neighbours, for 26 neighbours; shape (n_pairs, 2)."""
        starts, columns = self.neighbors()
        own = np.repeat(np.arange(len(self.rows)), np.diff(starts))
        return np.stack([own, columns], axis=1)[own < columns]


def standardised(rows: np.ndarray) -> np.ndarray:
    """Return rows of mean 0 and standard deviation 1; constant rows become 0. float32."""
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    deviation = centred.std(axis=1, keepdims=True)
    return np.divide(centred, deviation, out=np.zeros_like(centred), where=deviation > 0).astype(np.float32)


def ours(series: Series, k: int, seed: int, algorithm: str, refine: bool) -> np.ndarray:
    from mgclust import Parcellation

    model = Parcellation(k, algorithm=algorithm, refine=refine, device="cpu", client=None, random_state=0)
    return model.fit(series.rows, neighbors=series.edges()).labels_


def equal_components(series: Series, k: int, seed: int, **options: Any) -> np.ndarray:
    """Parcels of ours after all principal components of the series are scaled to the same variance."""
    variances, axes = np.linalg.eigh(series.rows.T.astype(np.float64) @ series.rows)
    kept = variances > 1e-6 * variances.max()
    scaled = series.rows @ (axes[:, kept] / np.sqrt(variances[kept]))
    return ours(series._replace(rows=scaled.astype(np.float32)), k, seed, **options)


def nilearn_parcels(series: Series, k: int, seed: int, method: str) -> np.ndarray:
    """Parcels of nilearn, with its defaults, from an image of rows that are ready."""
    import nibabel
    from nilearn.masking import unmask
    from nilearn.regions import Parcellations

    mask = nibabel.Nifti1Image(series.mask.astype(np.uint8), series.affine)
    image = unmask(series.rows.T, mask)
    model = Parcellations(method, n_parcels=k, mask=mask, smoothing_fwhm=None, random_state=0).fit(image)
    return np.asarray(model.labels_img_.dataobj)[series.mask].astype(np.int64) - 1


def scikit_learn_ward(series: Series, k: int, seed: int, own_graph: bool, memory: str | None = None) -> np.ndarray:
    """Ward's method of scikit-learn, with its graph of a mask (shared faces) or the 26 neighbours that ours has."""
    from scipy.sparse import csr_matrix
    from sklearn.cluster import AgglomerativeClustering
    from sklearn.feature_extraction.image import grid_to_graph

    if own_graph:
        graph = grid_to_graph(*series.mask.shape, mask=series.mask)
    else:
        starts, columns = series.neighbors()
        graph = csr_matrix((np.ones(len(columns)), columns, starts), shape=2 * [len(series.rows)])
    options = {"connectivity": graph, "linkage": "ward", "memory": memory, "compute_full_tree": memory is not None}
    return AgglomerativeClustering(k, **options).fit_predict(series.rows)


def k_means(series: Series, k: int, seed: int) -> np.ndarray:
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=1, random_state=seed).fit_predict(series.rows)


def coordinates_alone(series: Series, k: int, seed: int) -> np.ndarray:
    """k-means of the voxels' coordinates; each half has its own seed."""
    from sklearn.cluster import KMeans

    return KMeans(k, n_init=1, random_state=seed).fit_predict(series.places)


METHODS: dict[str, tuple[Any, dict[str, Any]]] = {
    "ward, refined": (ours, {"algorithm": "ward", "refine": True}),
    "ward": (ours, {"algorithm": "ward", "refine": False}),
    "communities, refined": (ours, {"algorithm": "communities", "refine": True}),
    "communities": (ours, {"algorithm": "communities", "refine": False}),
    "affinity propagation, refined": (ours, {"algorithm": "affinity-propagation", "refine": True}),
    "affinity propagation": (ours, {"algorithm": "affinity-propagation", "refine": False}),
    "ward, refined, equal components": (equal_components, {"algorithm": "ward", "refine": True}),
    "ward, equal components": (equal_components, {"algorithm": "ward", "refine": False}),
    "nilearn Ward": (nilearn_parcels, {"method": "ward"}),
    "nilearn ReNA": (nilearn_parcels, {"method": "rena"}),
    "scikit-learn Ward": (scikit_learn_ward, {"own_graph": True}),
    "scikit-learn Ward, 26 neighbours": (scikit_learn_ward, {"own_graph": False}),
    "scikit-learn k-means": (k_means, {}),
    "coordinates alone": (coordinates_alone, {}),
}


def run(
    paths: list[Path], method: str, numbers: tuple[int, ...], halves: bool
) -> list[tuple[dict[str, Any], np.ndarray]]:
    """Run one method in a new process; returns for each series the measurements and the labels."""
    command = [sys.executable, "-m", "benchmarks.parcellation.methods", method, ",".join(map(str, numbers))]
    command += [] if halves else ["--whole"]
    printed = subprocess.run([*command, *map(str, paths)], check=True, capture_output=True, text=True).stdout
    return [
        (figures, np.load(_labels_beside(path)))
        for figures, path in zip(json.loads(printed.splitlines()[-1]), paths, strict=True)
    ]


def _labels_beside(path: Path) -> Path:
    return path.with_suffix(".labels.npy")


def clock() -> dict[str, float]:
    """Seconds of the clock, and processor seconds of this process and of processes that it has waited for."""
    times = os.times()
    cpu = times.user + times.system + times.children_user + times.children_system
    return {"wall_s": time.perf_counter(), "cpu_s": cpu}


def since(began: dict[str, float]) -> dict[str, float]:
    return {name: value - began[name] for name, value in clock().items()}


def small() -> Series:
    """A series for the first call of a method, which loads packages and compiles, also for more than 1,024 rows."""
    rng = np.random.default_rng(0)
    return Series(standardised(rng.standard_normal((1200, 40))), np.ones((12, 10, 10), bool), np.diag([3.0, 3, 3, 1]))


def main() -> None:
    method, listed, *paths = sys.argv[1:]
    warnings.simplefilter("ignore")
    function, arguments = METHODS[method]
    numbers = [int(each) for each in listed.split(",")]
    function(small(), 20, 0, **arguments)
    halves: tuple[int, ...] = (1, 2)
    if paths[0] == "--whole":
        halves, paths = (), paths[1:]
    print(json.dumps([_measured(Path(each), numbers, halves, function, arguments) for each in paths]))


def _measured(
    path: Path, numbers: list[int], halves: tuple[int, ...], function: Any, arguments: dict[str, Any]
) -> dict[str, Any]:
    series = Series.read(path)
    figures: dict[str, Any] = {"before_mb": bench.peak_bytes() / 1e6}
    whole, labels = series.part(0), []
    for k in numbers:
        began = clock()
        labels.append(function(whole, k, 0, **arguments))
        figures[str(k)] = since(began)
    figures["peak_mb"] = bench.peak_bytes() / 1e6
    with tempfile.TemporaryDirectory() as folder:
        shared = arguments | ({"memory": folder} if function is scikit_learn_ward else {})
        parts = [[function(series.part(half), k, half, **shared) for k in numbers] for half in halves]
    np.save(_labels_beside(path), np.array([labels, *parts], np.int32))
    return figures


if __name__ == "__main__":
    main()
