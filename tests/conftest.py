"""Fixtures that every test folder shares; `tests/gpu` runs the same bodies with ``device="cuda"``."""

from __future__ import annotations

import contextlib
import fnmatch
import functools
import gc
import importlib
import importlib.util
import logging
import os
import re
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

# Tests of memory share their cases with a benchmark. The installed mgclust comes before the one of this tree.
sys.path.append(str(Path(__file__).parents[1]))

RANKS = 4

# How the reasons begin for which a test may be skipped where MGCLUST_STRICT_SKIPS is set, as in CI.
MAY_BE_SKIPPED = (
    # There is no GPU.
    "CuPy is not installed",
    "CuPy sees no GPU",
    "dask-cuda is not installed",
    # These cases do not exist: a correlation of two features; scikit-learn's check of a mode of SciPy that is off.
    "two features: every correlation is -1 or 1",
    "the correlation of two numbers is 1, -1 or undefined",
    "SCIPY_ARRAY_API is not set",
    # A container may forbid these, root or not.
    "network namespaces are not permitted here",
    "there is no Landlock",
    # MLflow's server needs many packages; its client, which mgclust uses, has few.
    "the package mlflow, which has the server, is not installed",
)


# Packages that tests import, and take long where Python has not compiled them yet.
PACKAGES = (
    "scipy.stats", "sklearn.utils.estimator_checks", "dask.array", "numba",
    "pandas", "dask.dataframe", "distributed", "matplotlib.pyplot", "polars",
    "sqlalchemy.orm", "fastapi", "schemathesis", "networkx", "hypothesis.strategies", "zarr", "igraph",
)  # fmt: skip

USE_ALL_METHODS = ("accel", "cli", "docs", "output")  # folders


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
    # One database for each process of the tests, which drop what is in it.
    url, worker = os.environ.get("MGCLUST_TEST_POSTGRES"), os.environ.get("PYTEST_XDIST_WORKER")
    if url and (worker or not getattr(config.option, "numprocesses", None)):
        # Not where workers are started: they inherit the environment, and each has a database of its own.
        os.environ["MGCLUST_TEST_POSTGRES"] = url.replace("{process}", worker or "main")
    if worker and config.getini("testpaths") and not config.option.file_or_dir:
        _import_packages(int(worker.removeprefix("gw")), int(os.environ["PYTEST_XDIST_WORKER_COUNT"]))
    # What a shell starts in the background ignores Ctrl-C, and so would the tests of it and the programs that they run.
    signal.signal(signal.SIGINT, signal.default_int_handler)


def _import_packages(worker, count):
    """Import what all tests need, each process another part first: they would compile the same at the same time."""
    first = len(PACKAGES) * worker // count
    for name in PACKAGES[first:] + PACKAGES[:first]:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give the files of one `xdist_group` to one process, which starts once what they share."""
    if config.option.dist != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class Scheduling(LoadFileScheduling):
        def _split_scope(self, nodeid):
            file = super()._split_scope(nodeid)
            return _group(config.rootpath / file) or file

    return Scheduling(config, log)


@functools.cache
def _group(path):
    """The group that a file names. It is read, as no marks reach the process that distributes tests."""
    found = re.search(r'\bpytest\.mark\.xdist_group\("(.*?)"\)', path.read_text())
    return found and found[1]


def _take_turns(items):
    """Order files so that those of one folder do not run at the same time: each process would compile their kernels.

    Dask workers and users of a service would each compile them as well, and so would files that use all methods: these
    come when most kernels are there.
    """
    places, seen = {}, Counter()
    for item in items:
        if item.path not in places:
            late = _group(item.path) in ("workers", "service") or item.path.parent.name in USE_ALL_METHODS
            places[item.path] = seen[item.path.parent] + 4 * late
            seen[item.path.parent] += 1
    items.sort(key=lambda item: places[item.path])


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_collection_modifyitems(config, items):
    _mark_slow_cases(config, items)
    done = yield  # pytest leaves out what is slow
    if os.environ.get("PYTEST_XDIST_WORKER"):
        _take_turns(items)
    _skip_gpu_tests(config, items)
    return done


def pytest_collection_finish():
    gc.freeze()  # what was imported and collected stays: no collection of garbage looks at it again


def _skip_gpu_tests(config, items):
    """Where there is no GPU, skip each test of one once for all its cases, of which there are thousands."""
    if not any(item.get_closest_marker("gpu") for item in items) or not (reason := gpu_missing()):
        return
    if os.environ.get("MGCLUST_REQUIRE_GPU"):
        raise pytest.UsageError(f"MGCLUST_REQUIRE_GPU is set and {reason}")
    cases = {}
    for item in items:
        if item.get_closest_marker("gpu"):
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for first, *others in cases.values():
        first.add_marker(pytest.mark.skip(reason=f"{reason}; {1 + len(others)} cases"))
    left_out = {item for _, *others in cases.values() for item in others}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


def _mark_slow_cases(config, items):
    """Of a parametrized test that is marked as quick, all cases are slow but those that the marker names."""
    unused = {}
    for item in items:
        if mark := item.get_closest_marker("quick"):
            patterns = unused.setdefault(item.nodeid.partition("[")[0], set(mark.args) or {"no case is named"})
            case = item.callspec.id if hasattr(item, "callspec") else ""
            fitting = {each for each in mark.args if fnmatch.fnmatchcase(case, each)}
            patterns -= fitting
            if not fitting:
                item.add_marker("slow")
    lost = {test: patterns for test, patterns in unused.items() if patterns}
    if lost and not any("::" in each for each in config.args):  # else not all cases were collected
        raise pytest.UsageError(f"quick tests that do not exist: {lost}")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport():
    return _without_silent_skip((yield))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_make_collect_report():
    return _without_silent_skip((yield))


def _without_silent_skip(report):
    """The report of a test or a module; where MGCLUST_STRICT_SKIPS is set, one that should have run has failed."""
    if os.environ.get("MGCLUST_STRICT_SKIPS") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not reason.startswith(MAY_BE_SKIPPED):
            report.outcome = "failed"
            report.longrepr = f"It is skipped, for a reason that MAY_BE_SKIPPED of tests/conftest.py lacks: {reason}"
    return report


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


@pytest.fixture(scope="session")
def dask_client():
    """A client of four CPU workers. Never the default client, so that client="auto" stays in-process."""
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    with (
        dask.config.set(
            {
                # What a cluster finds out about itself, from 2 to 100 times a second, takes a fifth of a core all the
                # time the tests run; nothing here reads it.
                "distributed.worker.profile.enabled": False,
                "distributed.admin.tick.interval": "1s",
                "distributed.admin.system-monitor.interval": "5s",
                "distributed.worker.memory.monitor-interval": "1s",
                # A killed worker may take longer than Dask's 15 seconds to be there again on a busy machine.
                "distributed.deploy.lost-worker-timeout": "120s",
            }
        ),
        distributed.LocalCluster(
            n_workers=RANKS,
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        ) as cluster,
        distributed.Client(cluster, set_as_default=False) as client,
    ):
        yield client


@pytest.fixture
def client(dask_client):
    """`dask_client` with all its workers there, also after a test that killed some.

    A worker is there once its nanny knows, too: one that is killed between its call to the scheduler and its nanny's
    notice of it would not be started again. Dask gives up a worker that has not come back within 15 seconds, as may
    happen on a busy machine; `scale` starts another one in its place.
    """
    from distributed.core import Status

    end = time.monotonic() + 60
    dask_client.cluster.scale(RANKS)
    dask_client.wait_for_workers(RANKS, timeout=60)
    workers = dask_client.cluster.workers
    while len(workers) < RANKS or not all(nanny.process.status == Status.running for nanny in workers.values()):
        assert time.monotonic() < end, "a nanny does not hear of its worker"
        time.sleep(0.02)
    return dask_client


@pytest.fixture
def ranks(request):
    """A function that opens the cluster of ``size`` CPU ranks: 1 is in-process, more are Dask workers."""
    from mgclust.engine.dask.cluster import connect

    def open_ranks(size: int):
        if size == 1:
            return connect(None, "cpu")
        return connect(request.getfixturevalue("client"), "cpu", n_workers=size)

    return open_ranks
