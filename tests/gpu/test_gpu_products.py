"""Products of split halves (tensor cores) against direct differences: the same decisions on data made to part them."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load

pytestmark = pytest.mark.gpu

ROWS = 5003  # no multiple of a tile


@pytest.fixture(scope="module")
def gpu():
    return load("cuda")


@pytest.fixture(autouse=True)
def on_hopper(gpu, monkeypatch):
    from mgclust.kernels.pairs.products import gpu_products
    from mgclust.kernels.toolkit.gpu_compiler import is_hopper

    if not is_hopper():
        pytest.skip("needs compute capability 9.0")
    monkeypatch.setattr(gpu_products, "FEWEST_MULTIPLICATIONS", 1)


def _blobs(rng, d):
    return rng.normal(size=(ROWS, d)) + 3 * rng.integers(0, 4, (ROWS, 1))


def _far_clusters(rng, d):
    return rng.normal(size=(ROWS, d)) + 1e4 * rng.integers(-1, 2, (ROWS, 1))


def _near_duplicates(rng, d):
    return np.repeat(rng.normal(size=(-(-ROWS // 7), d)), 7, axis=0)[:ROWS] + 1e-6 * rng.normal(size=(ROWS, d))


def _duplicates(rng, d):
    return rng.integers(0, 2, (ROWS, 1)) * rng.integers(-2, 3, (1, d)) + rng.integers(0, 3, (ROWS, d)) * (
        rng.random((ROWS, d)) < 2 / d
    )


def _ten_orders(rng, d):
    return rng.normal(size=(ROWS, d)) * 10.0 ** rng.uniform(-5, 5, (ROWS, 1))


def _one_feature(rng, d):
    X = rng.normal(size=(ROWS, d))
    X[:, 3] *= 1e6
    return X


def _all_equal(rng, d):
    return np.full((ROWS, d), 0.3)


def _huge(rng, d):
    return 1e15 * _blobs(rng, d)


def _tiny(rng, d):
    return 1e-14 * _blobs(rng, d)


KINDS = [_blobs, _far_clusters, _near_duplicates, _duplicates, _ten_orders, _one_feature, _all_equal, _huge, _tiny]


@pytest.fixture(params=KINDS, ids=lambda kind: kind.__name__[1:])
def kind(request):
    return request.param


@pytest.fixture(params=[17, 64, 100, 513])
def x(request, kind, gpu):
    """Rows about their mean, as every pass gets them, on the device."""
    X = kind(np.random.default_rng(request.param), request.param)
    return gpu.memory.to_device((X - X.mean(axis=0)).astype("float32"))


def both(monkeypatch, run):
    """What `run` returns with products, and without."""
    from mgclust.kernels.pairs.products import gpu_products

    products = run()
    with monkeypatch.context() as patch:
        patch.setattr(gpu_products, "is_hopper", lambda: False)
        return products, run()


def quantile(gpu, x, share):
    s = gpu.pairs.reduced_distances(x[:300], x, norm="l2")
    return float(np.quantile(gpu.memory.to_host(s), share))


@pytest.mark.parametrize("diagonal", [True, False])
def test_histogram(gpu, x, monkeypatch, diagonal):
    bits = [int(np.float32(quantile(gpu, x, share)).view("int32")) for share in (0.02, 0.025)]
    shift = max(0, (bits[1] - bits[0]).bit_length() - 10)

    def run():
        out = gpu.xp.zeros(1025, dtype="int64")
        y = x if diagonal else x[1000:]
        gpu.pairs.pair_histogram(x, y, norm="l2", diagonal=diagonal, low=bits[0], shift=shift, out=out)
        return gpu.memory.to_host(out)

    products, direct = both(monkeypatch, run)
    np.testing.assert_array_equal(products, direct)
    assert direct.sum() > 0


def test_count(gpu, x, monkeypatch):
    threshold = quantile(gpu, x, 0.05)

    def run():
        out = gpu.xp.zeros(len(x), dtype="int64")
        gpu.pairs.count_within(x, x, norm="l2", threshold=threshold, out=out)
        return gpu.memory.to_host(out)

    products, direct = both(monkeypatch, run)
    np.testing.assert_array_equal(products, direct)


@pytest.mark.parametrize("share", [0.0005, 0.05])
def test_border(gpu, x, monkeypatch, share):
    threshold = quantile(gpu, x, share)
    labels = gpu.memory.to_device(np.random.default_rng(4).integers(0, 3, len(x)).cumsum().astype("int32") // 2000)

    def run():
        out = gpu.xp.zeros(len(x), dtype="uint8")
        gpu.pairs.border(x, x, labels, labels, norm="l2", threshold=threshold, out=out)
        return gpu.memory.to_host(out)

    products, direct = both(monkeypatch, run)
    np.testing.assert_array_equal(products, direct)


@pytest.mark.parametrize("columns", [slice(None), slice(500, 4500)])
def test_nearest_higher(gpu, x, monkeypatch, columns):
    order = gpu.memory.to_device(np.random.default_rng(3).permutation(len(x)).astype("int32"))

    def run():
        best = gpu.xp.full(len(x), np.inf, dtype="float32")
        index = gpu.xp.full(len(x), -1, dtype="int64")
        figures = {"y_start": 7, "best": best, "best_index": index}
        gpu.pairs.nearest_higher(x, x[columns], order, order[columns], norm="l2", **figures)
        gpu.pairs.nearest_higher(x, x[:1500], order, order[:1500], norm="l2", **figures | {"y_start": 10_000})
        return gpu.memory.to_host(best), gpu.memory.to_host(index)

    products, direct = both(monkeypatch, run)
    np.testing.assert_array_equal(products[0], direct[0])
    np.testing.assert_array_equal(products[1], direct[1])


@pytest.mark.parametrize("k", [1, 16, 100])
def test_nearest_rows(gpu, x, k):
    """Against sorting all distances; equal ones by their number."""
    xp, n = gpu.xp, len(x)
    near, index = xp.full((n, k), np.inf, dtype="float32"), xp.full((n, k), -1, dtype="int64")
    for start in (0, 3072):  # columns in two calls
        y = x[start : 3072 if start == 0 else n]
        gpu.pairs.nearest_rows(
            x, y, norm="l2", y_start=start, near=near, near_index=index, rows=xp.arange(n, dtype="int64")
        )
    some = np.random.default_rng(1).choice(n, 200, replace=False)
    s = gpu.memory.to_host(gpu.pairs.reduced_distances(x[some], x, norm="l2"))
    s[np.arange(200), some] = np.inf
    wanted = np.lexsort((np.broadcast_to(np.arange(n), s.shape), s), axis=1)[:, :k]
    np.testing.assert_array_equal(gpu.memory.to_host(index)[some], wanted)
    np.testing.assert_array_equal(gpu.memory.to_host(near)[some], np.take_along_axis(s, wanted, axis=1))


@pytest.mark.parametrize("d", [17, 64, 100, 513])
@pytest.mark.parametrize("condition", [1, 2, 8])
def test_gaussian_sums(gpu, d, condition):
    """Against float64, at the largest |x|^2 / dc^2 that products are used for."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(ROWS, d)) + 0.5 * rng.integers(0, 3, (ROWS, 1))
    X = (X - X.mean(axis=0)).astype("float32")
    dc2 = float((X.astype("float64") ** 2).sum(axis=1).max() / condition)
    x, rows = gpu.memory.to_device(X), gpu.xp.arange(ROWS, dtype="int64")
    out = gpu.xp.zeros(ROWS, dtype="float64")
    options = {"norm": "l2-dot", "scale": 1 / dc2, "power": 1}
    gpu.pairs.gaussian_sum(x, x, out=out, rows=rows, y_start=0, **options)
    wide = X.astype("float64")
    s = (wide**2).sum(axis=1)[:, None] + (wide**2).sum(axis=1) - 2 * wide @ wide.T
    wanted = np.exp(-s / dc2)
    np.fill_diagonal(wanted, 0)
    # The sum of squares is rounded to float32: at the worst condition no pair's exponent is better than 2e-6.
    np.testing.assert_allclose(gpu.memory.to_host(out), wanted.sum(axis=1), rtol=1e-6 if condition < 8 else 4e-6)

    # The same bits wherever rows lie, and however the columns come.
    parts = gpu.xp.zeros(2000, dtype="float64")
    for start in (0, 2048, 4096):
        y = x[start : start + 2048]
        gpu.pairs.gaussian_sum(x[777:2777], y, out=parts, rows=rows[777:2777], y_start=start, **options)
    np.testing.assert_array_equal(gpu.memory.to_host(parts), gpu.memory.to_host(out)[777:2777])
    # Equal rows, equal bits.
    twice = gpu.xp.concatenate([x[:50], x[:50]])
    both_halves = gpu.xp.zeros(100, dtype="float64")
    gpu.pairs.gaussian_sum(twice, x, out=both_halves, rows=gpu.xp.full(100, -1, dtype="int64"), y_start=0, **options)
    halves = gpu.memory.to_host(both_halves)
    np.testing.assert_array_equal(halves[:50], halves[50:])


def test_lists_that_are_too_short(gpu, monkeypatch):
    """Narrower pieces; direct differences where that does not help."""
    from mgclust.kernels.pairs.products import gpu_products

    X = _blobs(np.random.default_rng(1), 40)
    x = gpu.memory.to_device((X - X.mean(axis=0)).astype("float32"))
    threshold = quantile(gpu, x, 0.05)
    found = []
    for room in (gpu_products.LIST_PAIRS, 20_000, 1):
        monkeypatch.setattr(gpu_products, "LIST_PAIRS", room)
        out = gpu.xp.zeros(len(x), dtype="int64")
        gpu.pairs.count_within(x, x, norm="l2", threshold=threshold, out=out)
        found.append(gpu.memory.to_host(out))
    np.testing.assert_array_equal(found[0], found[1])
    np.testing.assert_array_equal(found[0], found[2])


def test_pieces_of_many_rows(gpu, monkeypatch):
    """Rows and columns that are packed in several pieces."""
    from mgclust.kernels.pairs.products import gpu_products

    X = _blobs(np.random.default_rng(2), 70)
    x = gpu.memory.to_device((X - X.mean(axis=0)).astype("float32"))
    low = int(np.float32(quantile(gpu, x, 0.02)).view("int32"))
    order = gpu.memory.to_device(np.random.default_rng(3).permutation(len(x)).astype("int32"))

    def run():
        histogram = gpu.xp.zeros(1025, dtype="int64")
        gpu.pairs.pair_histogram(x, x, norm="l2", diagonal=True, low=low, shift=10, out=histogram)
        best, index = gpu.xp.full(len(x), np.inf, dtype="float32"), gpu.xp.full(len(x), -1, dtype="int64")
        gpu.pairs.nearest_higher(x, x, order, order, norm="l2", y_start=0, best=best, best_index=index)
        return [gpu.memory.to_host(each) for each in (histogram, best, index)]

    whole = run()
    monkeypatch.setattr(gpu_products, "PACKED_BYTES", 1)
    for one, other in zip(whole, run(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_rows_without_a_number(gpu, monkeypatch):
    x = gpu.xp.ones((3000, 20), dtype="float32")
    x[5, 3] = np.inf

    def run():
        out = gpu.xp.zeros(len(x), dtype="int64")
        gpu.pairs.count_within(x, x, norm="l2", threshold=1.0, out=out)
        return gpu.memory.to_host(out)

    products, direct = both(monkeypatch, run)
    np.testing.assert_array_equal(products, direct)


@pytest.mark.parametrize("clustered", [True, False])
def test_cluster_sums(gpu, x, clustered):
    """About the means of four clusters, against float64; the same bits however rows and columns come."""
    if x.shape[1] == 513:  # whose sums would be less accurate
        assert gpu.label_sums.near_share(x, n=1 << 20, norm="l2", root=True, labelings=1, clusters=4) == 0
        return
    X, n, clusters = gpu.memory.to_host(x).astype("float64"), len(x), 4
    rng = np.random.default_rng(1)
    to_some = ((X[:, None] - X[rng.choice(n, clusters, replace=False)]) ** 2).sum(axis=2)
    labels = (to_some.argmin(axis=1) if clustered else rng.integers(clusters, size=n)).astype("int32")
    members = [labels == c for c in range(clusters)]
    means = np.stack([X[own].mean(axis=0) if own.any() else X[0] for own in members])
    spread = np.array([((X[own] - means[c]) ** 2).sum() / max(own.sum(), 1) for c, own in enumerate(members)])
    longest = n * 2 * np.abs(X).max() * x.shape[1] ** 0.5
    scale = float(2.0 ** np.floor(60 - np.log2(longest))) if longest else 1.0
    about = gpu.memory.to_device(means), gpu.memory.to_device(spread)
    on_gpu = gpu.memory.to_device(labels)[None]
    options = {"norm": "l2", "root": True, "scale": scale, "about": about}

    out = gpu.xp.full((n, clusters), 2, dtype="int64")
    gpu.label_sums.cluster_sums(x, x, on_gpu, y_start=0, out=out, **options)
    some = rng.choice(n, 100, replace=False)
    d = np.stack([np.sqrt(((X[row] - X) ** 2).sum(axis=1)) for row in some])
    wanted = np.stack([d[:, own].sum(axis=1) for own in members], axis=1)
    found = (gpu.memory.to_host(out)[some] - 2) / scale
    np.testing.assert_allclose(found, wanted, rtol=1e-6, atol=2 * n / scale)

    pieces = gpu.xp.full((n, clusters), 2, dtype="int64")
    for rows in (slice(0, 1700), slice(1700, n)):
        for first in range(0, n, 2048):
            columns = slice(first, min(first + 2048, n))
            few = gpu.xp.ascontiguousarray(on_gpu[:, columns])
            gpu.label_sums.cluster_sums(x[rows], x[columns], few, y_start=first, out=pieces[rows], **options)
    np.testing.assert_array_equal(gpu.memory.to_host(pieces), gpu.memory.to_host(out))

    twice, sums = gpu.xp.concatenate([x[:75], x[:75]]), gpu.xp.zeros((150, clusters), dtype="int64")
    gpu.label_sums.cluster_sums(twice, x, on_gpu, y_start=0, out=sums, **options)
    np.testing.assert_array_equal(gpu.memory.to_host(sums)[:75], gpu.memory.to_host(sums)[75:])
    np.testing.assert_array_equal(gpu.memory.to_host(sums)[:75] + 2, gpu.memory.to_host(out)[:75])


def test_cluster_sums_of_many_rows_and_a_single_one(gpu, monkeypatch):
    """Rows and columns that are packed in several pieces; clusters of one row, and of none in a call."""
    from mgclust.kernels.pairs.products import gpu_products

    X = _blobs(np.random.default_rng(4), 70)
    x = gpu.memory.to_device((X - X.mean(axis=0)).astype("float32"))
    X, labels = gpu.memory.to_host(x).astype("float64"), np.full(ROWS, 3, dtype="int32")
    labels[17], labels[:4000:5] = 1, 0
    means = np.stack([X[labels == c].mean(axis=0) if (labels == c).any() else X[0] for c in range(4)])
    spread = np.array([((X[labels == c] - means[c]) ** 2).sum() / max((labels == c).sum(), 1) for c in range(4)])
    options = {"norm": "l2", "root": True, "scale": 2.0**30, "y_start": 0}
    found = []
    for about in (None, (gpu.memory.to_device(means), gpu.memory.to_device(spread))):
        for bytes_at_once in (gpu_products.PACKED_BYTES, 1):
            monkeypatch.setattr(gpu_products, "PACKED_BYTES", bytes_at_once)
            out = gpu.xp.zeros((ROWS, 4), dtype="int64")
            gpu.label_sums.cluster_sums(x, x, gpu.memory.to_device(labels)[None], out=out, about=about, **options)
            found.append(gpu.memory.to_host(out))
    np.testing.assert_array_equal(found[2], found[3])
    np.testing.assert_allclose(found[2], found[0], rtol=1e-6, atol=2**12)
    assert (found[2][:, 2] == 0).all()
    assert found[2][17, 1] == 0


@pytest.mark.parametrize("labelings", [1, 2])
def test_silhouettes(gpu, monkeypatch, labelings):
    """Products where the sample finds few doubtful pairs, and direct differences where rows have many equals."""
    from mgclust.data import open_dataset
    from mgclust.engine.dask.cluster import connect
    from mgclust.engine.spmd import RunSpec, run
    from mgclust.kernels.label_sums import gpu as label_sums

    monkeypatch.setattr(label_sums, "FEWEST_ROWS", 1)
    monkeypatch.setattr(label_sums, "FEWEST_MEMBERS", 1)
    centred, used = label_sums._centred_sums, []
    monkeypatch.setattr(label_sums, "_centred_sums", lambda *args: used.append(1) or centred(*args))
    rng = np.random.default_rng(5)
    equals = rng.integers(0, 2, (ROWS, 1)) * np.ones((1, 64))
    several = [rng.integers(0, 3, ROWS).astype("int32") for _ in range(labelings)]
    for X, expected in ((_blobs(rng, 64), True), (equals, False)):
        source, spec = open_dataset(X.astype("float32")), RunSpec(_scored, {"labelings": several})
        used.clear()
        with connect(None, "cuda") as cluster:
            products = run(spec, source, cluster).value
        assert bool(used) == expected
        with monkeypatch.context() as patch, connect(None, "cuda") as cluster:
            patch.setattr(label_sums, "FEWEST_ROWS", 1 << 40)
            direct = run(spec, source, cluster).value
        np.testing.assert_allclose(products, direct, rtol=0, atol=2e-6)


def _scored(context, labelings):
    from mgclust.algorithms.common.preparation import prepare_rows
    from mgclust.algorithms.silhouette.ranks import score_labelings
    from mgclust.kernels.pairs.metrics import METRICS

    prepare_rows(context, METRICS["euclidean"])
    return [s.samples for s in score_labelings(context, METRICS["euclidean"], labelings, keep_samples=True)]
