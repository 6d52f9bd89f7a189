"""Runs on GPUs that are interrupted and resumed, on the same or another number of them: the same bits."""

from __future__ import annotations

import importlib.util

import numpy as np
import pytest

from mgclust import Communities
from mgclust.algorithms.fuzzy_c_means import run_spec
from mgclust.base.errors import RunCancelled
from mgclust.data import open_graph
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.dask.cluster import connect
from support.checkpoint_cases import CASES, bits, fit, go_through, numbers
from support.graphs import random_graph

pytestmark = [pytest.mark.gpu, pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")]


@pytest.fixture
def fit_on(monkeypatch):
    """Fit a case on one GPU in this process, or on the workers of a client."""

    def call(case, client, folder=None, stop_at=None):
        ranks = None if client is None else len(client.scheduler_info(n_workers=-1)["workers"])
        return fit(case, connect(client, "cuda", n_workers=ranks), "cuda", monkeypatch, folder, stop_at)

    return call


@pytest.mark.parametrize("case", CASES)
def test_same_bits(case, fit_on, tmp_path):
    assert bits(go_through(fit_on, case, None, None, tmp_path / "kept")) == bits(fit_on(case, None)[0])


def test_single_precision_of_fuzzy_c_means(fit_on, monkeypatch, tmp_path):
    monkeypatch.setattr(run_spec, "FEW_NUMBERS", 0)
    expected = bits(fit_on("fuzzy c-means", None)[0])
    assert bits(go_through(fit_on, "fuzzy c-means", None, None, tmp_path / "kept")) == expected


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("parameters", "stops"),
    [({}, (3, 9)), ({"objective": "cpm", "resolution": 0.1}, (2, 30)), ({"null": 1, "stability": 1}, (4,))],
)
def test_levels_of_communities(parameters, stops, tmp_path, monkeypatch):
    graph = open_graph((random_graph(4, 300, 900, "floats"), 300))
    folder, stages = tmp_path / "saved", []
    monkeypatch.setattr("mgclust.engine.context.EMIT_EVERY", 0.0)

    def fit_on(device, stop_at=None, checkpoint=None):
        def on_progress(event):
            stages.append(event["stage"])
            if stop_at is not None and max(numbers(folder), default=0) >= stop_at:
                raise RunCancelled("enough")

        model = Communities(device=device, client=None, random_state=5, **parameters)
        return model.fit_dataset(graph, on_progress, checkpoint=checkpoint)

    expected = fit_on("cpu")
    for number, stop_at in enumerate(stops):
        with pytest.raises(RunCancelled):
            fit_on(("cuda", "cpu")[number % 2], stop_at, CheckpointConfig(folder, 0.0, 1.0))
    stages.clear()
    result = fit_on("cuda", None, CheckpointConfig(folder, 60.0, 1.0))
    assert "resume" in stages
    for name, values in expected.arrays.items():
        np.testing.assert_array_equal(values, result.arrays[name], err_msg=name)


@pytest.mark.parametrize("size", [2, 4])
def test_from_one_gpu_to_several_and_back(size, fit_on, tmp_path):
    import cupy

    for package in ("distributed", "dask_cuda"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    if cupy.cuda.runtime.getDeviceCount() < size:
        pytest.skip(f"fewer than {size} GPUs here")
    from dask_cuda import LocalCUDACluster
    from distributed import Client

    def report_everything():
        from mgclust.engine import checkpoint_files, context

        context.EMIT_EVERY = 0.0
        checkpoint_files.Writer.done = lambda writer: bool(writer.files())

    with (
        LocalCUDACluster(n_workers=size, dashboard_address=None) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.run(report_everything)
        for case in ("fuzzy c-means", "affinity", "scan", "neighbours", "grid"):
            expected = bits(fit_on(case, None)[0])
            assert bits(go_through(fit_on, case, None, client, tmp_path / f"{case} to {size}")) == expected
            assert bits(go_through(fit_on, case, client, None, tmp_path / f"{case} from {size}")) == expected
