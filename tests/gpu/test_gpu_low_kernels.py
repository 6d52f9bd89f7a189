"""The near-linear kernels of one to three dimensions on the GPU, against the CPU's."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from mgclust.kernels.low_dimension.gaussian_grid import grid_convolve, plan_gaussian_grid
from support.gpu_cases import order_of, rows

cpu = load("cpu")

pytestmark = pytest.mark.gpu

N = 5003


@pytest.fixture(scope="module")
def gpu():
    from mgclust.kernels import load

    gpu = load("cuda")
    return gpu


@pytest.fixture(params=[1, 2, 3])
def d(request):
    return request.param


@pytest.fixture(params=["float32", "float64"])
def dtype(request):
    return request.param


@pytest.fixture(params=["lattice", "normal"])
def points(request, d, dtype):
    scale = {"lattice": 3, "normal": 1}[request.param]
    return rows(request.param, N, 1, d, dtype)[0] * np.dtype(dtype).type(scale)


@pytest.fixture
def trees(gpu, points):
    """Rows along a curve and their boxes, on both devices."""
    on_gpu = gpu.low_dimension.boxes_along_curve(gpu.memory.to_device(points))
    return cpu.low_dimension.boxes_along_curve(points), on_gpu


def call(kernels, name, *arguments, outputs, **options):
    """Run one kernel into fresh outputs; returns them in NumPy."""
    made = {key: kernels.memory.to_device(value.copy()) for key, value in outputs.items()}
    getattr(kernels.low_dimension, name)(*arguments, **options, **made)
    return [kernels.memory.to_host(value) for value in made.values()]


def by_row(gpu, trees, outputs, search):
    """Both devices' outputs over all positions, in two calls, put into row order.

    Equal rows may stand in another order in each tree. search(kernels, rows, boxes, start, stop, outputs) makes one.
    """
    answers = []
    for kernels, (rows_there, boxes) in zip((cpu, gpu), trees, strict=True):
        index = kernels.memory.to_host(boxes.index)
        whole = [np.empty_like(value, shape=N) for value in outputs.values()]
        for start, stop in ((0, 1777), (1777, N)):
            part = {key: value[start:stop] for key, value in outputs.items()}
            for out, found in zip(whole, search(kernels, rows_there, boxes, start, stop, part), strict=True):
                out[index[start:stop]] = found
        answers.append(whole)
    return answers


def test_both_devices_sort_rows_alike(gpu, trees, points):
    (ours, _), (theirs, boxes) = trees
    np.testing.assert_array_equal(gpu.memory.to_host(theirs), ours)
    np.testing.assert_array_equal(points[gpu.memory.to_host(boxes.index)[:N]], ours)


def test_nearest_higher(gpu, trees, dtype):
    order = order_of(N, 0)[0]
    outputs = {"best": np.empty(N, dtype), "best_index": np.empty(N, np.int64)}

    def search(kernels, rows, boxes, start, stop, part):
        given = rows, boxes, kernels.memory.to_device(order)
        return call(kernels, "nearest_higher_in_boxes", *given, outputs=part, start=start, stop=stop)

    ours, theirs = by_row(gpu, trees, outputs, search)
    np.testing.assert_array_equal(theirs[0], ours[0])
    np.testing.assert_array_equal(theirs[1], ours[1])


@pytest.mark.parametrize("parts", [1, 3])
def test_pair_histogram(gpu, trees, points, parts, dtype):
    kind = "i4" if dtype == "float32" else "i8"
    s = cpu.pairs.reduced_distances(points[:50], points, norm="l2")
    low, high = (int(np.array(np.quantile(s, q), dtype).view(kind)) for q in (0.1, 0.4))
    shift = max((high - low).bit_length() - 12, 0)
    expected = np.zeros((1 << 12) + 1, np.int64)
    options = {"low": low, "shift": shift}
    cpu.pairs.pair_histogram(points, points, norm="l2", diagonal=True, **options, out=expected)
    name, outputs = "pair_histogram_in_boxes", {"out": 0 * expected}
    total = sum(
        call(gpu, name, *trees[1], outputs=outputs, part=part, parts=parts, **options)[0] for part in range(parts)
    )
    assert np.abs(np.cumsum(total) - np.cumsum(expected)).max() <= 4
    ours = call(cpu, name, *trees[0], outputs=outputs, part=0, parts=1, **options)[0]
    np.testing.assert_array_equal(total, ours)


def test_count_within_and_border(gpu, trees, points):
    threshold = float(np.quantile(cpu.pairs.reduced_distances(points[:50], points, norm="l2"), 0.05))
    labels = np.random.default_rng(1).integers(0, 3, N).astype(np.int32)

    def count(kernels, rows, boxes, start, stop, part):
        return call(kernels, "count_in_boxes", rows[start:stop], boxes, outputs=part, threshold=threshold)

    def border(kernels, rows, boxes, start, stop, part):
        every = kernels.memory.to_device(labels)
        given = rows[start:stop], boxes, every[boxes.index[start:stop]], every
        return call(kernels, "border_in_boxes", *given, outputs=part, threshold=threshold)

    for search, dtype in ((count, np.int64), (border, np.uint8)):
        ours, theirs = by_row(gpu, trees, {"out": np.zeros(N, dtype)}, search)
        np.testing.assert_array_equal(theirs[0], ours[0], err_msg=search.__name__)


def test_gaussian_by_non_uniform_fft(gpu, points):
    s = cpu.pairs.reduced_distances(points[:50], points, norm="l2")
    scale = 1 / float(np.quantile(s, 0.02) + 1e-3)
    plan = plan_gaussian_grid(points.min(axis=0).tolist(), points.max(axis=0).tolist(), scale, N)
    x = gpu.memory.to_device(points)
    grid, rho = gpu.xp.zeros(plan.shape, np.int64), gpu.xp.empty(N)
    gpu.low_dimension.spread(x, plan, grid)
    ours = np.zeros(plan.shape, np.int64)
    cpu.low_dimension.spread(points, plan, ours)
    np.testing.assert_allclose(gpu.memory.to_host(grid), ours, rtol=0, atol=4 * N)  # one unit a row and cell at most
    gpu.low_dimension.interpolate(x, grid_convolve(grid, plan, gpu.xp), plan, rho)
    wide = points.astype("float64")
    exact = np.concatenate(
        [
            np.exp(-scale * ((wide[a : a + 500, None] - wide[None]) ** 2).sum(axis=2)).sum(axis=1)
            for a in range(0, N, 500)
        ]
    )
    np.testing.assert_allclose(gpu.memory.to_host(rho), exact, rtol=0, atol=plan.error_bound)
