"""Places where ranks run: in this process, on all GPUs or cores of this machine, or on a running Dask cluster.

`connect` chooses and checks the place before any data are read. If the place cannot be used, the error message is one
sentence. For runs in this process, this module imports neither Dask nor CuPy.
"""

from __future__ import annotations

import contextlib
import os
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from mgclust.base.dask_arrays import in_event_loop
from mgclust.base.errors import ClusterUnavailableError, DeviceUnavailableError, InputError, RunFailed
from mgclust.base.progress import WAITING, paced
from mgclust.engine import tls
from mgclust.engine.dask.candidates import WorkerCandidates, WorkerRules, candidates_of
from mgclust.engine.devices import cores, gpus, why_no_gpu
from mgclust.engine.run_spec import Work
from mgclust.engine.safe_path import safe_path
from mgclust.outside.quoting import shortened

__all__ = ["Cluster", "connect", "leave_pool", "too_few", "wait_limit"]

CONNECT_TIMEOUT = 15.0
WORKERS_TIMEOUT = 30.0
CLUSTER_TIMEOUT = 60.0  # time limit for a cluster object, whose scheduler may be behind a proxy
EXAMPLE = "'tcp://host:8786' or 'tls://host:8786'"
ADAPTIVE_TIMEOUT = 300.0  # time limit for workers that start on demand; batch systems and clouds take minutes


@dataclass(frozen=True)
class Cluster:
    """Place where the ranks of a run are."""

    size: int  # number of ranks if `exact` or in this process, else number of workers at the time of `connect`
    device: str  # "cpu" or "cuda"
    client: Any = None  # a distributed.Client; None: one rank in this process
    # Addresses of the workers at the time of `connect`; empty in this process. A run gets workers that no other run
    # has: some of these workers, or workers that joined later.
    workers: tuple[str, ...] = ()
    lasting: bool = False  # whether the client belongs to the caller, and therefore outlives the run
    exact: bool = False  # True: a run has exactly `size` ranks. False: the number depends on the free workers
    rules: WorkerRules = field(default_factory=WorkerRules)  # which workers of the cluster a run may use
    retries: int = 0  # how often a run is tried again after it has lost a worker


@contextlib.contextmanager
def connect(
    client: Any = "auto",
    device: str = "auto",
    n_workers: int | None = None,
    on_progress: Callable[[dict[str, Any]], None] | None = None,
    work: Work | None = None,
    workers: Any = None,
    resources: Any = None,
    retries: int = 0,
    optional: bool = False,
) -> Iterator[Cluster]:
    """Connect to the devices or workers on which a run will have its ranks.

    A cluster that this function starts ("local") accepts only holders of its certificates, which exist only in memory.
    The security of other clusters depends on their setup. Beware of clusters without TLS, such as a
    ``distributed.LocalCluster()``: Dask runs any code that it receives. So every account of the machine, and every
    machine that reaches the address, can do everything there that you may do.

    Parameters
    ----------
    client : "auto", None, "local", distributed.Client, cluster object of Dask, str or Cluster
        Where to run:

        - "auto": the active Dask client if there is one, else this process; in a task of Dask, this process.
        - None: this process, without Dask.
        - "local": a new cluster on this machine with one worker per GPU (per core with ``device="cpu"``), which is
          closed at the end of the block.
        - A client, or a cluster object such as a ``LocalCluster``: its cluster.
        - Address of a scheduler: its cluster. For ``tls://``, MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY name
          the files of the certificates; without these variables, Dask's configuration names them.
        - A Cluster: the cluster of an earlier `connect`, with the given `n_workers`, `workers` and `retries`.
    device : {"auto", "cpu", "cuda"}
        "auto": GPUs if there are any, else CPUs. On a cluster with GPUs, workers without a GPU are left out.
    n_workers : int, optional
        Number of workers. A local cluster starts this number. On a running cluster, a run takes this number as soon as
        other runs leave enough workers; by default, it takes the present workers that are free.
    on_progress : callable, optional
        Receives an event about twice a second while workers are missing; see `mgclust.engine.spmd.run`. If it raises an
        error, the wait ends.
    work : Work, optional
        Amount of work of the run. If `n_workers` is None, an adaptive cluster without workers is told at once how many
        workers to start.
    workers : str, int or collection of these, optional
        Addresses, names or hosts of the workers that a run may use, as in ``Client.submit``.
    resources : dict of str to float, optional
        Resources of Dask that each rank takes while it runs. A run may use only workers that offer them.
    retries : int
        How often to try a run again after it has lost a worker.
    optional : bool
        Whether `n_workers`, `workers` and `resources` are ignored if there is no cluster; the run is then in this
        process.

    Yields
    ------
    Cluster
        Where to run.

    Raises
    ------
    DeviceUnavailableError
        There is no GPU, or several workers would share one.
    ClusterUnavailableError
        There is no scheduler, the client is closed, or workers are still missing after half a minute (on an adaptive
        cluster, after `ADAPTIVE_TIMEOUT` seconds).
    InputError
        An argument is invalid.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device!r} should be 'auto', 'cpu' or 'cuda'.")
    if n_workers is not None and n_workers < 1:
        raise InputError(f"n_workers={n_workers} should be >= 1.")
    rules = WorkerRules.checked(workers, resources)
    if retries < 0:
        raise InputError(f"retries={retries} should be >= 0; 0 ends a run that loses a worker.")
    if isinstance(client, Cluster):
        again = client if client.retries == retries else replace(client, retries=retries)
        yield _part_of(again, n_workers, rules)
        return
    automatic = isinstance(client, str) and client == "auto"
    if automatic:
        client = _active_client() if _worker() is None else None
    if client is None:
        if (n_workers not in (None, 1) or rules) and not optional:
            raise _needs_cluster(n_workers, rules, automatic)
        yield Cluster(1, _local_device(device))
        return
    if rules and isinstance(client, str) and client == "local":
        raise InputError(
            f"{rules} selects workers of a running cluster, but client='local' starts a new one; leave out one of them."
        )
    tls.guard()
    given, exact = client, n_workers is not None
    with contextlib.ExitStack() as stack:
        stack.enter_context(_without_its_thread())
        if isinstance(client, str):
            if client == "local":
                stack.enter_context(safe_path())  # until the cluster ends, because nannies may restart workers
                client = stack.enter_context(_local_cluster(_local_device(device), n_workers))
                n_workers = None
            else:
                client = stack.enter_context(_remote_client(client))
        elif hasattr(client, "get_client") and not getattr(client, "asynchronous", True):
            client = stack.enter_context(_client_of(client))
        _reject_others(client)
        growth = work.growth(device) if work is not None and n_workers is None else 1
        found = _enough(client, rules, device, n_workers or 1, growth, paced(on_progress))
        found.warn()
        size, addresses = n_workers or len(found.offers), tuple(found.offers)
        yield Cluster(size, found.device, client, addresses, client is given, exact, rules, retries)


def _part_of(cluster: Cluster, n_workers: int | None, rules: WorkerRules) -> Cluster:
    """Restrict a connected cluster to some of its workers."""
    if rules:
        if cluster.client is None:
            raise _needs_cluster(n_workers, rules, False)
        found = candidates_of(cluster.client, rules, cluster.device)
        found.warn()
        size = cluster.size if cluster.exact else len(found.offers)
        cluster = replace(cluster, size=size, workers=tuple(found.offers), rules=rules)
    return cluster if n_workers is None else replace(cluster, size=n_workers, exact=True)


def _needs_cluster(n_workers: int | None, rules: WorkerRules, automatic: bool) -> InputError:
    """Make the error for a run in this process although the user requested workers."""
    what = str(rules) if n_workers in (None, 1) else f"n_workers={n_workers}"
    if automatic and _worker() is not None:
        return InputError(
            f"{what} needs a cluster, but in a task of Dask, client='auto' means the process of the task; give the "
            "address of the scheduler, or a client."
        )
    if automatic:
        return InputError(
            f"{what} needs a cluster, and there is no active Dask client: none was connected, or it is closed (Dask "
            "closes a client whose scheduler has gone). Connect a client, or start a cluster here with client='local'."
        )
    return InputError(f"{what} needs a cluster; start one here with client='local'.")


def _reject_others(client: Any) -> None:
    """Reject objects that are not clients, and clients whose event loop runs this code: it would wait for itself."""
    if not (hasattr(client, "asynchronous") and hasattr(client, "sync")):
        raise InputError(
            f"client={shortened(repr(client))} should be None, 'auto', 'local', a distributed.Client, a cluster object "
            f"of Dask, or the address of a scheduler, such as {EXAMPLE}."
        )
    if client.asynchronous:
        raise in_event_loop(client)


def _worker() -> Any:
    """Return the Dask worker that runs this code, or None; threads of `mgclust.submit` also belong to a worker."""
    distributed = sys.modules.get("distributed")
    try:
        return distributed and distributed.get_worker()
    except ValueError:
        return None


def _left_pool() -> bool:
    """Release the thread of a task to other tasks; return False if there is no task or its thread is released."""
    worker = _worker()
    if worker is None:
        return False
    from distributed import secede

    try:
        worker.get_current_task()
        secede()
    except (KeyError, AttributeError):  # not a task's thread, already released, or its pool does not release threads
        return False
    return True


def leave_pool(client: Any) -> None:
    """Release the thread of a task to other tasks for good, before another thread of the task waits for a run.

    Parameters
    ----------
    client : "auto", None, "local", distributed.Client, cluster object of Dask or str
        Where the run is; see `connect`.
    """
    if client is not None and client != "auto":
        _left_pool()


@contextlib.contextmanager
def _without_its_thread() -> Iterator[None]:
    """Release the thread of a task during the block, because ranks may be placed on the same worker."""
    left = _left_pool()
    try:
        yield
    finally:
        if left:
            from distributed import rejoin

            rejoin()


def _active_client() -> Any:
    # If distributed is not imported, there is no client.
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    # A client that a task of this worker has made may wait for this thread, so it is not used.
    return None if client.id.startswith("Client-worker-") else client


def _local_device(device: str) -> str:
    reason = why_no_gpu()
    if device == "auto":
        return "cpu" if reason else "cuda"
    if device == "cuda" and reason:
        raise DeviceUnavailableError(
            f"device='cuda' needs an NVIDIA GPU: {reason}. Use device='cpu' (--cpu) or 'auto'."
        )
    return device


@contextlib.contextmanager
def _local_cluster(device: str, n_workers: int | None) -> Iterator[Any]:
    if device == "cuda" and n_workers is not None and n_workers > len(gpus()):
        raise DeviceUnavailableError(f"n_workers={n_workers} should be <= {len(gpus())}, the number of GPUs.")
    from mgclust.engine.dask.local_cluster import IN_A_SCRIPT, start

    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="mgclust-", ignore_cleanup_errors=True))
            cluster = start(device, n_workers or (cores() if device == "cpu" else None), folder)
        except ImportError as error:
            raise DeviceUnavailableError(
                "client='local' on GPUs needs dask-cuda; install mgclust[gpu-cu13] (or gpu-cu12), or use "
                "client=None for one GPU."
            ) from error
        except RunFailed:
            raise
        except Exception as error:
            # Errors of NVML and of nannies. Users need the cause and the remedy, but not the traceback.
            raise RunFailed(
                f"a local {device} cluster could not be started: {type(error).__name__}: {str(error).rstrip('.')}. "
                f"{IN_A_SCRIPT}; client=None runs without a cluster."
            ) from error
        try:
            from mgclust.engine.dask.clients import Client
            from mgclust.engine.dask.tasks import OwnWorker

            with Client(cluster, set_as_default=False) as client:
                client.register_plugin(OwnWorker())
                yield client
        finally:
            cluster.close()


@contextlib.contextmanager
def _remote_client(address: str) -> Iterator[Any]:
    from mgclust.engine.dask.clients import opened, why_no_address

    security = _security(address)
    if unfit := why_no_address(address):
        raise ClusterUnavailableError(
            f"client={shortened(repr(address))} is not the address of a scheduler ({unfit}); give the address that the "
            f"scheduler prints, such as {EXAMPLE}, or 'local', 'auto' or None."
        )
    try:
        client = opened(address, CONNECT_TIMEOUT, security)
    except Exception as error:  # a program that is not a scheduler may answer anything
        hint = (
            "Give the address that the scheduler prints, such as tcp://host:8786 or tls://host:8786; client=None "
            "computes in this process."
        )
        if address.startswith("tls://"):
            hint = "Set MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY to PEM files that the scheduler trusts."
        raise ClusterUnavailableError(
            f"client={address!r}: no Dask scheduler answered there within {CONNECT_TIMEOUT:g} s "
            f"({_first_line(error)}). {hint}"
        ) from error
    with client:
        yield client


def _security(address: str) -> Any:
    """Return TLS settings from the variables MGCLUST_TLS_*; None if none is set; Dask then uses its configuration."""
    from distributed import Security

    paths = {part: os.environ.get(f"MGCLUST_TLS_{part}", "") for part in ("CA", "CERT", "KEY")}
    if not address.startswith("tls://") or not any(paths.values()):
        return None
    if not all(paths.values()):
        raise InputError("MGCLUST_TLS_CA, MGCLUST_TLS_CERT and MGCLUST_TLS_KEY should be set together.")
    for part, path in paths.items():
        if "\n" in path:
            raise InputError(f"MGCLUST_TLS_{part} should be the path of a PEM file; keys must not be in variables.")
        if not os.path.exists(path):
            raise InputError(f"MGCLUST_TLS_{part}={path} does not exist; set it to the path of a PEM file.")
    return Security(
        tls_ca_file=paths["CA"], tls_client_cert=paths["CERT"], tls_client_key=paths["KEY"], require_encryption=True
    )


@contextlib.contextmanager
def _client_of(cluster: Any) -> Iterator[Any]:
    """Yield a client of a cluster object during the block. A client that belongs to the caller stays open."""
    from mgclust.engine.dask.clients import client_of

    before = _active_client()
    try:
        client = client_of(cluster, CLUSTER_TIMEOUT)
    except Exception as error:
        raise ClusterUnavailableError(
            f"client={cluster!r} has no client ({_first_line(error)}); give a running cluster."
        ) from None
    with contextlib.nullcontext() if client is before else client:
        yield client


def too_few(client: Any, found: int, wanted: int, seconds: float, why: str) -> ClusterUnavailableError:
    """Make the error for workers that are missing for longer than `wait_limit`; `why`: see `WorkerCandidates.why`."""
    return ClusterUnavailableError(
        f"the cluster at {client.scheduler.address} has {found} worker(s) after {seconds:g} "
        f"s, but {wanted} are needed{why}; start some (dask worker, or dask cuda worker for GPUs)."
    )


def wait_limit(answer: Mapping[str, Any]) -> float:
    """Return for how many seconds to wait for missing workers, after an answer of `Leases.ask`."""
    return ADAPTIVE_TIMEOUT if answer["adaptive"] else WORKERS_TIMEOUT


def _enough(
    client: Any,
    rules: WorkerRules,
    device: str,
    wanted: int,
    growth: int,
    on_progress: Callable[[dict[str, Any]], None] | None,
) -> WorkerCandidates:
    """Return the workers that a run may use; wait until there are enough.

    An adaptive cluster is told how many workers are needed, or to how many workers it should grow.
    """
    from mgclust.engine.dask.scheduler import ask, tell

    found = candidates_of(client, rules, device)
    if len(found.offers) >= wanted:
        return found
    began, name = time.monotonic(), uuid.uuid4().hex
    try:
        while True:
            asked = {"least": wanted, "most": max(wanted, growth), "among": list(found.offers)}
            answer = ask(client, "ask", run=name, client=client.id, method="", **asked)
            found = candidates_of(client, rules, device)
            if len(found.offers) >= wanted:
                return found
            if time.monotonic() - began > wait_limit(answer):
                raise too_few(client, len(found.offers), wanted, wait_limit(answer), found.why())
            if on_progress is not None:
                on_progress(dict(WAITING))
    finally:
        tell(client, "give_back", run=name)


def _first_line(error: BaseException) -> str:
    if isinstance(error, MemoryError):  # Dask read the first bytes as the length of a message
        return "the program that answered is not a Dask scheduler"
    lines = str(error).splitlines()
    return lines[0] if lines else type(error).__name__
