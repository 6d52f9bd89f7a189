"""A Dask cluster on this machine that exists during a block; its ports accept only holders of its certificates.

Any program that can connect to a scheduler or worker of Dask can run code there, and every account of a machine can
connect to its loopback addresses. So all connections use TLS with certificates at both ends. The certificates are made
for this cluster and held only in memory. Workers get them through the pipe by which they are started, not in their
environment or command line.

Dask's HTTP servers (dashboard, metrics, health) have no such check and are not started. All nodes work
in a folder that only this account may write to, because they import modules from there. The default,
``dask-scratch-space`` in a shared folder, may belong to another account.
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

# Time limit for a start. A start takes two to ten seconds, and longer if many workers load CUDA at once. Dask itself
# waits without limit for a worker that never reports, and for the end of a worker that could not be started.
LONGEST_START = 60.0
END = 10.0  # time limit for the end of a cluster that could not be started
IN_A_SCRIPT = "In a script, call mgclust below `if __name__ == '__main__':`"  # because each worker imports the script


class _WithoutHttp:
    """A node of Dask without its HTTP server."""

    def start_http_server(self, *arguments: Any, **options: Any) -> None:
        """Open no port."""


class _Scheduler(_WithoutHttp, Scheduler):  # type: ignore[misc]
    pass


class _Worker(_WithoutHttp, Worker):  # type: ignore[misc]
    def __init__(self, *arguments: Any, **options: Any) -> None:
        tls.guard()
        super().__init__(*arguments, **options)


def _nannies(made: weakref.WeakSet[Any]) -> type[Nanny]:
    """Make a class of nannies that add themselves to `made`; it is not an option, because Dask may copy options."""

    class OwnNanny(Nanny):  # type: ignore[misc]
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options, worker_class=_Worker)
            made.add(self)

    return OwnNanny


class _SpecCluster(SpecCluster):  # type: ignore[misc]
    """Last base class in the order of inheritance, so that it gets the scheduler that Dask's cluster class requests."""

    late: float | None = None  # deadline of the start; None after the start
    nannies: weakref.WeakSet[Any]  # all nannies that were made, including those that have not started

    def __init__(self, *arguments: Any, scheduler: dict[str, Any], **options: Any) -> None:
        self.late = time.monotonic() + LONGEST_START
        super().__init__(*arguments, scheduler=scheduler | {"cls": _Scheduler}, **options)

    def sync(self, func: Any, *arguments: Any, callback_timeout: Any = None, **options: Any) -> Any:
        """Wait for a coroutine; while the cluster starts, only until its deadline."""
        if self.late is None or self.asynchronous:
            return super().sync(func, *arguments, callback_timeout=callback_timeout, **options)
        if func == self.close:  # the start failed, and the reason is reported after this
            self.end()
            return None
        left = max(0.1, self.late - time.monotonic())
        return super().sync(func, *arguments, callback_timeout=left, **options)

    def end(self) -> None:
        """End everything that was started, whatever its state."""
        for nanny in list(self.nannies):
            if number := nanny.pid:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(number, signal.SIGKILL)
        with contextlib.suppress(Exception):
            super().sync(self.close, callback_timeout=END)
        self.status = Status.closed
        self.close()  # ends the thread of its event loop


def start(device: str, n_workers: int | None, folder: str) -> SpecCluster:
    """Start a scheduler, and workers with one thread each.

    Parameters
    ----------
    device : {"cpu", "cuda"}
        "cuda": one worker per GPU, which needs dask-cuda.
    n_workers : int or None
        Number of workers; None: as many as there are GPUs.
    folder : str
        Folder in which the nodes work; no other account may write to it.

    Raises
    ------
    RunFailed
        The cluster was not ready after `LONGEST_START` seconds.
    """
    tls.guard()  # for the scheduler and nannies in this process; each worker has its own guard
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
    cluster: Any = kind.__new__(kind)  # in two steps, so that a cluster that could not be started can be ended
    cluster.nannies = weakref.WeakSet()
    try:
        cluster.__init__(**options, worker_class=_nannies(cluster.nannies))
    except Exception as error:
        if cluster.late is not None:
            cluster.end()
        if not isinstance(error, TimeoutError):
            raise
        raise RunFailed(
            f"a local {device} cluster was not ready after {LONGEST_START:g} s, and was ended; its log may show why. "
            f"{IN_A_SCRIPT}; else use fewer workers, a less busy machine, or client=None."
        ) from error
    cluster.late = None
    return cluster
