"""Jobs of a service side by side on two GPUs: each has its own, and finds what one GPU alone finds."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

from mgclust import DensityPeaks, load_result
from support.service_process import Running

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(120)]
PARAMETERS = {"n_clusters": 5, "algorithm": "brute"}
CONTEXT_BYTES = 100 << 20  # less than CUDA takes on a GPU for any process


@pytest.fixture
def cupy():
    cupy = pytest.importorskip("cupy")
    pytest.importorskip("dask_cuda")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than 2 GPUs here")
    return cupy


@pytest.fixture
def service(tmp_path):
    visible = ",".join(os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")[:2])
    service = Running(tmp_path, settings={"cpu": "false"}, environment={"CUDA_VISIBLE_DEVICES": visible})
    yield service
    service.stop()


def test_jobs_on_gpus_of_their_own(cupy, service, tmp_path):
    rows = np.random.default_rng(0).normal(size=(400_000, 8)).astype("float32")
    np.save(tmp_path / "points.npy", rows)
    expected = DensityPeaks(client=None, device="cuda", **PARAMETERS).fit(rows).result_

    def free():
        bytes_ = []
        for number in range(2):
            with cupy.cuda.Device(number):
                bytes_.append(cupy.cuda.runtime.memGetInfo()[0])
        return np.array(bytes_)

    before, least = free(), None
    client = service.client()
    jobs = [
        client.submit("density-peaks", tmp_path / "points.npy", report=False, resources=resources, **PARAMETERS)
        for resources in (None, None, {"gpus": 2})
    ]
    while any(job.refresh().info["state"] in ("PENDING", "RUNNING") for job in jobs[:2]):
        least = free() if least is None else np.minimum(least, free())
        time.sleep(0.05)
    infos = [job.wait().info for job in jobs]
    assert [info["state"] for info in infos] == ["SUCCEEDED"] * 3, [info["error"] for info in infos]
    one, other, both = infos
    # Two at once on two GPUs, and the one that needs both of them when both had ended.
    assert max(one["started"], other["started"]) < min(one["finished"], other["finished"])
    assert (before - least).min() > CONTEXT_BYTES
    assert both["started"] >= max(one["finished"], other["finished"])
    for info, ranks in zip(infos, (1, 1, 2), strict=True):
        result = load_result(service.data / "jobs" / info["id"] / f"attempt-{info['attempt']}" / "result")
        assert (result.hardware["device"], result.hardware["ranks"]) == ("cuda", ranks)
        np.testing.assert_array_equal(result.labels, expected.labels)
        assert {name: np.asarray(each).tobytes() for name, each in result.arrays.items()} == {
            name: np.asarray(expected.arrays[name]).tobytes() for name in result.arrays
        }
