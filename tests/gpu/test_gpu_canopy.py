"""Canopies on GPUs: the CPU's centres and memberships, bit for bit, on 1, 2, 4."""

from __future__ import annotations

import importlib
import importlib.util

import numpy as np
import pytest

from mgclust import Canopy
from mgclust.kernels import load
from support.gpu_cases import rows
from support.points import load_points

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu():
    return load("cuda")


@pytest.fixture
def gpu_column_boxes(gpu):
    """What `gpu.pairs` and `gpu.canopy` use where it pays; CuPy is there."""
    return importlib.import_module("mgclust.kernels.pairs.boxes.gpu_column_boxes")


@pytest.fixture
def cpu():
    return load("cpu")


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("kind", ["lattice", "groups"])
@pytest.mark.parametrize("d", [1, 2, 6, 16, 17, 64, 300])
def test_kernels_equal_the_cpus(gpu, cpu, d, kind, norm, dtype):
    x, y = rows(kind, 4000, 3001, d, dtype)
    for size in (1, 63, 64, 65, 4000):
        s = cpu.pairs.reduced_distances(x[:1], x, norm=norm)
        for threshold in np.quantile(s, [0.001, 0.1, 0.9]).tolist():
            ours, theirs = gpu.xp.full(size, 7, "uint8"), np.full(size, 7, "uint8")
            gpu.canopy.first_independent(gpu.memory.to_device(x[:size]), norm=norm, threshold=threshold, out=ours)
            cpu.canopy.first_independent(x[:size], norm=norm, threshold=threshold, out=theirs)
            np.testing.assert_array_equal(gpu.memory.to_host(ours), theirs)
    threshold = float(np.quantile(cpu.pairs.reduced_distances(x[:50], y, norm=norm), 0.05))
    counts = np.zeros(len(x), np.int64)
    cpu.pairs.count_within(x, y, norm=norm, threshold=threshold, out=counts)
    starts, total = np.cumsum(counts) - counts, int(counts.sum())
    theirs = np.empty(total, np.int32)
    cpu.canopy.write_within(x, y, norm=norm, threshold=threshold, starts=starts, out=theirs)
    ours = gpu.xp.full(total, -1, "int32")
    on_gpu = gpu.memory.to_device(x), gpu.memory.to_device(y), gpu.memory.to_device(starts)
    gpu.canopy.write_within(on_gpu[0], on_gpu[1], norm=norm, threshold=threshold, starts=on_gpu[2], out=ours)
    np.testing.assert_array_equal(gpu.memory.to_host(ours), theirs)


def assert_same(model, other):
    np.testing.assert_array_equal(model.cluster_centers_indices_, other.cluster_centers_indices_)
    np.testing.assert_array_equal(model.labels_, other.labels_)
    np.testing.assert_array_equal(model.memberships_.indptr, other.memberships_.indptr)
    np.testing.assert_array_equal(model.memberships_.indices, other.memberships_.indices)
    assert model.n_steps_ == other.n_steps_


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("order", ["index", "random"])
@pytest.mark.parametrize("name", ["overlap1", "grid", "pendigits", "wide064"])
def test_equal_to_the_cpu(name, order, dtype):
    X = load_points(name)[0]
    for metric in ("euclidean", "manhattan"):
        options = {"order": order, "metric": metric, "dtype": dtype, "random_state": 5, "client": None}
        assert_same(*(Canopy(device=device, **options).fit(X) for device in ("cpu", "cuda")))


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

    rng = np.random.default_rng(0)
    cases = {
        "2-D": (rng.normal(size=(200_000, 2)), {"t1": 0.3, "t2": 0.2}),
        "line": (np.sort(rng.normal(size=(60_000, 1)), axis=0), {"t1": 0.001, "t2": 0.0005}),
        "6-D": (rng.normal(size=(30_000, 6)), {"t1": 1.0, "t2": 0.7, "order": "random"}),
        "40-D": (rng.normal(size=(20_000, 40)), {"t1": 8.5, "t2": 7.0, "metric": "euclidean"}),
    }
    with (
        LocalCUDACluster(n_workers=size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, (X, options) in cases.items():
            path = tmp_path / f"{name}.npy"
            np.save(path, X)
            one = Canopy(device="cuda", client=None, random_state=2, **options).fit(X)
            assert_same(one, Canopy(client=client, n_workers=size, random_state=2, **options).fit(path))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("kind", ["lattice", "groups"])
@pytest.mark.parametrize("d", [1, 2, 6, 8])
def test_boxes_find_what_all_pairs_do(gpu, gpu_column_boxes, cpu, d, kind, norm, dtype):
    x, y = rows(kind, 70_000, 40_001, d, dtype)
    on_gpu = gpu.memory.to_device(x), gpu.memory.to_device(y)
    threshold = float(np.quantile(cpu.pairs.reduced_distances(x[:50], y, norm=norm), 0.002)) or 1.0
    tree, n = gpu_column_boxes.build_boxes(on_gpu[1]), len(x)
    counts, theirs = gpu.xp.zeros(n, "int64"), np.zeros(n, np.int64)
    gpu_column_boxes.box_count(on_gpu[0], tree, norm, threshold, counts)
    cpu.pairs.count_within(x, y, norm=norm, threshold=threshold, out=theirs)
    np.testing.assert_array_equal(gpu.memory.to_host(counts), theirs)
    ours, lists = gpu.xp.full(theirs.sum(), -1, "int32"), np.empty(theirs.sum(), np.int32)
    starts = np.cumsum(theirs) - theirs
    gpu_column_boxes.box_write(on_gpu[0], tree, norm, threshold, gpu.memory.to_device(starts), ours)
    cpu.canopy.write_within(x, y, norm=norm, threshold=threshold, starts=starts, out=lists)
    np.testing.assert_array_equal(gpu.memory.to_host(ours), lists)
    best, index = gpu.xp.full(n, gpu.xp.inf, dtype), gpu.xp.full(n, -1, "int64")
    gpu_column_boxes.box_nearest(on_gpu[0], tree, norm, 0, best, index)
    best_there, index_there = np.full(n, np.inf, dtype), np.full(n, -1, np.int64)
    cpu.pairs.nearest_column(x, y, norm=norm, y_start=0, best=best_there, best_index=index_there)
    np.testing.assert_array_equal(gpu.memory.to_host(index), index_there)
    np.testing.assert_array_equal(gpu.memory.to_host(best), best_there)
    marked = gpu.xp.zeros(len(y), "uint8")
    gpu.canopy.mark_near(gpu.canopy.row_boxes(on_gpu[1]), on_gpu[0][:3000], norm=norm, threshold=threshold, out=marked)
    reached = np.zeros(len(y), np.int64)
    cpu.pairs.count_within(y, x[:3000], norm=norm, threshold=threshold, out=reached)
    np.testing.assert_array_equal(gpu.memory.to_host(marked), reached > 0)


def test_boxes_are_used_where_they_pay(gpu, gpu_column_boxes, monkeypatch):
    monkeypatch.setattr(gpu_column_boxes, "MIN_PAIRS", 1 << 20)
    x, y = (gpu.memory.to_device(each) for each in rows("groups", 50_000, 20_000, 3, "float64"))
    assert gpu_column_boxes.boxes_for(x, y, "l2", 1e-4) is not None
    assert gpu_column_boxes.boxes_for(x, y, "l2", 1e6) is None, "all columns are near"
    assert gpu_column_boxes.boxes_for(x[:10], y, "l2", 1e-4) is None, "few pairs"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("kind", ["lattice", "groups"])
@pytest.mark.parametrize("d", [2, 17])
def test_spanning_trees_are_those_of_the_cpu(gpu, cpu, d, kind, norm, dtype):
    x, _ = rows(kind, 9000, 1, d, dtype)
    starts, numbers = np.array([0, 1, 3, 260, 900, 4000, 9000]), np.random.default_rng(0).permutation(20_000)[:9000]
    s, other = np.empty(9000, dtype), np.empty(9000, np.int64)
    cpu.canopy.spanning_trees(x, numbers, starts, norm=norm, s=s, other=other)
    ours = gpu.xp.empty(9000, dtype), gpu.xp.empty(9000, "int64")
    on_gpu = gpu.memory.to_device(x), gpu.memory.to_device(numbers)
    gpu.canopy.spanning_trees(*on_gpu, starts, norm=norm, s=ours[0], other=ours[1])
    np.testing.assert_array_equal(gpu.memory.to_host(ours[0]), s)
    np.testing.assert_array_equal(gpu.memory.to_host(ours[1]), other)


def test_agglomeration_in_canopies_is_that_of_the_cpu():
    X = load_points("pendigits")[0]
    options = {"t1": 60.0, "t2": 40.0, "order": "random", "random_state": 1, "client": None}
    here, there = (Canopy(device=device, **options).agglomerate(X, n_clusters=4000) for device in ("cpu", "cuda"))
    for one, other in zip(here, there, strict=True):
        np.testing.assert_array_equal(one, other)
