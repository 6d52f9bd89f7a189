"""Tests of collectives between GPUs, without GPUs: ranks are threads, arrays are in host memory, and NCCL copies bytes.

If an address is not a multiple of 16, NCCL copies bytes one by one. So the addresses of long transfers must be
multiples of 16.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from mgclust.engine import transport

NAME = "mgclust.engine.transport.cuda"


class DeviceArray(np.ndarray):
    """Array whose address has the same name as in CuPy."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def copy(self, order="C"):
        return there(self)


def empty(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    room = np.empty(size + 512, np.uint8)
    start = -room.ctypes.data % 512
    return room[start : start + size].view(dtype).reshape(shape).view(DeviceArray)


def there(array):
    out = empty(array.shape, array.dtype)
    out[...] = array
    return out


@pytest.fixture
def cuda(monkeypatch):
    """Import the module of collectives between GPUs with a stand-in for CuPy."""
    nccl = ModuleType("cupy.cuda.nccl")
    nccl.__getattr__ = lambda name: name
    cupy, gpu = ModuleType("cupy"), ModuleType("cupy.cuda")
    cupy.cuda, gpu.nccl, gpu.get_current_stream = gpu, nccl, lambda: SimpleNamespace(ptr=0)
    cupy.empty, cupy.empty_like = empty, lambda array: empty(array.shape, array.dtype)
    cupy.zeros = lambda shape, dtype: there(np.zeros(shape, dtype))
    cupy.ascontiguousarray = lambda array: array if array.flags.c_contiguous else there(array)
    cupy.concatenate = lambda arrays, axis: there(np.concatenate(arrays, axis=axis))
    for module in (cupy, gpu, nccl):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.delitem(sys.modules, NAME, raising=False)
    monkeypatch.setattr(transport, "cuda", None, raising=False)  # so that the attribute is restored after the test
    module = importlib.import_module(NAME)
    on_host = SimpleNamespace(**{**vars(np), "ndarray": type("HostArray", (), {})})
    monkeypatch.setattr(module, "np", on_host)
    monkeypatch.setattr(module, "_mark", lambda _: None)
    yield module
    sys.modules.pop(NAME, None)


class Transfers:
    """Records the calls of NCCL on all ranks, and the addresses of long transfers that are not multiples of 16."""

    def __init__(self, size: int) -> None:
        self.barrier, self.calls, self.slots, self.unaligned = (
            threading.Barrier(size),
            [[] for _ in range(size)],
            {},
            [],
        )

    def all_values(self, rank, value):
        self.slots[rank] = value
        self.barrier.wait(30)
        values = [self.slots[each] for each in sorted(self.slots)]
        self.barrier.wait(30)
        return values

    def copy(self, source: int, target: int, size: int) -> None:
        if size >= 16:
            self.unaligned += [address for address in (source, target) if address % 16]
        ctypes.memmove(target, source, size)

    def run(self, rank: int) -> None:
        """Do those transfers of a group of calls that this rank receives."""
        calls = self.all_values(rank, self.calls[rank])
        broadcasts = [[call for call in each if call[0] == "bcast"] for each in calls]
        assert len({tuple((size, root) for _, _, size, _, root, _ in each) for each in broadcasts}) == 1
        for index, (_, target, size, _, root, _) in enumerate(broadcasts[rank]):
            if root != rank:
                self.copy(broadcasts[root][index][1], target, size)
        for name, target, size, _, peer, _ in calls[rank]:
            if name == "recv":
                (source,) = (call for call in calls[peer] if call[0] == "send" and call[4] == rank)
                assert source[2] == size
                self.copy(source[1], target, size)
        self.barrier.wait(30)
        self.calls[rank] = []

    def gather(self, rank: int, source: int, target: int, size: int) -> None:
        for other, start in enumerate(self.all_values(rank, source)):
            self.copy(start, target + other * size, size)
        self.barrier.wait(30)


def comm_of(cuda, rank: int, size: int, transfers: Transfers):
    comm = object.__new__(cuda.NcclComm)
    comm.rank, comm.size, comm._enter, comm._wait = rank, size, lambda _: None, lambda *_: None
    comm._host = SimpleNamespace(all_gather=lambda array: np.concatenate(transfers.all_values(rank, array)))

    def call(name, *arguments):
        if name == "allGather":
            transfers.gather(rank, *arguments[:3])
        else:
            transfers.calls[rank].append((name, *arguments))

    @contextlib.contextmanager
    def together():
        yield
        transfers.run(rank)

    comm._call, comm._together = call, together
    return comm


@pytest.mark.parametrize("size", [2, 3, 4])
@pytest.mark.parametrize("seed", range(4))
def test_long_transfers_have_aligned_addresses(size, seed, cuda):
    rng = np.random.default_rng(seed)
    lengths, rows = rng.integers(0, 60, (size, size)), rng.integers(0, 9, size)
    bounds = [0, *sorted(rng.integers(0, 300, size - 1).tolist()), 300]
    transfers = Transfers(size)

    def work(rank):
        comm = comm_of(cuda, rank, size, transfers)
        for kind in (np.uint8, np.int32, np.int64):
            whole = rng_of(kind).integers(0, 100, 300).astype(kind)
            array, own = there(np.zeros(300, kind)), slice(bounds[rank], bounds[rank + 1])
            array[own] = whole[own]
            comm.queue_gather(array, bounds)
            np.testing.assert_array_equal(array, whole)
            parts = [there(np.full(lengths[rank, peer] + 1, 10 * rank + peer, kind))[1:] for peer in range(size)]
            expected = [np.full(lengths[peer, rank], 10 * peer + rank, kind) for peer in range(size)]
            np.testing.assert_array_equal(comm.exchange(parts), np.concatenate(expected))
        gathered = comm.all_gather(there(np.full((rows[rank], 3), rank, np.float32)))
        np.testing.assert_array_equal(gathered, np.repeat(np.arange(size), rows)[:, None] * np.ones(3))

    with ThreadPoolExecutor(size) as pool:
        list(pool.map(work, range(size)))
    assert not transfers.unaligned


def rng_of(kind) -> np.random.Generator:
    return np.random.default_rng(np.dtype(kind).itemsize)
