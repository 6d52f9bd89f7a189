"""The process of an attempt: it reads an order on its standard input, one line of JSON, and computes the job.

::

    in    {"folder": where the attempt writes, "checkpoint": where it resumes from, "request": {...},
           "files": {name: file below a root}, "hidden": [path, ...], "cache": folder of its user's compiled kernels,
           "place": where to run, "devices": the GPUs to use, "doubts": [warning, ...], ...}
    out   {"progress": {...}}, at most a few per second, then {"scores": {...}, "warnings": [message, ...]} or
          {"error": message, "fault": ...}, with "facts" for the runner's log; {} once per second, a heartbeat;
          see `mgclust.service.confined.child_messages`

Before it reads any data, the process confines itself to the rights that its job needs
(`mgclust.service.confined.confine`). Confinement cannot be undone, so each attempt has a new process, a fork of
`mgclust.service.confined.fork_server`. The input of the process ends if the runner ends; the attempt then also ends.
Output goes to ``log.txt`` in the attempt's folder. The result appears there as ``result`` when it is complete.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import signal
import sys
import tempfile
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgclust.outside.json_text import parse_json
from mgclust.outside.quoting import quoting
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.caches import cache_folders, use_private_caches
from mgclust.service.confined.child_messages import MAX_ERROR_CHARACTERS, first_warnings
from mgclust.service.confined.confine import become_subreaper, confine
from mgclust.service.confined.fork_server import run_child
from mgclust.service.confined.inputs import descriptors, open_inputs, ordered_files, restore_names, traceback_of

if TYPE_CHECKING:
    from mgclust.data import Dataset

__all__ = ["fault_of", "main", "message_of"]

PROGRESS_SECONDS = 0.5  # time between two progress events
STOP_GRACE_SECONDS = 20.0  # time for the attempt to end by itself
CLUSTER_WAIT_SECONDS = 300.0  # wait limit for a cluster that is unavailable
FULL_DISK_WAIT_SECONDS = 20.0  # pause before the next attempt if the disk is full
TEMPORARY_FOLDER = "tmp"  # in the attempt's folder; the runner removes it
LONGEST_TEMPORARY_FOLDER = 100  # bytes of its path; from 127, NVIDIA's compiler keeps no headers for CuPy
HEARTBEAT_SECONDS = 1.0  # time between two heartbeats
NICE = 5  # so that the web process and other programs have priority on shared cores

_WRITE_LOCK = threading.Lock()


def main() -> None:
    """Read an order and carry it out; end if the input ends first."""
    os.umask(0o077)  # only this account may read results and checkpoints
    os.nice(NICE)
    if sys.platform.startswith("linux"):
        become_subreaper()  # so that the runner finds all descendants of this process
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # output of libraries must not be taken for an answer
    nowhere = os.open(os.devnull, os.O_WRONLY)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    loading = threading.Event()
    heartbeats = threading.Thread(target=_send_heartbeats, args=(answers, loading), daemon=True)
    heartbeats.start()
    _warm_up()
    line = sys.stdin.readline()
    loading.set()
    heartbeats.join()
    if line:
        order = parse_json(line) | {"answers": answers}
        with contextlib.suppress(OSError):  # reset the peak memory that `_measured` reports
            Path("/proc/self/clear_refs").write_text("5")
        answer = _run(order, lambda event: _send(answers, {"progress": event}))
        os.dup2(nowhere, 2)  # later output does not belong to the job's log
        os.dup2(nowhere, 1)
        _send(answers, answer | {"facts": _measured(order)})


def _warm_up() -> None:
    """Import the modules that every job needs, before there is a job."""
    from mgclust.algorithms import METHODS  # noqa: F401
    from mgclust.output.file_run import open_sources  # noqa: F401


def _start_threads(answers: Any) -> None:
    """Watch the runner and send heartbeats. Called after confinement, which a thread inherits from its creator."""
    threading.Thread(target=_end_with_runner, daemon=True).start()
    threading.Thread(target=_send_heartbeats, args=(answers, threading.Event()), daemon=True).start()


def _end_with_runner() -> None:
    for _ in sys.stdin:
        pass
    signal.raise_signal(signal.SIGINT)  # Python handles the signal in the main thread
    time.sleep(STOP_GRACE_SECONDS)
    os._exit(1)


def _send_heartbeats(answers: Any, end: threading.Event) -> None:
    while not end.wait(HEARTBEAT_SECONDS):
        _send(answers, {})


def _send(answers: Any, answer: dict[str, Any]) -> None:
    with (
        _WRITE_LOCK,
        contextlib.suppress(BrokenPipeError),
    ):  # the runner has ended; `_end_with_runner` ends this process
        answers.write(json.dumps(answer) + "\n")


def _measured(order: dict[str, Any]) -> dict[str, Any]:
    """Return the shape of the data, if known, and the peak memory of this process without workers."""
    facts: dict[str, Any] = {"shape": order.get("shape")}
    with contextlib.suppress(OSError, ValueError, IndexError):
        status = Path("/proc/self/status").read_text()
        facts["peak_bytes"] = 1024 * int(status.partition("VmHWM:")[2].split()[0])
    return facts


def _log(line: str) -> None:
    with contextlib.suppress(OSError):  # a full disk may cost a line of the log, but not the result
        print(f"{time.strftime('%H:%M:%S')} {line}", file=sys.stderr)


def _run(order: dict[str, Any], report: Any) -> dict[str, Any]:
    folder = Path(order["folder"])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        log = _open_log(folder)
        os.dup2(log, 2)
        os.close(log)
        os.dup2(2, 1)
        if order.get("before"):
            _log(f"the previous attempt ended: {order['before']}")
        return _compute(order, folder, report)
    except (Exception, KeyboardInterrupt) as error:
        with contextlib.suppress(OSError):  # on a full disk, the log cannot be written either
            print(traceback_of(error), end="", file=sys.stderr)
        sentence = restore_names(message_of(error), order["request"], order["files"])
        answer = {"error": sentence[:MAX_ERROR_CHARACTERS], "fault": fault_of(error)}
        full = _disk_is_full(error)
    if full:
        report({"stage": "waiting for space on the disk"})
        with contextlib.suppress(KeyboardInterrupt):  # the job is cancelled
            time.sleep(FULL_DISK_WAIT_SECONDS)
    return answer


def _open_log(folder: Path) -> int:
    """Open the log without following links or waiting for a FIFO; an earlier attempt may have written the folder."""
    parent = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        return os.open("log.txt", flags, 0o600, dir_fd=parent)
    finally:
        os.close(parent)


def _writable(order: dict[str, Any]) -> dict[str, RootedFile]:
    """Open the folders that the attempt may write to, without following links.

    The folder of the job is not among them, so no attempt can replace a folder that the next attempt or the runner
    uses.
    """
    folder, checkpoint = Path(order["folder"]), Path(order["checkpoint"])
    found = {"checkpoint": RootedFile(str(checkpoint.parents[1]), f"{checkpoint.parent.name}/{checkpoint.name}")}
    for name in (folder.name, f"{folder.name}/{TEMPORARY_FOLDER}"):
        (folder.parent / name).mkdir(exist_ok=True)
        found[name] = RootedFile(str(folder.parent), name)
    tempfile.tempdir = str(folder / TEMPORARY_FOLDER)
    os.environ |= {"TMPDIR": tempfile.tempdir, "DASK_TEMPORARY_DIRECTORY": tempfile.tempdir}  # for the workers
    if len(os.fsencode(tempfile.tempdir)) > LONGEST_TEMPORARY_FOLDER:
        os.chdir(tempfile.tempdir)
        os.environ["TMPDIR"] = "."
    if "cache" in order:
        use_private_caches(order["cache"])
        found["cache"] = RootedFile(order["cache"], "")
    return found


def _compute(order: dict[str, Any], folder: Path, report: Any) -> dict[str, Any]:
    from mgclust.algorithms import METHODS
    from mgclust.engine.checkpoint import CheckpointConfig
    from mgclust.output.file_run import fit, save
    from mgclust.service.confined.command import command_of

    request, last, stage = order["request"], 0.0, None

    def progress(event: dict[str, Any]) -> None:
        nonlocal last, stage
        if "warning" in event:
            _log(f"warning: {event['warning']}")
            return
        now = time.monotonic()
        if now - last > PROGRESS_SECONDS or event.get("stage") != stage:
            last, stage = now, event.get("stage")
            if "elapsed" in event:
                _log(f"{stage} {event.get('fraction') or 0:.0%}")
            report(event)

    if order.get("devices") is not None:  # set before CUDA starts in this process or in workers
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(order["devices"])
    files = ordered_files(order["files"])
    if "hidden" in order:
        writable = _writable(order)
        readable: list[str | int] = [*descriptors(files), *cache_folders(order["hidden"])]
        several = (order["place"].get("gpus") or 0) > 1 and not order["place"].get("scheduler")
        confine(order["hidden"], readable, descriptors(writable), cuda_processes=several)
    if (answers := order.pop("answers", None)) is not None:
        _start_threads(answers)
    method = METHODS[request["method"]]
    given = {name: file for name, file in files.items() if name in request["parameters"]}
    parameters = request["parameters"] | {
        name: method.constraints[name].parse(each, name) for name, each in given.items()
    }
    dataset = open_inputs(method, request, files)
    order["shape"] = list(dataset.shape)
    check_rows(dataset, order["max_rows"])
    checkpoint = CheckpointConfig(order["checkpoint"], order["checkpoint_seconds"], strict=False)
    with contextlib.ExitStack() as stack:
        where = _connect(stack, order["place"], progress)
        # A cluster may lose a worker: retry here. The next attempt is for errors that this process does not survive.
        result = fit(method(**parameters, **where, retries=1), dataset, progress, checkpoint)
        for text in order.get("doubts", ()):
            progress({"warning": text})
        result = replace(result, warnings=[*order.get("doubts", ()), *result.warnings])
        save(result, dataset, folder / "result", False, request.get("report", True), command_of(request), progress)
        checkpoint.remove()
    warnings = [restore_names(text, request, order["files"]) for text in result.warnings]
    scores = parse_json(json.dumps(result.to_dict()["scores"]))
    return {"scores": scores, "warnings": first_warnings(warnings)}


def check_rows(dataset: Dataset, most: int) -> None:
    """Reject data with more than `most` rows, or a graph with more edges or nodes; 0 means no limit."""
    from mgclust.data import Graph

    counts = {"n_samples": dataset.shape[0]}
    if isinstance(dataset, Graph):
        counts = {"n_edges": dataset.shape[0], "n_nodes": dataset.n_nodes}
    for name, count in counts.items():
        if most and count > most:
            from mgclust.base.errors import InputError

            raise InputError(
                f"{name}={count} of {Path(dataset.name).name} should be at most max_rows={most}; send fewer rows, or "
                "ask the administrator for a higher MGCLUST_SERVICE_MAX_ROWS."
            )


def _connect(stack: contextlib.ExitStack, place: dict[str, Any], progress: Any) -> dict[str, Any]:
    """Connect to the devices or the cluster; wait if the cluster has no scheduler or too few workers."""
    from mgclust.base.errors import ClusterUnavailableError
    from mgclust.output.file_run import placed

    end = time.monotonic() + CLUSTER_WAIT_SECONDS
    while True:
        try:
            return stack.enter_context(placed(**place))
        except ClusterUnavailableError as error:
            if time.monotonic() > end:
                raise
            _log(str(error))
            progress({"stage": "waiting for the cluster"})


def fault_of(error: BaseException) -> str:
    """Classify the cause of an error: the input, the memory, the cluster, or mgclust."""
    from mgclust.base.errors import ClusterUnavailableError, InputError, InsufficientMemoryError, MgclustError

    if isinstance(error, ClusterUnavailableError):
        return "cluster"
    if isinstance(error, InputError):
        return "input"
    if isinstance(error, MemoryError):
        return "memory" if isinstance(error, InsufficientMemoryError) else "cluster"
    if isinstance(error, (MgclustError, OSError, KeyboardInterrupt)):
        return "cluster"
    return "mgclust"


def _disk_is_full(error: BaseException) -> bool:
    return isinstance(error, OSError) and error.errno == errno.ENOSPC


def message_of(error: BaseException) -> str:
    """Return the error message of a job, in one sentence."""
    if _disk_is_full(error):
        return "there is no space left where the service keeps its results; free some space, then retry the job."
    if isinstance(error, KeyboardInterrupt):
        return "the attempt was told to stop."
    text = " ".join(str(error).split())
    from mgclust.base.errors import MgclustError

    if isinstance(error, MgclustError):
        return text
    return (
        f"{type(error).__name__}: {text}"
        if quoting()
        else f"{type(error).__name__}, in mgclust itself; ask the administrator to report it with the log."
    )


if __name__ == "__main__":
    run_child(main)
