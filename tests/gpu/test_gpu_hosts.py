"""A fit on GPUs of two hosts, which are network namespaces of this machine: NCCL goes over their network."""

from __future__ import annotations

import sys
import time

import numpy as np
import pytest

from mgclust import DensityPeaks, FuzzyCMeans
from support.network_hosts import network_hosts

pytestmark = [pytest.mark.gpu, pytest.mark.timeout(240)]
ADDRESSES = {"one": "10.78.0.1", "two": "10.78.0.2"}
SCHEDULER = "tcp://10.78.0.1:8786"
FITS = """
import sys
import numpy as np
from distributed import Client
from mgclust import DensityPeaks, FuzzyCMeans
rows, out = sys.argv[1:]
with Client("tcp://10.78.0.1:8786", timeout=60) as client:
    client.wait_for_workers(2, timeout=90)
    place = {"client": client, "device": "cuda", "n_workers": 2}
    peaks = DensityPeaks(5, algorithm="brute", dc_fraction=0.02, **place).fit(rows)
    fuzzy = FuzzyCMeans(5, random_state=0, **place).fit(rows)
    assert peaks.result_.hardware["ranks"] == fuzzy.result_.hardware["ranks"] == 2
    np.savez(out, rho=peaks.rho_, labels=peaks.labels_, centers=fuzzy.cluster_centers_)
"""


def test_gpus_of_two_hosts_give_the_bits_of_one(tmp_path):
    cupy = pytest.importorskip("cupy")
    if cupy.cuda.runtime.getDeviceCount() < 2:
        pytest.skip("fewer than 2 GPUs here")
    X = np.random.default_rng(0).normal(size=(40_000, 24)).astype("float32")
    np.save(tmp_path / "rows.npy", X)
    peaks = DensityPeaks(5, algorithm="brute", dc_fraction=0.02, client=None, device="cuda").fit(X)
    fuzzy = FuzzyCMeans(5, random_state=0, client=None, device="cuda").fit(X)
    with network_hosts(ADDRESSES) as start, (tmp_path / "log").open("w") as log:
        scheduler = ("-m", "distributed.cli.dask_scheduler", "--host", ADDRESSES["one"], "--no-dashboard")
        start("one", (sys.executable, *scheduler), output=log)
        for gpu, (host, address) in enumerate(ADDRESSES.items()):
            worker = ("-m", "distributed.cli.dask_worker", SCHEDULER, "--host", address, "--nthreads", "1")
            of_nccl = {"NCCL_HOSTID": host, "NCCL_DEBUG": "INFO", "NCCL_DEBUG_FILE": str(tmp_path / f"nccl-{host}")}
            start(
                host,
                (sys.executable, *worker, "--no-dashboard", "--local-directory", tmp_path / host),
                output=log,
                CUDA_VISIBLE_DEVICES=str(gpu),
                **of_nccl,
            )
        fits = start("one", (sys.executable, "-c", FITS, tmp_path / "rows.npy", tmp_path / "found.npz"), output=log)
        end = time.monotonic() + 180
        while fits.poll() is None and time.monotonic() < end:
            time.sleep(0.1)
    said = (tmp_path / "log").read_text()
    assert fits.returncode == 0, said[-3000:]
    found = np.load(tmp_path / "found.npz")
    assert found["rho"].tobytes() == peaks.rho_.tobytes()
    np.testing.assert_array_equal(found["labels"], peaks.labels_)
    np.testing.assert_array_equal(found["centers"], fuzzy.cluster_centers_)
    for host, address in ADDRESSES.items():
        nccl = (tmp_path / f"nccl-{host}").read_text()
        assert f"eth0:{address}" in nccl and "via NET/Socket" in nccl, nccl[-3000:]
