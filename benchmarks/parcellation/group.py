"""Parcels of a group of subjects: how near they and the individual parcels are to known parcels, time and memory.

The subjects are made. The known parcels of the group are the voxels of a ball that are nearest to each of K centres. A
smooth random field of steps, of the stated length in voxels (root mean square), shifts the borders of each subject. A
voxel's series is the signal of its parcel, and noise that is smoothed by one voxel, with the stated standard deviation
compared with the signal. All signals and noises of a subject are independent of the other subjects'.

Each item is one fit on CPUs in a process of its own, after a small fit that compiles. It reads NIfTI files, and this
counts. The peak is of the whole process. `estimate_mib` is the memory that the check before the fit counts for rank 0,
without its rows. "alone" is the mean over three subjects that are parcelled without the group.

    python -m benchmarks.parcellation.group --out benchmarks/results/parcellation/group.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from benchmarks.parcellation.evaluation import LOAD
from benchmarks.parcellation.methods import clock, since
from benchmarks.support import record as bench

LIMIT = {"limit_s": 600, "limit_mib": 8192}


class Case(NamedTuple):
    """Subjects, voxels, volumes of each subject, known parcels; steps of the borders, noise; parameters of the fit."""

    subjects: int
    voxels: int
    volumes: int
    k: int
    shift: float
    noise: float
    parameters: dict[str, Any]


SMALL = (10, 6_000, 156, 50)
CASES: dict[str, Case] = {
    "20 subjects": Case(20, 48_751, 156, 200, 1.0, 2.0, {}),
    "small": Case(*SMALL, 1.0, 2.0, {"evaluate": True}),
    "small, larger steps": Case(*SMALL, 2.0, 2.0, {"evaluate": True}),
    "small, no steps": Case(*SMALL, 0.0, 2.0, {"evaluate": True}),
    "small, more noise": Case(*SMALL, 1.0, 4.0, {"evaluate": True}),
}


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--only", choices=list(CASES), action="append", help="some of the items")
    parser.add_argument("--child", nargs=2, help="used by the script itself: an item and a folder")
    options = parser.parse_args()
    if options.child:
        print(json.dumps(measured(CASES[options.child[0]], Path(options.child[1]))))
        return
    out = bench.Record(__doc__, options.out, ("nibabel",))
    out.note("conditions", LOAD)
    for name in options.only or CASES:
        case = CASES[name]
        with tempfile.TemporaryDirectory() as folder:
            make(case, Path(folder))
            command = [sys.executable, "-m", "benchmarks.parcellation.group", "--child", name, folder]
            printed = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
        about = {key: value for key, value in case._asdict().items() if key != "parameters"}
        limits = LIMIT if case.subjects == 20 else {}
        load = [round(each, 1) for each in os.getloadavg()]
        out.add(name, **about, **case.parameters, **json.loads(printed.splitlines()[-1]), **limits, load=load)


def make(case: Case, folder: Path) -> None:
    """Write a NIfTI file for each subject, the mask, and the known parcels."""
    import nibabel
    from scipy.ndimage import gaussian_filter
    from scipy.spatial import cKDTree

    rng = np.random.default_rng(0)
    side = int(np.ceil((6 * case.voxels / np.pi) ** (1 / 3))) + 3
    axis = (np.arange(side) - side / 2 + 0.1) ** 2
    mask = np.zeros(side**3, bool)
    mask[np.argsort(axis[:, None, None] + axis[:, None] + axis, axis=None, kind="stable")[: case.voxels]] = True
    mask = mask.reshape(3 * [side])
    places = np.argwhere(mask).astype(np.float64)
    centres = places[rng.choice(len(places), case.k, replace=False)]
    for _ in range(10):  # Lloyd's steps, for parcels of similar size
        nearest = cKDTree(centres).query(places)[1]
        centres = np.array([places[nearest == k].mean(axis=0) for k in range(case.k)])

    def field(width: float) -> np.ndarray:
        values = gaussian_filter(rng.standard_normal(mask.shape, np.float32), width)[mask]
        return values / values.std()

    affine = np.diag([3.0, 3.0, 3.0, 1.0])
    truths = [cKDTree(centres).query(places)[1]]
    for subject in range(case.subjects):
        steps = np.stack([field(3.0) for _ in range(3)], axis=1) * case.shift / 3**0.5
        truths.append(cKDTree(centres).query(places + steps)[1])
        signals = rng.standard_normal((case.k, case.volumes))
        volume = np.zeros((*mask.shape, case.volumes), np.float32)
        for t in range(case.volumes):
            volume[mask, t] = signals[truths[-1], t] + case.noise * field(1.0)
        nibabel.save(nibabel.Nifti1Image(volume, affine), folder / f"sub-{subject + 1:02}_bold.nii")
    nibabel.save(nibabel.Nifti1Image(mask.astype(np.uint8), affine), folder / "mask.nii")
    np.save(folder / "truths.npy", np.stack(truths, axis=1))


def measured(case: Case, folder: Path) -> dict[str, Any]:
    """Fit once in this process."""
    import nibabel

    from mgclust import Parcellation, open_dataset
    from mgclust.algorithms.parcellation.evaluation.scores import agreement, n_pieces
    from mgclust.algorithms.parcellation.ranks import estimate
    from mgclust.data.neighbors import neighbors_of

    warnings.simplefilter("ignore")
    ones = np.ones((8, 8, 8), bool)
    noise = [np.random.default_rng(s).standard_normal((8, 8, 8, 40)).astype(np.float32) for s in (0, 1)]
    images = [nibabel.Nifti1Image(each, np.eye(4)) for each in noise]
    Parcellation(20, evaluate=True, group=True, device="cpu", client=None).fit(open_dataset(images, mask=ones))
    files = sorted(map(str, folder.glob("sub-*_bold.nii")))
    mask, truths = str(folder / "mask.nii"), np.load(folder / "truths.npy")
    before, began = bench.peak_bytes(), clock()
    dataset = open_dataset(files, mask=mask)
    given = {"n_parcels": case.k, **case.parameters}
    model = Parcellation(**given, group=True, device="cpu", client=None, random_state=0).fit(dataset)
    figures = since(began) | {"before_mib": before / 2**20, "peak_mib": bench.peak_bytes() / 2**20}
    graph = neighbors_of(dataset)
    evaluated = model.evaluation_ is not None
    sizes = {"entries": len(graph.columns), "evaluated": evaluated, "n_subjects": case.subjects}
    need = estimate(dataset.shape, 4, 1, 0, algorithm="ward", **sizes).needed
    individual, group = model.individual_labels_, model.labels_
    assert all((n_pieces(labels, *graph) == 1).all() for labels in (group, *individual.T))

    def mean(score: Callable[[int], float], count: int = case.subjects) -> float:
        return float(np.mean([score(s) for s in range(count)]))

    found = {
        "estimate_mib": need / 2**20,
        "n_clusters": model.n_clusters_,
        "group_with_truth_of_group": agreement(group, truths[:, 0]),
        "group_with_truth_of_subjects": mean(lambda s: agreement(group, truths[:, s + 1])),
        "individual_with_truth_of_subjects": mean(lambda s: agreement(individual[:, s], truths[:, s + 1])),
    }
    if case.voxels < 10_000:

        def alone(s: int) -> float:
            one = Parcellation(case.k, device="cpu", client=None).fit(open_dataset(files[s], mask=mask))
            return agreement(one.labels_, truths[:, s + 1])

        found["alone_with_truth_of_subjects"] = mean(alone, 3)
    scores = {f"mean_{name}": values.mean() for name, values in model.individual_scores_.items()}
    table = (
        {key: model.evaluation_[key].tolist() for key in ("n_clusters", "dcbc", "split_half_ari")} if evaluated else {}
    )
    return figures | found | scores | {"stages": dict(model.timings_), "scan": table}


if __name__ == "__main__":
    main()
