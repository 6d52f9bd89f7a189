"""Runs to interrupt and to resume, on CPUs and on GPUs, and what of them must be the same as undisturbed."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from pathlib import Path

import numpy as np
import pytest
from scipy.sparse import issparse
from sklearn.datasets import make_moons

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, Canopy, DensityPeaks, FuzzyCMeans
from mgclust.algorithms import base
from mgclust.base.errors import RunCancelled
from mgclust.data import open_dataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.checkpoint_files import Writer
from support.points import load_points


def groups(sizes, d, spread, seed) -> np.ndarray:
    """Groups of these sizes around random centres, rows in random order."""
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    return (spread * rng.normal(size=(len(sizes), d))[y] + rng.normal(size=(len(y), d))).astype("float32")


def unlike(n, seed) -> np.ndarray:
    """Similarities without any structure: messages oscillate."""
    return -np.random.default_rng(seed).random((n, n)).astype("float32")


def half_rings(n) -> np.ndarray:
    """Two half rings, found by the sparser rows between them."""
    return make_moons(n, noise=0.06, random_state=0)[0].astype("float32")


# Blocks hold 1,024 rows.
CASES = {
    # name: (estimator, rows, parameters, interrupted once there are so many checkpoints)
    "fuzzy c-means": (FuzzyCMeans, lambda: groups((900, 700, 600), 4, 3, 0), {"n_clusters": 5}, (1, 6)),
    "a range of clusters": (
        FuzzyCMeans,
        lambda: groups((900, 700, 600), 4, 3, 0),
        {"n_clusters_range": (2, 5), "criterion": "fuzzy_silhouette"},
        (1, 12),
    ),
    "covariances": (
        FuzzyCMeans,
        lambda: groups((900, 700, 600), 4, 3, 0),
        {"n_clusters_range": (2, 4), "covariance_type": "full", "n_init": 2},
        (1, 12),
    ),
    "restarts": (
        FuzzyCMeans,
        lambda: load_points("overlap3")[0][:2100],
        {"n_clusters": 4, "n_init": 3, "tol": 1e-3},
        (2, 12),
    ),
    "until memberships settle": (
        FuzzyCMeans,
        lambda: groups((900, 700, 600), 4, 3, 0),
        {"n_clusters": 5, "stop": "memberships"},
        (1, 6),
    ),
    "affinity": (AffinityPropagation, lambda: load_points("clusters")[0][:2100], {"damping": 0.9}, (1, 4)),
    "no convergence": (AffinityPropagation, lambda: unlike(150, 1), {"affinity": "precomputed"}, (2, 5)),
    # The best of the last 32 states is one of before the second interruption.
    "last states": (
        AffinityPropagation,
        lambda: unlike(150, 6),
        {"affinity": "precomputed", "max_iter": 60},
        (1, 3),
    ),
    "number of clusters": (
        AffinityPropagation,
        lambda: load_points("rings")[0],
        {"n_clusters": 40, "damping": 0.8},
        (2, 14),
    ),
    "scan": (AdaptiveAffinityPropagation, lambda: groups((600, 500), 2, 30, 1), {"max_iter": 400}, (2, 16)),
    "new noise": (
        AdaptiveAffinityPropagation,
        lambda: unlike(150, 0),
        {"affinity": "precomputed", "max_iter": 900, "min_cluster_size": 1, "random_state": 0},
        (5, 70),
    ),
    "own preferences": (
        AdaptiveAffinityPropagation,
        lambda: groups((600, 480, 20, 20), 4, 50, 2),
        {"preference": -np.linspace(10, 900, 1120), "profile": "paper"},
        (1, 2),
    ),
    "neighbours": (DensityPeaks, lambda: groups((1500, 900, 700), 6, 3, 0), {"n_clusters": 3, "halo": True}, (1, 2, 3)),
    "nearest rows": (
        DensityPeaks,
        lambda: groups((1500, 900, 700), 6, 3, 0),
        {"n_clusters": 3, "density": "knn"},
        (1, 2),
    ),
    "significant peaks": (
        DensityPeaks,
        lambda: groups((1500, 900, 700), 6, 3, 0),
        {"density": "knn", "k": "adaptive", "significance": 1.65},
        (1, 2),
    ),
    "cutoff": (DensityPeaks, lambda: load_points("overlap1")[0][:3100], {"density": "cutoff", "halo": True}, (1, 2, 3)),
    "grid": (
        DensityPeaks,
        lambda: load_points("overlap1")[0][:3100],
        {"algorithm": "grid", "dtype": "float64"},
        (2, 3),
    ),
    "separated clusters": (DensityPeaks, lambda: half_rings(1200), {}, (1, 2, 3)),
    "canopies": (
        Canopy,
        lambda: np.random.default_rng(0).normal(size=(30_000, 3)),
        {"t1": 0.2, "t2": 0.1, "order": "random"},
        (1, 3),
    ),
    "sampled dc": (
        DensityPeaks,
        lambda: groups((1500, 900, 700), 3, 3, 0),
        {"dc_method": "sample", "random_state": 3},
        (1, 2),
    ),
}
# What makes some of them cases: where they are when they are interrupted for the last time.
REACHED = {
    "a range of clusters": lambda control: len(control["numbers"]) > 0,
    "new noise": lambda control: control["messages"]["draws"] >= 1,
    "restarts": lambda control: {fit["stop_reason"] for fit in control["fits"]} == {"", "tol"},
    "number of clusters": lambda control: len(control["tried"]) > 1,
    "scan": lambda control: control["candidates"] and control["state"]["phase"] == 2,
}
UNTOLD = ("timings", "hardware", "versions")  # of a result: what may differ


def bits(result) -> dict[str, str]:
    """All results of a run, arrays as their hashes."""
    told = {name: json.dumps(value) for name, value in result.to_dict().items() if name not in (*UNTOLD, "created")}
    arrays = {"labels": result.labels, **result.arrays}
    for name in [name for name, array in arrays.items() if issparse(array)]:
        lists = arrays.pop(name)
        arrays |= {f"{name} {part}": getattr(lists, part) for part in ("indptr", "indices")}
    return told | {
        name: hashlib.sha256(np.ascontiguousarray(array).tobytes()).hexdigest()[:12] for name, array in arrays.items()
    }


def numbers(folder: Path) -> list[int]:
    """The checkpoints in a folder, which a run that ends removes."""
    names = []
    with contextlib.suppress(FileNotFoundError):
        names = os.listdir(folder)
    return sorted(int(name.removeprefix("checkpoint-")) for name in names if name[0] != ".")


def fit(case, cluster, device, monkeypatch, folder=None, stop_at=None):
    """Fit on a cluster, with checkpoints as often as can be until there are so many: there it stops.

    The result, and the stages that it went through.
    """
    estimator, make, parameters, _ = CASES[case]
    stages = []

    def on_progress(event):
        stages.append(event["stage"])
        assert "warning" not in event
        if stop_at is not None and max(numbers(folder), default=0) >= stop_at:
            raise RunCancelled("enough")

    monkeypatch.setattr("mgclust.engine.context.EMIT_EVERY", 0.0)
    # Small runs would be over before the disk has written much.
    monkeypatch.setattr(Writer, "done", lambda self: bool(self.files()))
    monkeypatch.setattr(base, "connect", lambda **_: cluster)
    checkpoint = None if folder is None else CheckpointConfig(folder, 60.0 if stop_at is None else 0.0, 1.0)
    model = estimator(device=device, **({"random_state": 5} | parameters))
    return model.fit_dataset(open_dataset(make()), on_progress, checkpoint=checkpoint), stages


def go_through(fit_on, case, first, last, folder):
    """Interrupt a run at each point of its case, first on some number of ranks, then on another; then let it end."""
    for leg, stop_at in enumerate(CASES[case][3]):
        with pytest.raises(RunCancelled):
            fit_on(case, last if leg else first, folder, stop_at)
        assert stop_at <= max(numbers(folder)) and len(numbers(folder)) <= 2
    control = json.loads((folder / f"checkpoint-{max(numbers(folder))}" / "control.json").read_text())
    assert REACHED.get(case, bool)(control)
    result, stages = fit_on(case, last, folder)
    assert "resume" in stages
    return result
