"""A Dask cluster of this machine, for as long as a block; no port of it answers without its certificates.

Whatever reaches a scheduler or worker of Dask can run code there, and every account of a machine reaches its loopback
addresses. So all connections are TLS with certificates of both ends, made for this cluster alone and held in memory;
workers are given them through the pipe on which they start, not in their environment or command line. Dask's HTTP
servers (dashboard, metrics, health) know no such check and are not started.
"""

from __future__ import annotations

import logging
from typing import Any

from distributed import LocalCluster, Nanny, Scheduler, Security, SpecCluster, Worker

from mgclust.engine.certificates import throwaway

__all__ = ["start"]


class _WithoutHttp:
    """A node of Dask whose HTTP server is left out."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Open no port."""


class _Scheduler(_WithoutHttp, Scheduler):  # type: ignore[misc]
    pass


class _Worker(_WithoutHttp, Worker):  # type: ignore[misc]
    pass


class _Nanny(Nanny):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options, worker_class=_Worker)


class _SpecCluster(SpecCluster):  # type: ignore[misc]
    """Comes after Dask's own cluster in the order of inheritance, and so sees which scheduler that asks for."""

    def __init__(self, *arguments: Any, scheduler: dict[str, Any], **options: Any) -> None:
        super().__init__(*arguments, scheduler=scheduler | {"cls": _Scheduler}, **options)


def start(device: str, n_workers: int | None) -> SpecCluster:
    """Start a scheduler and workers of one thread each.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        "cuda": one worker a GPU, which needs dask-cuda.
    n_workers : int or None
        How many; None for as many as there are GPUs.
    """
    options = {
        "n_workers": n_workers,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": _security(),
        "worker_class": _Nanny,
        "dashboard_address": None,
        "silence_logs": logging.ERROR,
    }
    if device == "cpu":

        class CpuCluster(LocalCluster, _SpecCluster):  # type: ignore[misc]
            pass

        return CpuCluster(**options)
    from dask_cuda import LocalCUDACluster

    class GpuCluster(LocalCUDACluster, _SpecCluster):  # type: ignore[misc]
        pass

    return GpuCluster(**options)


def _security() -> Security:
    made = throwaway()
    files = {f"tls_{role}_{part}": getattr(made[role], part) for role in made for part in ("cert", "key")}
    return Security(require_encryption=True, tls_ca_file=made["client"].ca, **files)
