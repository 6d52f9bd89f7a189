"""A Dask cluster of this machine, for as long as a block; no port of it answers without its certificates.

Whatever reaches a scheduler or worker of Dask can run code there, and every account of a machine reaches its loopback
addresses. So all connections are TLS with certificates of both ends, made for this cluster alone and held in memory;
workers are given them through the pipe on which they start, not in their environment or command line. Dask's HTTP
servers (dashboard, metrics, health) know no such check and are not started. All nodes work in a folder of this account
alone: they import modules from there, and the default, ``dask-scratch-space`` in a shared folder, may be another's.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import time
import weakref
from typing import Any

from distributed import LocalCluster, Nanny, Scheduler, Security, SpecCluster, Status, Worker

from mgclust.base.errors import RunFailed
from mgclust.engine import tls

__all__ = ["IN_A_SCRIPT", "start"]

# Seconds for a start, which takes two to ten, and more where many workers load CUDA at once. Dask itself waits without
# end for a worker that never says that it is there, and for the end of one that could not be started.
LONGEST_START = 60.0
END = 10.0  # seconds for the orderly end of a cluster that could not be started
IN_A_SCRIPT = "In a script, call mgclust below `if __name__ == '__main__':`"  # each worker imports it


class _WithoutHttp:
    """A node of Dask whose HTTP server is left out."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Open no port."""


class _Scheduler(_WithoutHttp, Scheduler):  # type: ignore[misc]
    pass


class _Worker(_WithoutHttp, Worker):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        tls.guard()
        super().__init__(*arguments, **options)


def _nannies(made: weakref.WeakSet[Any]) -> type[Nanny]:
    """Make the class of a cluster's nannies, which are added to `made`; options of nannies may be copied instead."""

    class OwnNanny(Nanny):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options, worker_class=_Worker)
            made.add(self)

    return OwnNanny


class _SpecCluster(SpecCluster):  # type: ignore[misc]
    """The last base in the order of inheritance, so that it sees which scheduler Dask's own cluster asks for."""

    late: float | None = None  # by when it has to be there, while it starts
    nannies: weakref.WeakSet[Any]  # all that were made, also those that have not started

    def __init__(self, *arguments: Any, scheduler: dict[str, Any], **options: Any) -> None:
        self.late = time.monotonic() + LONGEST_START
        super().__init__(*arguments, scheduler=scheduler | {"cls": _Scheduler}, **options)

    def sync(self, func: Any, *arguments: Any, callback_timeout: Any = None, **options: Any) -> Any:
        """Wait for a coroutine; while the cluster starts, no longer than that may take."""
        if self.late is None or self.asynchronous:
            return super().sync(func, *arguments, callback_timeout=callback_timeout, **options)
        if func == self.close:  # it could not be started, and why is told when this has returned
            self.end()
            return None
        left = max(0.1, self.late - time.monotonic())
        return super().sync(func, *arguments, callback_timeout=left, **options)

    def end(self) -> None:
        """End what was started, in whatever state it is."""
        for nanny in list(self.nannies):
            if number := nanny.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        with contextlib.suppress(Exception):
            super().sync(self.close, callback_timeout=END)
        self.status = Status.closed
        self.close()  # ends the thread of its event loop


def start(device: str, n_workers: int | None, folder: str) -> SpecCluster:
    """Start a scheduler and workers of one thread each.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        "cuda": one worker a GPU, which needs dask-cuda.
    n_workers : int or None
        How many; None for as many as there are GPUs.
    folder : str
        Where the nodes work; no other account may write to it.

    Raises
    ------
    RunFailed
        It was not there after `LONGEST_START` seconds.
    """
    tls.guard()  # of the scheduler and nannies, which run in this process; a worker has its own
    options = {
        "n_workers": n_workers,
        "threads_per_worker": 1,
        "host": "127.0.0.1",
        "protocol": "tls://",
        "security": Security.temporary(),
        "local_directory": folder,
        "scheduler_kwargs": {"local_directory": folder},
        "dashboard_address": None,
        "silence_logs": logging.ERROR,
    }
    if device == "cpu":

        class CpuCluster(LocalCluster, _SpecCluster):  # type: ignore[misc]
            pass

        return _started(CpuCluster, options, device)
    from dask_cuda import LocalCUDACluster

    class GpuCluster(LocalCUDACluster, _SpecCluster):  # type: ignore[misc]
        pass

    return _started(GpuCluster, options, device)


def _started(kind: type[_SpecCluster], options: dict[str, Any], device: str) -> SpecCluster:
    cluster: Any = kind.__new__(kind)  # in two steps: what could not be started has to be ended
    cluster.nannies = weakref.WeakSet()
    try:
        cluster.__init__(**options, worker_class=_nannies(cluster.nannies))
    except Exception as error:
        if cluster.late is not None:
            cluster.end()
        if not isinstance(error, TimeoutError):
            raise
        raise RunFailed(
            f"the workers of a local {device} cluster were not there after {LONGEST_START:g} s, and it was ended; the "
            f"log may say why. {IN_A_SCRIPT}; else try again with fewer workers or when the machine does less, or run "
            "without a cluster (client=None)."
        ) from error
    cluster.late = None
    return cluster
