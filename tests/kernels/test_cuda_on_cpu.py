"""Kernels on the CPU fail where they leave their arrays; lists of affinity propagation at the edges of a warp."""

from __future__ import annotations

import numpy as np
import pytest

from mgclust.kernels.affinity_propagation.sparse_forms import cpu_lists
from support import cuda_on_cpu

pytestmark = pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="there is no C++ compiler")
SOURCE = """
extern "C" __global__ void add_one(int n, int bound, int shift, const int* x, int* y) {
    const int i = blockIdx.x * 32 + threadIdx.x;
    if (i < bound) y[i] = x[i + shift] + 1;
}
extern "C" __global__ void write_before(int* y) { y[-1] = 7; }
"""


def test_a_kernel_that_leaves_its_arrays_fails(tmp_path):
    (tmp_path / "out_of_range.cu").write_text(SOURCE)
    file = cuda_on_cpu.File(tmp_path, str(tmp_path / "out_of_range.cu"), "float32", "l2", {})
    add_one, x, y = file.get_function("add_one"), np.arange(50, dtype=np.int32), np.zeros(51, np.int32)

    def start(bound, shift, out):
        add_one((2,), (32,), (*map(np.int32, (50, bound, shift)), x, out))

    for bound, shift, out in ((51, 0, y), (50, 1, y), (50, 0, y[:49])):  # reads; reads; writes
        with pytest.raises(AssertionError, match="add_one reads or writes beyond the end"):
            start(bound, shift, out)
    with pytest.raises(AssertionError, match="before the start"):
        file.get_function("write_before")((1,), (32,), (y,))
    start(50, 0, y)
    assert np.array_equal(y, [*range(1, 51), 0])
    both = np.arange(64, dtype=np.int32)  # views of the same memory
    add_one((1,), (32,), (*map(np.int32, (50, 20, 0)), both[:40], both[20:]))
    assert np.array_equal(both[20:40], np.arange(20) + 1)


@pytest.fixture(scope="module")
def lists(tmp_path_factory):
    with cuda_on_cpu.gpu_modules(
        tmp_path_factory.mktemp("kernels"), "affinity_propagation.sparse_forms.gpu_listed"
    ) as modules:
        yield modules[0], cpu_lists


@pytest.mark.parametrize("n", [31, 32, 33, 64])
def test_lists_with_equal_similarities_and_of_whole_warps(n, lists):
    """Rows of a stride of whole warps; `low` is an element that several columns equal."""
    stride, rows = -(-n // 32) * 32, 9
    s = np.full((rows, stride), -np.inf, np.float32)
    s[:, :n] = -np.random.default_rng(n).integers(0, 4, (rows, n))
    low = np.array([*(-(np.arange(rows - 1) % 4)), -3], np.float32)
    near = s >= low[:, None]
    counts = near.sum(axis=1)
    lengths = -(-counts // 32) * 32
    begin = np.cumsum(lengths) - lengths
    for device in lists:
        found = np.full(rows, -1)
        device.count_similar(s, low, out=found)
        np.testing.assert_array_equal(found, counts)
        column, out = np.full(lengths.sum(), -1, np.int32), np.full(lengths.sum(), np.nan, np.float32)
        device.list_similar(s, low, begin, column=column, out=out)
        for i in range(rows):
            order = np.lexsort((np.arange(stride), -s[i]))[: counts[i]]
            listed = slice(begin[i], begin[i] + counts[i])
            np.testing.assert_array_equal(column[listed], order)
            np.testing.assert_array_equal(out[listed], s[i, order])


@pytest.mark.parametrize("size", [1, 31, 32, 33, 63, 64])
def test_the_first_flagged_column_of_a_list(size, lists):
    """What is behind a list may be flagged, and is no part of it."""

    class Messages:
        begin, length = np.array([0, 96, 192]), np.full(3, size)
        column, s = np.arange(288, dtype=np.int32), -np.arange(288, dtype=np.float32)

    flags = np.zeros(288, np.uint8)
    flags[size], flags[96 + size - 1], flags[192 : 192 + 96] = 1, 1, 1
    for device in lists:
        out, out_s = np.full(3, 5), np.full(3, np.nan, np.float32)
        device.nearest_flagged(Messages, flags, out=out, out_s=out_s)
        assert out.tolist() == [-1, 96 + size - 1, 192] and out_s[1:].tolist() == [-(96.0 + size - 1), -192.0]
