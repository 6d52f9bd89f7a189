"""The same bits on 1, 2, 3 and 4 CPU ranks, with rows in memory or streamed from outside it."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from mgclust import DensityPeaks
from mgclust.algorithms import base
from mgclust.algorithms.common.weights import on_host
from mgclust.base.errors import InsufficientMemoryError
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.memory import Residency
from oracles.density_peaks import density
from support import rank_jobs
from support.points import load_points

pytestmark = pytest.mark.xdist_group("workers")

ATTRIBUTES = ("rho_", "delta_", "nearest_higher_", "labels_", "cluster_centers_indices_", "halo_")

CASES = {
    # name: (rows, parameters); blocks hold 1,024 rows, so 5,000 make five of them and 700 leave ranks without any
    "2-D grid": ("overlap1", {"algorithm": "grid"}),
    "2-D brute": ("overlap1", {"algorithm": "brute"}),
    "cutoff": ("overlap2", {"density": "cutoff", "algorithm": "brute"}),
    "nearest rows": ((4500, 20), {"density": "knn", "k": 5}),
    "nearest rows, grid": ("overlap2", {"density": "knn", "algorithm": "grid"}),
    "significant peaks": (
        "overlap1",
        {"density": "knn", "k": "adaptive", "significance": 1.65, "n_clusters": None, "algorithm": "brute"},
    ),
    "significant peaks, k given": (
        (4500, 6),
        {"density": "knn", "k": 20, "significance": 0.5, "n_clusters": None},
    ),
    "significant peaks, ranks without rows": (
        (700, 3),
        {"density": "knn", "k": "adaptive", "significance": 0.5, "n_clusters": None},
    ),
    "double": ("overlap1", {"dtype": "float64", "algorithm": "brute"}),
    "3-D grid": ((5000, 3), {"algorithm": "grid"}),
    "cutoff grid": ("overlap2", {"density": "cutoff", "algorithm": "grid"}),
    "products": ((4500, 40), {}),
    "manhattan": ((3000, 6), {"metric": "manhattan"}),
    "cosine": ((3000, 20), {"metric": "cosine"}),
    "more than the dc sample": ((6000, 400), {}),
    "sampled dc": ((6000, 400), {"dc_method": "sample", "random_state": 3}),
    "dc of random pairs": ((3000, 6), {"dc_method": "sample", "sample_size": 5000, "random_state": 3}),
    "given dc": ((3000, 2), {"dc": 0.5}),
    "fewer blocks than ranks": ((700, 2), {}),
    "automatic centres": ("overlap1", {"n_clusters": None}),
    "chosen dc": ((4500, 20), {"n_clusters": None, "random_state": 1}),
    "chosen dc, grid": ((17000, 2), {"n_clusters": None, "algorithm": "grid", "halo": False}),
    "many equal rows": ("lattice", {"dc_fraction": 0.001, "n_clusters": None}),
}


def rows_of(case) -> np.ndarray:
    source = CASES[case][0]
    if source == "lattice":
        return np.random.default_rng(3).integers(0, 5, (3000, 4)).astype("float32")
    if isinstance(source, str):
        return load_points(source)[0]
    rng = np.random.default_rng(source)
    centers = 4 * rng.normal(size=(12, source[1]))
    return (rng.normal(size=source) + centers[rng.integers(0, 12, source[0])]).astype("float32")


@pytest.fixture
def fit_on(ranks, monkeypatch):
    """Fit on a number of ranks: what `connect` would open with so many workers."""

    def fit(size, X, **parameters):
        monkeypatch.setattr(base, "connect", lambda **_: ranks(size))
        options = {"n_clusters": 12, "halo": True, "device": "cpu", **parameters}
        return DensityPeaks(**options).fit(X)

    return fit


def bits(model) -> dict[str, str]:
    names = [*ATTRIBUTES, "k_", "log_density_", "log_density_error_", "significance_", "saddles_"]
    found = {name: getattr(model, name) for name in names}
    values = {name: np.ascontiguousarray(on_host(each)) for name, each in found.items() if each is not None}
    values["dc_"] = np.float64(-1.0 if model.dc_ is None else model.dc_)
    hashes = {name: hashlib.sha256(value.tobytes()).hexdigest()[:12] for name, value in values.items()}
    return {**hashes, "dc_choice_": json.dumps(model.dc_choice_)}


@pytest.mark.quick("automatic centres", "dc of random pairs", "significant peaks, ranks without rows")
@pytest.mark.parametrize("case", CASES)
def test_same_bits_on_any_number_of_ranks(case, fit_on):
    X, parameters = rows_of(case), CASES[case][1]
    alone = bits(fit_on(1, X, **parameters))
    for size in (2, 3, 4):
        assert bits(fit_on(size, X, **parameters)) == alone, f"on {size} ranks"


@pytest.mark.slow
@pytest.mark.parametrize("case", ["2-D brute", "cutoff", "products", "more than the dc sample", "dc of random pairs"])
def test_same_bits_when_rows_are_streamed(case, fit_on, monkeypatch):
    """One block of own rows at a time, as if they did not fit."""
    X, parameters = rows_of(case), CASES[case][1]
    resident = bits(fit_on(1, X, **parameters))
    monkeypatch.setattr(Residency, "resident", lambda self, rows: False)
    monkeypatch.setattr(Residency, "chunk_rows", property(lambda self: self.block_rows))
    assert bits(fit_on(1, X, **parameters)) == resident


@pytest.mark.slow
def test_same_bits_under_a_memory_limit(fit_on, tmp_path):
    """33 MB of rows on the first of two ranks, where all else leaves 10: read from the file, block by block."""
    X = np.random.default_rng(1).normal(size=(7000, 2000)).astype("float32")
    X[:2000] += 1
    options = {"dc": 63.0, "halo": False}
    free = bits(fit_on(1, X, **options))
    np.save(tmp_path / "rows.npy", X)
    assert bits(fit_on(2, tmp_path / "rows.npy", memory_limit=120_000_000, **options)) == free


def test_a_limit_that_cannot_be_kept_is_refused(fit_on):
    with pytest.raises(InsufficientMemoryError, match=r"needs .* is free\. What would fit"):
        fit_on(1, rows_of("2-D brute"), memory_limit=1_000_000)


def test_same_bits_from_arrays_files_and_chunks(fit_on, tmp_path):
    dask_array = pytest.importorskip("dask.array")
    X = rows_of("2-D brute")
    expected = bits(fit_on(1, X, algorithm="brute"))
    np.save(tmp_path / "rows.npy", X)
    np.savez(tmp_path / "rows.npz", X=X)
    np.savetxt(tmp_path / "rows.csv", X, delimiter=",", fmt="%.9g")
    for source in (tmp_path / "rows.npy", str(tmp_path / "rows.npz"), tmp_path / "rows.csv"):
        assert bits(fit_on(2, source, algorithm="brute")) == expected, source
    chunked = dask_array.from_array(X, chunks=(777, 2))
    assert bits(fit_on(3, chunked, algorithm="brute")) == expected


def test_client_parameter_reaches_the_workers(client):
    X = rows_of("2-D brute")
    there = DensityPeaks(n_clusters=12, device="cpu", client=client, n_workers=4, halo=True).fit(X)
    here = DensityPeaks(n_clusters=12, device="cpu", client=None, halo=True).fit(X)
    assert bits(there) == bits(here)


@pytest.mark.quick("900000")
@pytest.mark.parametrize("residency", [None, 900_000])
def test_each_pair_once_gives_the_same_bits_on_any_number_of_ranks(ranks, residency):
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(4500, 24)) + rng.integers(0, 3, (4500, 1))).astype("float32")
    X[4400:4490] = X[:90]
    X[4490:] *= 40  # far from all others: their densities are too low for whole units
    found = []
    for size in (1, 2, 3, 4):
        spec = spmd.RunSpec(
            rank_jobs.density_from_each_pair_once, {"dc": 4.0}, memory_limit=residency if size > 2 else None
        )
        with ranks(size) as cluster:
            found.append(spmd.run(spec, open_dataset(X), cluster).value)
    rho, exactness = found[0]
    assert exactness["rho_recomputed_rows"] == 10
    np.testing.assert_array_equal(rho[4400:4490], rho[:90])
    np.testing.assert_allclose(rho, density(X, 4.0), rtol=1e-6, atol=1e-300)
    for other, same in found[1:]:
        assert other.tobytes() == rho.tobytes()
        assert same == exactness


@pytest.mark.parametrize(("shape", "algorithm"), [((3000, 2), "grid"), ((3000, 5), "brute")])
def test_stated_error_of_rho_does_not_depend_on_ranks(ranks, shape, algorithm, monkeypatch):
    X = np.random.default_rng(7).normal(size=shape)
    X[:1100] = np.round(X[:1100])  # on three ranks, the first rounds none of its own
    stated = []
    for size in (1, 3):
        monkeypatch.setattr(base, "connect", lambda size=size, **_: ranks(size))
        model = DensityPeaks(5, dc=0.01, algorithm=algorithm, device="cpu").fit(X)
        stated.append(model.exactness_["rho_relative_error"])
    assert stated[0] == stated[1] > 1e-6
