"""How long parcels take and how much memory: 20 numbers of parcels of a whole brain with evaluation, and large series.

Each item is one fit of ours on CPUs, in a process of its own, after a small fit that compiles. The whole brain is read
from a NIfTI file that nilearn has smoothed by 6 mm; opening the file counts. The large series are made: noise of each
volume, smoothed by 1.5 voxels, in the voxels of a ball. Making them does not count. The peak is of the whole process,
with the series that it holds. nilearn and scikit-learn on the same brain are in `benchmarks.parcellation.evaluation`.

    python -m benchmarks.parcellation.speed --fmri FOLDER --out benchmarks/results/parcellation/speed.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.parcellation.evaluation import LOAD, localizer
from benchmarks.parcellation.methods import Series, clock, since, small
from benchmarks.support import record as bench

SCAN = list(range(50, 1001, 50))
# Name: voxels (0 for the localizer), volumes, parameters of the fit, limits of seconds and MiB on two cores.
ITEMS: dict[str, tuple[int, int, dict[str, Any], tuple[int, int] | None]] = {
    "whole brain, 20 numbers, evaluation": (0, 0, {"n_parcels": SCAN}, (900, 2048)),
    "91,282 x 1,200": (91_282, 1_200, {"n_parcels": 200}, None),
    "236,280 x 100": (236_280, 100, {"n_parcels": 1_000}, None),
}


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--fmri", type=Path, required=True, help="folder of the BOLD series and their masks")
    parser.add_argument("--only", choices=list(ITEMS), action="append", help="some of the items")
    parser.add_argument("--child", nargs=2, help="used by the script itself: an item and a folder")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(options.child[0], Path(options.child[1]))))
        return
    out = bench.Record(__doc__, options.out, ("nilearn", "nibabel"))
    out.note("conditions", LOAD)
    with tempfile.TemporaryDirectory() as folder:
        for name in options.only or ITEMS:
            n, _, _, limits = ITEMS[name]
            if not n and not (Path(folder) / "bold.nii").exists():
                save(localizer(options.fmri, 6.0, None), Path(folder))
            command = [sys.executable, "-m", "benchmarks.parcellation.speed", "--fmri", ".", "--child", name, folder]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
            figures = json.loads(printed.splitlines()[-1])
            if limits:
                figures |= {"limit_s": limits[0], "limit_mib": limits[1]}
            out.add(name, **figures, load=[round(each, 1) for each in os.getloadavg()])


def save(series: Series, folder: Path) -> None:
    """Write the series and its mask as NIfTI files."""
    import nibabel

    volume = np.zeros((*series.mask.shape, series.rows.shape[1]), np.float32)
    volume[series.mask] = series.rows
    nibabel.save(nibabel.Nifti1Image(volume, series.affine), folder / "bold.nii")
    nibabel.save(nibabel.Nifti1Image(series.mask.astype(np.uint8), series.affine), folder / "mask.nii")


def measured(name: str, folder: Path) -> dict[str, Any]:
    """Fit once in this process."""
    from mgclust import Parcellation, open_dataset

    warnings.simplefilter("ignore")
    n, volumes, parameters, _ = ITEMS[name]
    warm, algorithm = small(), {"algorithm": parameters.get("algorithm", "ward")}
    model = Parcellation(20, evaluate=True, device="cpu", client=None, **algorithm)
    model.fit(warm.rows, neighbors=warm.edges(), coordinates=warm.coordinates())
    model = Parcellation(**parameters, device="cpu", client=None, random_state=0)
    if n:
        series = ball(n, volumes)
        given = {"neighbors": series.edges(), "coordinates": series.coordinates()}
        before, began = bench.peak_bytes(), clock()
        model.fit(series.rows, **given)
    else:
        before, began = bench.peak_bytes(), clock()
        model.fit(open_dataset(str(folder / "bold.nii"), mask=str(folder / "mask.nii")))
    figures = since(began) | {"before_mib": before / 2**20, "peak_mib": bench.peak_bytes() / 2**20}
    found = {"n_voxels": len(model.labels_), "n_clusters": model.n_clusters_, "homogeneity": model.homogeneity_}
    table = model.evaluation_ or {}
    kept = ("n_clusters", "held_out", "dcbc", "split_half_ari")
    return (
        figures | found | {"stages": dict(model.timings_), "scan": {key: table[key].tolist() for key in kept if table}}
    )


def ball(n: int, volumes: int) -> Series:
    """Return smooth noise in the n voxels of a grid that are nearest to its centre."""
    from scipy.ndimage import gaussian_filter

    side = int(np.ceil((6 * n / np.pi) ** (1 / 3))) + 3
    axis = (np.arange(side) - side / 2 + 0.1) ** 2
    distance = axis[:, None, None] + axis[:, None] + axis
    mask = np.zeros(side**3, bool)
    mask[np.argsort(distance, axis=None, kind="stable")[:n]] = True
    mask = mask.reshape(3 * [side])
    rng = np.random.default_rng(0)
    rows = np.empty((n, volumes), np.float32)
    for t in range(volumes):
        rows[:, t] = gaussian_filter(rng.standard_normal(mask.shape, np.float32), 1.5)[mask]
    return Series(rows, mask, np.diag([2.0, 2.0, 2.0, 1.0]))


if __name__ == "__main__":
    main()
