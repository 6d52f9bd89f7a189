"""Affinity propagation, its adaptive scan and silhouettes on GPUs: the CPU's labels, and the same bits on 1, 2, 4."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score
from sklearn.metrics import silhouette_samples as sklearn_silhouettes

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, silhouette_samples
from mgclust.algorithms.affinity_propagation import estimator as affinity_propagation
from oracles.density_peaks import METRICS
from support.points import load_points

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def types_as_asked(monkeypatch):
    """Small data, too, are computed in the type that is asked for."""
    monkeypatch.setattr(affinity_propagation, "FEW_SIMILARITIES", 0)


def blobs(n: int, d: int, k: int, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return (4 * rng.normal(size=(k, d))[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype("float32")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("affinity", ["euclidean", "cosine", "correlation"])
@pytest.mark.parametrize("name, rows", [("overlap1", 2500), ("wide064", 1024), ("pendigits", 3000), ("wide1024", 1024)])
def test_labels_equal_the_cpus(name, rows, affinity, dtype):
    X = load_points(name)[0][:rows]
    if X.shape[1] == 2 and affinity != "euclidean":
        pytest.skip("two features have no correlation")
    options = {"damping": 0.9, "max_iter": 400, "affinity": affinity, "dtype": dtype, "client": None}
    ours, theirs = (AffinityPropagation(device=device, **options).fit(X) for device in ("cpu", "cuda"))
    assert theirs.converged_
    if dtype == "float64":
        assert theirs.n_iter_ == ours.n_iter_
        np.testing.assert_array_equal(theirs.cluster_centers_indices_, ours.cluster_centers_indices_)
        assert (theirs.labels_ != ours.labels_).mean() <= 0.001  # equally similar exemplars
    # In float32 members of a cluster may be equally good exemplars to rounding.
    assert len(theirs.cluster_centers_indices_) == len(ours.cluster_centers_indices_)
    assert adjusted_rand_score(theirs.labels_, ours.labels_) >= 0.998
    # By products, a float32 similarity is accurate to 1e-7 of the squared lengths; in tight clusters it is far smaller.
    squares = ((X - X.mean(axis=0)) ** 2).sum() if affinity == "euclidean" else len(X)
    assert theirs.net_similarity_ == pytest.approx(ours.net_similarity_, rel=1e-6, abs=1e-7 * float(squares))


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("name", ["overlap1", "pendigits", "wide128"])
def test_silhouettes_equal_the_cpus(name, dtype, metric):
    X, labels = load_points(name)
    if X.shape[1] == 2 and metric == "correlation":
        pytest.skip("two features have no correlation")
    ours, theirs = (
        silhouette_samples(X, labels, metric=metric, dtype=dtype, device=device, client=None)
        for device in ("cpu", "cuda")
    )
    tolerance = 1e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(theirs, ours, rtol=0, atol=tolerance)
    if metric in ("euclidean", "manhattan"):
        exact = sklearn_silhouettes(X.astype("float64"), labels, metric=metric)
        np.testing.assert_allclose(theirs, exact, rtol=0, atol=tolerance)


def assert_same_scan(model, other):
    assert model.n_iter_ == other.n_iter_
    assert model.log_ == other.log_
    assert list(model.scan_) == list(other.scan_)
    for name, column in model.scan_.items():
        np.testing.assert_array_equal(other.scan_[name], column, err_msg=name)
    for k in model.scan_["n_clusters"]:
        np.testing.assert_array_equal(other.labels_for(k), model.labels_for(k))


def test_adaptive_scan_finds_the_clusters():
    X = blobs(1500, 30, 12)
    model = AdaptiveAffinityPropagation(device="cuda", client=None).fit(X)
    cpu = AdaptiveAffinityPropagation(device="cpu", client=None).fit(X)
    assert model.converged_
    assert model.n_clusters_ == cpu.n_clusters_ == 12
    np.testing.assert_array_equal(model.labels_, cpu.labels_)


@pytest.mark.parametrize("size", [2, 4])
def test_same_bits_on_several_gpus(size, tmp_path):
    import cupy

    for package in ("distributed", "dask_cuda"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if cupy.cuda.runtime.getDeviceCount() < size:
        pytest.skip(f"fewer than {size} GPUs here")
    from dask_cuda import LocalCUDACluster
    from distributed import Client

    sets = {"2-D": blobs(5000, 2, 15), "40-D": blobs(6000, 40, 25), "precomputed": None}
    with (
        LocalCUDACluster(n_workers=size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, X in sets.items():
            options = {"affinity": "correlation"} if name == "40-D" else {}
            if X is None:
                rows = blobs(4200, 5, 9)
                X = -((rows[:, None] - rows[None]) ** 2).sum(-1)
                options = {"affinity": "precomputed"}
            path = tmp_path / f"{name}.npy"
            np.save(path, X)
            one = AdaptiveAffinityPropagation(device="cuda", client=None, **options).fit(X)
            assert one.converged_
            assert_same_scan(one, AdaptiveAffinityPropagation(client=client, n_workers=size, **options).fit(path))
            if name != "precomputed":
                for metric in ("euclidean", "correlation"):
                    if name == "2-D" and metric == "correlation":
                        continue
                    alone = silhouette_samples(X, one.labels_, metric=metric, device="cuda", client=None)
                    many = silhouette_samples(path, one.labels_, metric=metric, client=client)
                    np.testing.assert_array_equal(many, alone)
