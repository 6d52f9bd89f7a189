"""Nearest rows of few features as a GPU lists and selects them, run on the CPU (`support.cuda_on_cpu`)."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels import load
from support import cuda_on_cpu

cpu = load("cpu")


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    if cuda_on_cpu.compiler() is None:
        pytest.skip("there is no C++ compiler")
    with cuda_on_cpu.gpu_modules(tmp_path_factory.mktemp("kernels"), "pairs.gpu_nearest_rows") as modules:
        yield modules[0]


def rows(kind: str, n: int, d: int) -> np.ndarray:
    rng = np.random.default_rng([n, d])
    if kind == "lattice":
        return rng.integers(0, 3, (n, d)).astype("float32")
    x = rng.normal(size=(n, d)).astype("float32")
    if kind == "overflow":
        x[::50] *= np.float32(1e25)
    return x


@pytest.mark.quick("1-400-3-lattice-l2")
@pytest.mark.parametrize("norm", ["l2", "l1"])
@pytest.mark.parametrize("kind", ["normal", "lattice", "overflow"])
@pytest.mark.parametrize(("count", "n", "d"), [(1, 400, 3), (9, 700, 8), (40, 600, 1)])
def test_the_nearest_rows_are_those_of_the_cpu(count, n, d, kind, norm, gpu, monkeypatch):
    """Pieces of rows, columns in two calls, each row leaving out itself."""
    monkeypatch.setattr(gpu, "free_memory", lambda: 1 << 30)
    monkeypatch.setattr(gpu, "SCRATCH_BYTES", 1)
    monkeypatch.setattr(gpu, "FEWEST_ROWS", 150)
    monkeypatch.setattr(gpu, "FEW_SPARE", 0)  # so that lists are too short where many are at one distance
    x, own = rows(kind, n, d), np.arange(n)
    found, wanted = (
        {"near": np.full((n, count), np.inf, "float32"), "near_index": np.full((n, count), -1)} for _ in range(2)
    )
    sorted_rows = []

    def sort_rows(part, y, **given):
        sorted_rows.append(len(part))
        cpu.pairs.nearest_rows(np.ascontiguousarray(part), y, **given)

    monkeypatch.setattr(gpu, "sort_rows", sort_rows)
    half = n // 2
    with np.errstate(over="ignore"):
        for start, stop in ((0, half), (half, n)):
            y = x[start:stop].copy()
            assert gpu.supports_few(x.dtype, d, len(y), count) == (len(y) >= 4 * (count + 1))
            search = gpu.nearest_of_few if gpu.supports_few(x.dtype, d, len(y), count) else cpu.pairs.nearest_rows
            search(x, y, norm=norm, y_start=start, rows=own, **found)
        cpu.pairs.nearest_rows(x, x, norm=norm, y_start=0, rows=own, **wanted)
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array, err_msg=name)
    if kind == "lattice" and d <= 3:
        assert sorted_rows
