"""Fuzzy c-means on GPUs: the CPU's sums and labels, and the same bits on 1, 2, 4."""

from __future__ import annotations

import importlib.util
from itertools import pairwise

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from mgclust import FuzzyCMeans
from mgclust.kernels import load
from support.points import load_points

pytestmark = pytest.mark.gpu


@pytest.fixture
def gpu():
    return load("cuda")


@pytest.fixture
def cpu():
    return load("cpu")


def rows(n: int, d: int, dtype: str, seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng([seed, n, d])
    return (3 * rng.normal(size=(7, d))[rng.integers(7, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def sums(kernels, x, centers, first_row, block_rows, weights=None, splits=(), m=2.0):
    models, c, d = centers.shape
    first, last = first_row // block_rows, (first_row + len(x) - 1) // block_rows
    out = kernels.xp.zeros((last - first + 1, models, c * d + c + 3))
    x, centers = kernels.memory.to_device(x), kernels.memory.to_device(centers)
    weights = None if weights is None else kernels.memory.to_device(weights)
    edges = [0, *splits, len(x)]
    for start, stop in pairwise(edges):
        at = first_row + start
        kernels.fuzzy_c_means.fuzzy_sums(
            x[start:stop], centers, m=m, weights=None if weights is None else weights[start:stop], first_row=at,
            block_rows=block_rows, out=out[at // block_rows - first :],
        )  # fmt: skip
    return kernels.memory.to_host(out)


def assert_close(ours, theirs, c, d, dtype):
    tolerance = 3e-6 if dtype == "float32" else 1e-12
    sizes = np.abs(theirs[..., : c * d]).max()
    np.testing.assert_allclose(ours[..., : c * d], theirs[..., : c * d], rtol=tolerance, atol=tolerance * sizes)
    heaviest = theirs[..., c * d : c * d + c].max()
    np.testing.assert_allclose(ours[..., c * d :], theirs[..., c * d :], rtol=tolerance, atol=tolerance * heaviest)


SHAPES = [
    (1, 1), (2, 3), (2, 31), (2, 70), (2, 300), (2, 500), (3, 8), (5, 130), (5, 200), (5, 1000), (16, 8), (17, 9),
    (31, 64), (32, 16), (32, 100), (64, 64), (128, 31), (128, 300), (500, 8), (500, 16), (1000, 8), (1100, 20),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [2.0, 1.5, 4.0])
@pytest.mark.parametrize("d, c", SHAPES)
def test_sums_equal_the_cpus(gpu, cpu, d, c, m, dtype):
    n, first_row, block_rows = 5000, 2048, 3072
    x = rows(n, d, dtype)
    centers = np.stack([x[:c] + 0.01, x[n - c :]]).astype(dtype)
    weights = np.random.default_rng(1).random(n).astype(dtype)
    ours = sums(gpu, x, centers, first_row, block_rows, weights, m=m)
    assert np.isfinite(ours).all()
    assert_close(ours, sums(cpu, x, centers, first_row, block_rows, weights, m=m), c, d, dtype)
    # Bits depend neither on how rows come, nor on how often one asks.
    for splits in ((1024,), (1024, 4096)):
        np.testing.assert_array_equal(sums(gpu, x, centers, first_row, block_rows, weights, splits, m=m), ours)


@pytest.mark.parametrize("d, c", [(2, 5), (40, 12), (500, 8), (64, 500)])
@pytest.mark.parametrize("scale", [1.0, 1e-13, 1e13])
def test_zero_distances_are_shared_evenly(gpu, d, c, scale):
    centers = rows(c, d, "float32") * np.float32(scale)
    centers[1] = centers[0]
    x = np.repeat(centers, 300, axis=0)
    u = gpu.xp.empty((len(x), c), "float32")
    gpu.fuzzy_c_means.memberships(gpu.memory.to_device(x), gpu.memory.to_device(centers), m=2.0, out=u)
    u = gpu.memory.to_host(u)
    np.testing.assert_array_equal(u[:600, :2], 0.5)
    np.testing.assert_array_equal(u[600:].argmax(axis=1), np.repeat(np.arange(2, c), 300))
    # Up to 512 equal numbers one after the other in float32, which all round alike.
    tolerance = 512 * 2.0**-24
    for m in (2.0, 1.3):
        found = sums(gpu, x, centers[None], 0, 65536, m=m).sum(axis=0)[0]
        assert np.isfinite(found).all()
        np.testing.assert_allclose(found[c * d + 2 : c * d + c], 300.0, rtol=tolerance)
        np.testing.assert_allclose(found[c * d : c * d + 2], 600 * 0.5**m, rtol=tolerance)
        np.testing.assert_allclose(found[-3:], [0, 300 * (c - 1), 600 * np.log(2)], rtol=tolerance, atol=1e-3)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("m", [1.3, 2.0, 10.0])
@pytest.mark.parametrize("d, c", [(1, 2), (2, 1000), (32, 16), (300, 5)])
def test_memberships_equal_the_cpus(gpu, cpu, d, c, m, dtype):
    x = rows(3000, d, dtype)
    centers = x[100 : 100 + c].copy()
    ours, theirs = gpu.xp.empty((len(x), c), dtype), np.empty((len(x), c), dtype)
    gpu.fuzzy_c_means.memberships(gpu.memory.to_device(x), gpu.memory.to_device(centers), m=m, out=ours)
    cpu.fuzzy_c_means.memberships(x, centers, m=m, out=theirs)
    tolerance = 3e-6 if dtype == "float32" else 1e-12
    np.testing.assert_allclose(gpu.memory.to_host(ours), theirs, rtol=tolerance, atol=tolerance * 1e-3)


@pytest.mark.parametrize("name, c", [("overlap1", 15), ("clusters", 31), ("wide128", 16), ("pendigits", 10)])
@pytest.mark.parametrize("init", ["k-means++", "random", "canopy"])
def test_labels_equal_the_cpus(name, c, init):
    X = load_points(name)[0]
    options = {"init": init, "random_state": 3, "client": None, "max_iter": 1000, "dtype": "float64"}
    theirs, ours = (FuzzyCMeans(c, m=1.5, device=device, **options).fit(X) for device in ("cpu", "cuda"))
    assert ours.n_iter_ == theirs.n_iter_
    np.testing.assert_allclose(ours.cluster_centers_, theirs.cluster_centers_, rtol=1e-9, atol=1e-9 * np.abs(X).max())
    np.testing.assert_array_equal(ours.labels_, theirs.labels_)
    np.testing.assert_allclose(ours.memberships_, theirs.memberships_, rtol=0, atol=1e-9)
    single = FuzzyCMeans(c, m=1.5, device="cuda", **(options | {"dtype": "float32"})).fit(X)
    assert adjusted_rand_score(single.labels_, ours.labels_) > 0.99
    np.testing.assert_array_equal(single.predict(X), single.labels_)


def test_streamed_rows_give_the_same_bits():
    X = rows(400_000, 24, "float32")
    whole = FuzzyCMeans(6, m=2.0, device="cuda", client=None, random_state=0, max_iter=10, tol=0).fit(X)
    part = FuzzyCMeans(
        6, m=2.0, device="cuda", client=None, random_state=0, max_iter=10, tol=0, memory_limit="40 MiB"
    ).fit(X)
    np.testing.assert_array_equal(part.cluster_centers_, whole.cluster_centers_)
    np.testing.assert_array_equal(part.objective_history_, whole.objective_history_)
    np.testing.assert_array_equal(part.labels_, whole.labels_)


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

    cases = {
        "few": (rows(70_000, 3, "float32"), {"n_clusters": 5, "n_init": 3, "m": 2.0}),
        "random": (rows(9_000, 40, "float64"), {"n_clusters": 12, "m": 1.4, "init": "random", "metric": "correlation"}),
        "many": (rows(20_000, 24, "float32"), {"n_clusters": 600, "m": 2.0, "init": "canopy", "max_iter": 5}),
        "wide": (rows(100_000, 64, "float32"), {"n_clusters": 20, "m": 2.0, "dtype": "float64"}),
        "automatic m": (rows(20_000, 64, "float32"), {"n_clusters": 20}),
    }
    with (
        LocalCUDACluster(n_workers=size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        for name, (X, options) in cases.items():
            path = tmp_path / f"{name}.npy"
            np.save(path, X)
            weights = np.random.default_rng(2).random(len(X)) if name == "few" else None
            one = FuzzyCMeans(device="cuda", client=None, random_state=1, **options).fit(X, sample_weight=weights)
            ranks = FuzzyCMeans(client=client, n_workers=size, random_state=1, **options)
            many = ranks.fit(path, sample_weight=weights)
            np.testing.assert_array_equal(many.cluster_centers_, one.cluster_centers_, err_msg=name)
            np.testing.assert_array_equal(many.objective_history_, one.objective_history_)
            np.testing.assert_array_equal(many.labels_, one.labels_)
            np.testing.assert_array_equal(many.memberships_, one.memberships_)


@pytest.mark.parametrize("c", [4, 200])
def test_u_to_the_m_that_no_number_holds(cpu, gpu, c):
    x, m = rows(3000, 5, "float64"), 1000.0
    options = {
        "m": m,
        "log2_scale": float(np.ceil(m * np.log2(c))),
        "weights": None,
        "first_row": 0,
        "block_rows": 4096,
    }
    centers = x[None, :c] + 0.1
    ours, theirs = gpu.xp.zeros((1, 1, 6 * c + 3)), np.zeros((1, 1, 6 * c + 3))
    gpu.fuzzy_c_means.fuzzy_sums(gpu.memory.to_device(x), gpu.memory.to_device(centers), out=ours, **options)
    cpu.fuzzy_c_means.fuzzy_sums(x, centers, out=theirs, **options)
    assert np.isfinite(theirs).all()
    np.testing.assert_allclose(gpu.memory.to_host(ours), theirs, rtol=1e-9, atol=1e-12 * np.abs(theirs).max())


def _blobs(rng, n, d, c):
    x = 3 * rng.normal(size=(7, d))[rng.integers(7, size=n)] + rng.normal(size=(n, d))
    return x, x[:c] + 0.01


def _near(rng, n, d, c):
    """One centre in the midst of each of many clusters: a near pair a row."""
    means = 30 * rng.normal(size=(c, d))
    return means[rng.integers(c, size=n)] + rng.normal(size=(n, d)), means + 0.1 * rng.normal(size=(c, d))


def _crowded(rng, n, d, c):
    """Nearly all pairs are near, but for some rows."""
    x = 1e3 + rng.normal(size=(n, d))
    x[: n // 2] *= rng.choice([1.0, -1.0], (n // 2, 1))
    return x, 1e3 + rng.normal(size=(c, d))


def _on_centres(rng, n, d, c):
    centres = rng.normal(size=(c, d))
    centres[1] = centres[0]
    x = rng.normal(size=(n, d))
    x[::9] = centres[rng.integers(c, size=len(x[::9]))]
    x[5], centres[7] = 0, 0
    return x, centres


def _orders(rng, n, d, c):
    return rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-4, 4, (n, 1)), rng.normal(size=(c, d)) * 10.0 ** rng.uniform(
        -4, 4, (c, 1)
    )


def _idle(rng, n, d, c):
    """Centres far from all rows, whose weights are small beside all others."""
    centres = rng.normal(size=(c, d))
    centres[::3] += 1e4
    return rng.normal(size=(n, d)), centres


def _tiny(rng, n, d, c):
    return rng.normal(size=(n, d)) * 1e-12, rng.normal(size=(c, d)) * 1e-12


KINDS = (_blobs, _near, _crowded, _on_centres, _orders, _idle, _tiny)


@pytest.fixture
def products(gpu):
    from mgclust.kernels.fuzzy_c_means import gpu_products
    from mgclust.kernels.toolkit.gpu_compiler import is_hopper

    if not is_hopper():
        pytest.skip("needs compute capability 9.0")
    return gpu_products


def errors(found, exact, sizes):
    """Largest errors of weighted sums, of weights, of J and of the sum of u^2, each relative to what was added."""
    c, d = sizes.shape
    found, exact = found.sum(axis=0), exact.sum(axis=0)
    moments = np.abs(found - exact)[: c * d].reshape(c, d).max(axis=1) / sizes.max(axis=1)
    rest = np.abs(found - exact)[c * d :] / np.abs(exact[c * d :]).clip(1e-300)
    return moments.max(), rest[:c].max(), rest[c], rest[c + 1]


def sizes_of(xp, x, centres, weights):
    """Sums of g |x|."""
    x, v = xp.asarray(x, "float64"), xp.asarray(centres, "float64")
    s = (x**2).sum(axis=1)[:, None] + (v**2).sum(axis=1) - 2 * x @ v.T
    u = 1 / xp.maximum(s, 1e-60)
    u /= u.sum(axis=1, keepdims=True)
    w = 1.0 if weights is None else xp.asarray(weights)[:, None]
    return ((w * u**2).T @ abs(x)).get()


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("d, c", [(128, 1024), (128, 65), (64, 300), (33, 1000), (101, 130)])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_are_as_good_as_differences(gpu, products, monkeypatch, kind, d, c, weighted):
    rng = np.random.default_rng([d, c])
    n, first_row, block_rows = 7_500, 2048, 3072
    x, centres = (part.astype("float32") for part in kind(rng, n, d, c))
    centers = np.stack([centres, centres[::-1]])
    weights = 10.0 ** rng.uniform(-6, 0, n) if weighted else None
    given = [None if weights is None else weights.astype(dtype) for dtype in ("float32", "float64")]
    ours = sums(gpu, x, centers, first_row, block_rows, given[0])
    assert np.isfinite(ours).all()
    exact = sums(gpu, x.astype("float64"), centers.astype("float64"), first_row, block_rows, given[1])
    for splits in ((1024,), (1024, 4096)):
        np.testing.assert_array_equal(sums(gpu, x, centers, first_row, block_rows, given[0], splits), ours)
    with monkeypatch.context() as patch:
        patch.setattr(products, "supports", lambda *_: False)
        direct = sums(gpu, x, centers, first_row, block_rows, given[0])
    for model in range(2):
        sizes = sizes_of(gpu.xp, x, centers[model], given[1])
        found, theirs = (errors(each[:, model], exact[:, model], sizes) for each in (ours, direct))
        told = (" ".join(f"{error:.1e}" for error in each) for each in (found, theirs))
        print(kind.__name__, d, c, weighted, next(told), "by differences", next(told))
        # With weights of six orders one pair may be all of a sum: s is good to 2^-21 of |x|^2 + |v|^2, and u^2 has
        # twice its error. Errors of many pairs are smaller.
        least = 2 * 2**-21 / products.SHARE if weighted else 5e-6
        assert all(a <= max(3 * b, least) for a, b in zip(found, theirs, strict=True))
        entropy = np.abs(ours[:, model, -1] - exact[:, model, -1]).max() / np.abs(exact[:, model, -1]).max()
        assert entropy < 1e-5


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("d, c", [(32, 16), (17, 9), (31, 12), (32, 17), (20, 32), (40, 13), (64, 16)])
@pytest.mark.parametrize("weighted", [False, True])
def test_products_of_warps_are_as_good_as_differences(gpu, monkeypatch, kind, d, c, weighted):
    from mgclust.kernels.fuzzy_c_means import gpu_few_centers

    rng = np.random.default_rng([d, c])
    n, first_row, block_rows = 7_503, 2048, 3072
    x, centres = (part.astype("float32") for part in kind(rng, n, d, c))
    centers = np.stack([centres, centres[::-1]])
    weights = 10.0 ** rng.uniform(-6, 0, n) if weighted else None
    given = [None if weights is None else weights.astype(dtype) for dtype in ("float32", "float64")]
    assert gpu_few_centers.supports(x.dtype, d, c, 0)
    ours = sums(gpu, x, centers, first_row, block_rows, given[0])
    assert np.isfinite(ours).all()
    exact = sums(gpu, x.astype("float64"), centers.astype("float64"), first_row, block_rows, given[1])
    for splits in ((1024,), (1024, 4096)):
        np.testing.assert_array_equal(sums(gpu, x, centers, first_row, block_rows, given[0], splits), ours)
    with monkeypatch.context() as patch:
        patch.setattr(gpu_few_centers, "supports", lambda *_: False)
        direct = sums(gpu, x, centers, first_row, block_rows, given[0])
    for model in range(2):
        sizes = sizes_of(gpu.xp, x, centers[model], given[1])
        found, theirs = (errors(each[:, model], exact[:, model], sizes) for each in (ours, direct))
        print(kind.__name__, d, c, weighted, *(" ".join(f"{e:.1e}" for e in each) for each in (found, theirs)))
        # s is good to 2^-19, and u^2 has twice its error, where one pair is all of a sum.
        assert all(a <= max(3 * b, 2**-18) for a, b in zip(found, theirs, strict=True))
        entropy = np.abs(ours[:, model, -1] - exact[:, model, -1]).max() / np.abs(exact[:, model, -1]).max()
        assert entropy < 1e-5


def test_pieces_that_differences_sum_are_those_of_crowded_rows(gpu, products):
    rng = np.random.default_rng(0)
    x, centres = (part.astype("float32") for part in _crowded(rng, 8192, 128, 300))
    x[2048:5120] = -1e3 + rng.normal(size=(3072, 128))
    x[3500] = 1e25
    rows = products.PackedRows(gpu.memory.to_device(x), None)
    partial = gpu.xp.zeros((8, 300 * 129 + 3), "float32")
    marked = rows.sums(products.PackedCenters(gpu.memory.to_device(centres)), partial)()
    assert marked == [range(2), range(3, 4), range(5, 8)]


def test_rows_packed_a_few_at_a_time_give_the_same_bits(gpu, products, monkeypatch):
    from mgclust.kernels.fuzzy_c_means import gpu as fuzzy

    rng = np.random.default_rng(0)
    for kind in (_blobs, _crowded):
        x, centres = (part.astype("float32") for part in kind(rng, 9_000, 100, 200))
        whole = sums(gpu, x, centres[None], 1024, 4096)
        with monkeypatch.context() as patch:
            patch.setattr(fuzzy, "SCRATCH_BYTES", 1)
            patch.setattr(fuzzy, "TILE_NUMBERS", 1)
            np.testing.assert_array_equal(sums(gpu, x, centres[None], 1024, 4096), whole)


@pytest.mark.parametrize("d, c", [(2, 8), (32, 16)])
def test_launches_of_few_groups_give_the_same_bits(gpu, monkeypatch, d, c):
    # A grid's last dimension holds 65,535 groups, which 500 million rows of two features exceed.
    from mgclust.kernels.fuzzy_c_means import gpu as fuzzy

    x = rows(50_000, d, "float32")
    centres = x[:c][None]
    whole = sums(gpu, x, centres, 1024, 4096)
    monkeypatch.setattr(fuzzy, "MAX_PIECES", 9)
    np.testing.assert_array_equal(sums(gpu, x, centres, 1024, 4096), whole)
