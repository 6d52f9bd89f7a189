"""Let dask-jobqueue ask Slurm for workers from a Python session: ``python jobqueue.py DATA DIR``.

For a notebook or a program that runs for long on a login or service node; for one run, mgclust.sbatch is simpler.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dask_jobqueue import SLURMCluster
from distributed import Client, Security

from mgclust import DensityPeaks
from mgclust.engine import tls
from mgclust.engine.certificates import make_certificates

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", help="a file that all nodes can read")
    parser.add_argument("certs", type=Path, help="folder of certificates that all nodes can read; made if not there")
    parser.add_argument("--jobs", type=int, default=2, help="Slurm jobs, each one worker [default: 2]")
    parser.add_argument("--cores", type=int, default=8)
    parser.add_argument("--memory", default="32GB")
    parser.add_argument("--cpu", action="store_true", help="workers without GPUs")
    parser.add_argument("--interface", help="network that the nodes share, such as ib0")
    given = parser.parse_args()
    if not given.certs.exists():
        make_certificates(given.certs)

    security = Security(
        tls_ca_file=str(given.certs / "client" / "ca.pem"),
        tls_scheduler_cert=str(given.certs / "scheduler" / "cert.pem"),
        tls_scheduler_key=str(given.certs / "scheduler" / "key.pem"),
        tls_worker_cert=str(given.certs / "worker" / "cert.pem"),
        tls_worker_key=str(given.certs / "worker" / "key.pem"),
        tls_client_cert=str(given.certs / "client" / "cert.pem"),
        tls_client_key=str(given.certs / "client" / "key.pem"),
        require_encryption=True,
    )
    # Each process loads it, lest a connection that ends breaks others: the scheduler, which is in this one, here.
    tls.guard()
    loads = ["--preload", tls.MODULE]
    if given.cpu:
        loads += ["--preload-nanny", tls.MODULE]
        how = {}
    else:
        how = {
            "worker_command": "dask_cuda.cli",
            "job_extra_directives": ["--gpus=1"],
            "job_script_prologue": [f"export DASK_DISTRIBUTED__NANNY__PRELOAD={tls.MODULE}"],
        }
    with (
        SLURMCluster(
            cores=given.cores,
            processes=1,
            memory=given.memory,
            walltime="01:00:00",
            interface=given.interface,
            protocol="tls",
            security=security,
            # Dask's pages ask for no password: on the loopback alone.
            scheduler_options={"dashboard_address": "127.0.0.1:0"},
            worker_extra_args=["--dashboard-address", "127.0.0.1:0", *loads],
            **how,
        ) as cluster,
        Client(cluster, security=security) as client,
    ):
        cluster.scale(jobs=given.jobs)
        client.wait_for_workers(given.jobs, timeout=600)
        model = DensityPeaks(client=client, device="cpu" if given.cpu else "cuda").fit(given.data)
        print(model.n_clusters_, "clusters on", model.result_.hardware["ranks"], "ranks")
