"""Fixtures that every test folder shares; `tests/gpu` runs the same bodies with ``device="cuda"``."""

from __future__ import annotations

import importlib.util
import os
import signal

import numpy as np
import pytest


def gpu_missing() -> str:
    """Why tests on a GPU cannot run here; empty when they can."""
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'mgclust[gpu-cu13]')"
    import cupy

    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except cupy.cuda.runtime.CUDARuntimeError as error:
        return f"CuPy sees no GPU: {error}"
    return "" if count else "CuPy sees no GPU"


def pytest_configure(config):
    config.addinivalue_line("markers", "gpu: needs an NVIDIA GPU and CuPy; skipped where there is none")
    # What a shell starts in the background ignores Ctrl-C, and so would the tests of it and the programs that they run.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_modifyitems(items):
    if not any(item.get_closest_marker("gpu") for item in items):
        return
    reason = gpu_missing()
    if not reason:
        return
    if os.environ.get("MGCLUST_REQUIRE_GPU"):
        raise pytest.UsageError(f"MGCLUST_REQUIRE_GPU is set and {reason}")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request) -> str:
    """Where an estimator runs: in this process, on the CPU or on the first GPU."""
    return request.param


@pytest.fixture
def xp(device):
    """The array module that belongs to `device`."""
    if device == "cpu":
        return np
    import cupy

    return cupy


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20140627)
