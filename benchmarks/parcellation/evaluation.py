"""How good parcels are, by ours, nilearn and scikit-learn: pieces, homogeneity, boundaries, halves, and known parcels.

Every method gets the same rows, of mean 0 and standard deviation 1, and runs in a process of its own. The scores are
those of `mgclust.algorithms.parcellation.evaluation` for all methods. "held_out" and "dcbc" judge the parcels of one
half of the series by the other half, "homogeneity" and "silhouette" the parcels of the whole series by the whole
series, and "ari" is the adjusted Rand index of the parcels of the halves. Pieces are counted with 26 neighbours. The
processor seconds are of one fit of the whole series, after a small fit that loads packages and compiles; the peak is
of the whole process.

Series: the whole-brain localizer, prepared by nilearn (smoothed or not, detrended, standardised, on its own grid or
on one of 6 mm); the NIfTI-1 sample, whose voxels are taken as 4 x 4 x 6 mm because its header says 1; made
series with known parcels; six islands of the localizer's mask.

    python -m benchmarks.parcellation.evaluation --fmri FOLDER --out benchmarks/results/parcellation/evaluation.json
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parcellation.methods import METHODS, Series, run, standardised
from benchmarks.support import record as bench

LOCALIZER = "sub-01_task-oneback_run-1_bold.nii.gz", "sub-01_task-oneback_run-1_desc-brain_mask.nii.gz"
SAMPLE = "nifti-sample_filtered_func_data.nii.gz", "nifti-sample_mask.nii.gz"
NOISES = (1.0, 2.0, 4.0)
KNOWN = 60  # parcels of the made series
MAIN = tuple(name for name in METHODS if name != "scikit-learn Ward" and "equal components" not in name)
CASES: dict[str, tuple[tuple[int, ...], tuple[str, ...]]] = {
    "6 mm": ((50, 200), (*MAIN, "scikit-learn Ward")),
    "3 mm": ((200,), MAIN),
    "unsmoothed": ((200,), MAIN),
    "sample": ((200,), MAIN),
    "made": ((KNOWN,), MAIN),
    "islands": ((12,), MAIN),
}
LOAD = "Other programs ran on the machine: compare processor seconds, and not the seconds of the clock."
Named = tuple[str, Series, np.ndarray | None]  # name, series, and known parcels


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--fmri", type=Path, required=True, help="folder of the BOLD series and their masks")
    parser.add_argument("--only", choices=list(CASES), action="append", help="some of the items")
    parser.add_argument(
        "--numbers", type=lambda text: tuple(map(int, text.split(","))), help="other numbers of parcels"
    )
    parser.add_argument("--methods", type=lambda text: tuple(text.split(";")), help="methods, separated by semicolons")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out, ("nilearn", "nibabel"))
    out.note("conditions", LOAD)
    out.note("threads", {name: os.environ.get(name) for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")})
    for name in options.only or CASES:
        numbers, methods = CASES[name]
        measure(out, listed(name, options.fmri), options.numbers or numbers, options.methods or methods)
        out.note("load", [round(each, 1) for each in os.getloadavg()])


def listed(name: str, folder: Path) -> list[Named]:
    """Return the series of an item."""
    if name == "made":
        return [(f"made, noise {noise:g}", *made(noise)) for noise in NOISES]
    if name == "sample":
        return [("NIfTI-1 sample", sample(folder), None)]
    if name == "islands":
        return [("six islands", islands(localizer(folder, 6.0, 6.0)), None)]
    smoothing, edge = {"6 mm": (6.0, 6.0), "3 mm": (6.0, None), "unsmoothed": (None, None)}[name]
    return [(name, localizer(folder, smoothing, edge), None)]


def localizer(folder: Path, smoothing: float | None, edge: float | None) -> Series:
    """The whole brain, smoothed by so many mm, then on a grid of voxels with edges of so many mm."""
    import nibabel
    from nilearn.image import resample_img, smooth_img
    from nilearn.maskers import NiftiMasker

    mask = nibabel.load(folder / LOCALIZER[1])
    mask = nibabel.Nifti1Image((mask.get_fdata() > 0).astype(np.uint8), mask.affine)
    bold = smooth_img(nibabel.load(folder / LOCALIZER[0]), smoothing)
    if edge is not None:
        affine = mask.affine.copy()
        sizes = np.linalg.norm(affine[:3, :3], axis=0)
        affine[:3, :3] *= edge / sizes
        shape = np.ceil(np.array(mask.shape) * sizes / edge - 1e-3).astype(int)
        grid = {"target_affine": affine, "target_shape": tuple(shape.tolist())}
        options = grid | {"copy_header": True, "force_resample": True}
        mask, bold = resample_img(mask, interpolation="nearest", **options), resample_img(bold, **options)
    rows = NiftiMasker(mask, detrend=True, standardize="zscore_sample").fit_transform(bold).T
    return _varying(Series(standardised(rows), mask.get_fdata() > 0, mask.affine))


def sample(folder: Path) -> Series:
    import nibabel

    mask = nibabel.load(folder / SAMPLE[1]).get_fdata() > 0
    rows = nibabel.load(folder / SAMPLE[0]).get_fdata()[mask]
    return _varying(Series(_detrended(rows), mask, np.diag([4.0, 4.0, 6.0, 1.0])))


def made(noise: float) -> tuple[Series, np.ndarray]:
    from mgclust.datasets import make_bold

    bold = make_bold((24, 28, 22), KNOWN, 160, noise, 0)
    return Series(_detrended(bold.bold[bold.mask]), bold.mask, bold.affine), bold.truth[bold.mask]


def islands(series: Series) -> Series:
    """Six boxes of the mask, two in each of three slabs, with gaps of two voxels."""
    kept = np.zeros_like(series.mask)
    low, high = np.argwhere(series.mask).min(axis=0), np.argwhere(series.mask).max(axis=0) + 1
    x, y = ((low[axis] + high[axis]) // 2 for axis in (0, 1))
    third = (high[1] - low[1]) // 3
    for start, stop in (
        (low[1] + 2, low[1] + third),
        (y - third // 2 + 2, y + third // 2),
        (high[1] - third + 2, high[1]),
    ):
        for side in (slice(x - 9, x - 1), slice(x + 1, x + 9)):
            kept[side, start:stop, low[2] + 6 : low[2] + 12] = True
    kept &= series.mask
    return series._replace(rows=series.rows[kept[series.mask]], mask=kept)


def _detrended(rows: np.ndarray) -> np.ndarray:
    """Return standardised rows without their least-squares lines."""
    line = np.linspace(-1, 1, rows.shape[1])
    centred = rows - rows.mean(axis=1, keepdims=True, dtype=np.float64)
    return standardised(centred - np.outer(centred @ line / (line @ line), line))


def _varying(series: Series) -> Series:
    """Leave out constant voxels."""
    kept = series.rows.any(axis=1)
    mask = series.mask.copy()
    mask[series.mask] = kept
    return series._replace(rows=series.rows[kept], mask=mask)


def measure(out: bench.Record, series: list[Named], numbers: tuple[int, ...], methods: tuple[str, ...]) -> None:
    """Run the methods one after the other, and judge all their parcels of a series together."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / f"{i}.npz" for i in range(len(series))]
        for path, (_, each, _) in zip(paths, series, strict=True):
            np.savez(path, **each._asdict())
        runs = []
        for method in methods:
            runs.append(run(paths, method, numbers, halves=series[0][2] is None))
            print(f"{method}: {[figures for figures, _ in runs[-1]]}", flush=True)
    for s, (name, each, truth) in enumerate(series):
        scores = judged(each, np.concatenate([found[s][1] for found in runs], axis=1), truth)
        for m, method in enumerate(methods):
            for i, k in enumerate(numbers):
                figures = {key: values[m * len(numbers) + i] for key, values in scores.items()}
                measured = runs[m][s][0]
                figures |= measured[str(k)] | {key: measured[key] for key in ("before_mb", "peak_mb")}
                about = {"n_voxels": each.rows.shape[0], "n_timepoints": each.rows.shape[1], "k": k, "method": method}
                out.add(f"{name}, {k}, {method}", series=name, **about, **figures)


def judged(series: Series, labels: np.ndarray, truth: np.ndarray | None) -> dict[str, list[Any]]:
    """Return scores of each candidate; labels have the shape (3 or 1, n_candidates, n_voxels)."""
    from mgclust.algorithms.parcellation.evaluation import scores
    from mgclust.algorithms.parcellation.evaluation.boundaries import dcbc

    whole, *halves = (series.part(which).rows for which in range(3))
    graph, places = series.neighbors(), series.places
    sizes = [np.bincount(each) for each in labels[0]]
    found: dict[str, list[Any]] = {
        "parcels": [int((each > 0).sum()) for each in sizes],
        "pieces": [int(scores.n_pieces(each, *graph).sum()) for each in labels[0]],
        "smallest": [int(each[each > 0].min()) for each in sizes],
        "largest": [int(each.max()) for each in sizes],
        "homogeneity": [scores.homogeneity(whole, each) for each in labels[0]],
        "silhouette": scores.silhouettes(whole, labels[0].T).tolist(),
    }
    if truth is not None:
        found["ari_truth"] = [scores.agreement(each, truth) for each in labels[0]]
    if len(labels) == 1:
        return found
    both = ((labels[1], halves[1]), (labels[2], halves[0]))
    found["held_out"] = np.mean([[scores.homogeneity(rows, each) for each in of] for of, rows in both], axis=0).tolist()
    found["dcbc"] = np.mean([dcbc(rows, of.T, places) for of, rows in both], axis=0).tolist()
    found["ari"] = [scores.agreement(a, b) for a, b in zip(*labels[1:], strict=True)]
    return found


if __name__ == "__main__":
    main()
