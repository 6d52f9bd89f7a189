"""The process that reads results and data, for pictures and for other centres, instead of the web process.

It reads an order on its standard input, one line of JSON, and answers with one line::

    in    {"do": "points", "result": {...}, "files": {...}, "request": {...}, "seconds": ..., "memory": ..., ...}
    out   {"answer": ...} or {"error": message, "kind": "input" or "limit"} or {"error": traceback, "kind": "mgclust"}

The process gives up all rights that the order does not need (`mgclust.service.confined.confine`) and the network. Its
memory, time and written bytes are limited. Each order runs in a new process, a fork of
`mgclust.service.confined.fork_server`.
"""

from __future__ import annotations

import errno
import itertools
import json
import math
import os
import resource
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil

from mgclust.algorithms import METHODS
from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError
from mgclust.data import Dataset
from mgclust.output.file_run import compared, save
from mgclust.output.report import sample_index, sample_rows
from mgclust.outside.json_text import parse_json
from mgclust.outside.quoting import quoting, shortened
from mgclust.outside.rooted_files import RootedFile
from mgclust.params import check_parameters
from mgclust.plots import cluster_colors
from mgclust.results.label_agreement import adjusted_rand
from mgclust.results.result import Result, load_result
from mgclust.service.confined.caches import cache_folders
from mgclust.service.confined.child_messages import MAX_ERROR_CHARACTERS, MAX_READING_BYTES, TOO_LARGE, Findings
from mgclust.service.confined.command import command_of
from mgclust.service.confined.confine import confine, exit_with_parent
from mgclust.service.confined.fork_server import run_child
from mgclust.service.confined.inputs import descriptors, open_inputs, ordered_files, restore_names, traceback_of

__all__ = ["main"]

MAX_POINTS = 4_000  # points of the picture on the page
# Rows of the decision graph: those with the largest products, and a sample of the others.
MAX_RANKED, MAX_UNRANKED = 2_000, 3_000
# Limit for formats that have to be read completely to get some rows: a picture is not worth a longer wait.
MAX_READ_BYTES = 256 << 20
PARTIAL_SUFFIXES = (".npy", ".zarr")
MAX_OPEN_FILES = 2_048  # enough for a job, which has up to 1,000 sources
OTHER_OPEN_FILES = 64  # open files in addition to the files of the job


def preview(order: dict[str, Any]) -> dict[str, Any]:
    """Preview the clusters that other centres would give."""
    model = _with_centers(order)
    index = sample_index(model.result_.source["shape"], MAX_POINTS)
    labels = model.labels_[index].tolist() if order["labels"] else None
    quantities = [_quantity(model.result_, axis.name) for axis in model.presentation.decision_graph]
    centers = model.cluster_centers_indices_
    return {
        "n_clusters": model.n_clusters_,
        "centers": centers.tolist(),
        "places": [list(place) for place in zip(*(each[centers].tolist() for each in quantities), strict=True)],
        "colors": [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in np.rint(255 * cluster_colors(len(centers))).astype(int)],
        "warnings": [str(text) for text in model.result_.warnings],
        "sizes": model.result_.cluster_sizes.tolist(),
        "labels": labels,
    }


def graph(order: dict[str, Any]) -> dict[str, Any]:
    """Return the rows of the decision graph with the largest products, and a sample of the others."""
    result = _result(order)
    axes = METHODS[result.method].presentation.decision_graph
    if not axes:
        raise InputError(f"method={result.method!r} has no decision graph; use its pictures.")
    right, up = (_quantity(result, axis.name) for axis in axes)
    product = right * up
    ranked = np.argsort(-product, kind="stable")[:MAX_RANKED]
    others = np.setdiff1d(np.arange(len(product)), ranked)
    others = others[sample_index((len(others), 1), MAX_UNRANKED)]
    rows = np.concatenate([ranked, others])
    return {
        "rows": rows.tolist(),
        "right": _rounded(right[rows]),
        "up": _rounded(up[rows]),
        "ranked": len(ranked),
        "total": len(product),
    }


def _quantity(result: Result, name: str) -> np.ndarray:
    return np.asarray(result.arrays[name], dtype=np.float64)


def _rounded(values: np.ndarray) -> list[float]:
    """Return values with eight digits, which make a shorter answer."""
    return [float(f"{value:.8g}") for value in values.tolist()]


def labels(order: dict[str, Any]) -> None:
    """Write the labels of all rows for other centres."""
    np.save(Path(order["folder"], "labels.npy"), _with_centers(order).labels_, allow_pickle=False)


def points(order: dict[str, Any]) -> dict[str, Any]:
    """Sample rows for a picture, or return the reason why there are none."""
    result = _model(order).result_
    try:
        for file in order["opened"].values():
            large = not file.path.endswith(PARTIAL_SUFFIXES) and file.status().st_size > MAX_READ_BYTES
            if large:
                raise InputError("the file is too large to be read for a picture.")
        dataset = _open_source(order, result)
        sample: Any = sample_rows(dataset, result, MAX_POINTS)
    except InputError as error:
        return {"index": [], "x": [], "y": [], "why": _message(error, order)}
    except OSError as error:
        return {"index": [], "x": [], "y": [], "why": _unreadable(error)}
    y = sample.rows[:, 1] if dataset.shape[1] > 1 else np.zeros(len(sample.index))
    names = [shortened(name, 40) for name in (dataset.feature_names or [])[:2]] if quoting() else []
    return {"index": sample.index.tolist(), "x": _rounded(sample.rows[:, 0]), "y": _rounded(y), "names": names}


def _unreadable(error: OSError) -> str:
    return f"the source cannot be read: {error.strerror or type(error).__name__}."


def save_choice(order: dict[str, Any]) -> dict[str, Any]:
    """Write the result for other centres, and return its scores and warnings."""
    model = _with_centers(order)
    try:
        dataset = _open_source(order, model.result_)
        found = compared(model.result_, dataset)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise InputError(_unreadable(error)) from error
    request = order["request"]
    before = {*model.center_parameters, *model.discarded_by_centers}
    kept = {name: value for name, value in request["parameters"].items() if name not in before}
    command = command_of(request | {"parameters": kept, "centers": order["centers"]})
    save(
        found, dataset, Path(order["folder"], "result"), False, request.get("report", True), command, lambda event: None
    )
    outcome = found.to_dict()
    return {name: outcome[name] for name in Findings._fields}


def agreement(order: dict[str, Any]) -> dict[str, Any]:
    """Return the adjusted Rand index of each pair of results, and notes about pairs without one."""
    names, notes, found = order["names"], [], []
    for result, name in zip([order["result"], *order["others"]], names, strict=True):
        loaded = _result({"result": result})
        if loaded.labels is None:
            notes.append(f"{name} is a result of {loaded.method}, which has no labels.")
        found.append((loaded.labels, loaded.source.get("sha256")))
    lengths = {len(labels) for labels, _ in found if labels is not None}
    if len(lengths) > 1:
        notes.append("The jobs have different numbers of rows; only jobs with equally many rows are compared.")
    if len({(len(labels), source) for labels, source in found if labels is not None}) > len(lengths):
        notes.append("The jobs read different data: check that their rows are the same.")
    matrix: list[list[float | None]] = [[None] * len(found) for _ in found]
    for (k, (one, _)), (m, (other, _)) in itertools.combinations_with_replacement(enumerate(found), 2):
        if one is not None and other is not None and len(one) == len(other):
            matrix[k][m] = matrix[m][k] = 1.0 if k == m else adjusted_rand(one, other)
    return {"ari": matrix, "notes": notes}


TASKS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "preview": preview, "graph": graph, "labels": labels, "points": points, "save": save_choice, "agreement": agreement,
}  # fmt: skip


def main() -> None:
    """Carry out an order."""
    exit_with_parent(os.getppid())
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    most = MAX_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_OPEN_FILES)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    answers = os.dup(1)
    os.dup2(2, 1)  # output of libraries must not be taken for an answer
    if line := sys.stdin.buffer.readline():
        answer = json.dumps(_run_confined(parse_json(line))).encode()
        if len(answer) >= MAX_READING_BYTES:
            answer = json.dumps(_limit(f"gives more than {MAX_READING_BYTES} bytes; ask for fewer clusters")).encode()
        with open(answers, "wb") as pipe:
            pipe.write(answer + b"\n")


def _limit(what: str) -> dict[str, Any]:
    return {"error": TOO_LARGE.format(what), "kind": "limit"}


def _run_confined(order: dict[str, Any]) -> dict[str, Any]:
    count, most = len(order.get("files", {})), resource.getrlimit(resource.RLIMIT_NOFILE)[0] - OTHER_OPEN_FILES
    if count > most:
        why = f"the job has {count} files, but a process may open {most}; ask the administrator to raise `ulimit -n`."
        return {"error": why, "kind": "limit"}
    try:
        opened, result = ordered_files(order.get("files", {})), RootedFile(**order["result"])
        others = [RootedFile(**each) for each in order.get("others", [])]
        results = [each.descriptor() for each in (result, *others)]
        readable: list[str | int] = [*results, *descriptors(opened), *cache_folders(order["hidden"])]
        for folder in order["writable"]:
            tempfile.tempdir = os.environ["TMPDIR"] = folder
        confine(order["hidden"], readable, order["writable"], reading_only=True)
        _limit_resources(order)
        return {"answer": TASKS[order["do"]](order | {"opened": opened, "result": result, "others": others})}
    except (InsufficientMemoryError, MemoryError) as error:
        why = _message(error, order) if isinstance(error, MgclustError) else ""
        return {"error": why, "kind": "limit"} if why else _limit(f"needs more than {order['memory']} bytes of memory")
    except InputError as error:
        return {"error": _message(error, order), "kind": "input"}
    except FileNotFoundError:
        return {"error": "the file does not exist any more; send the request again.", "kind": "input"}
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            return {"error": os.strerror(errno.ENOSPC), "kind": "space"}
        # The web process logs this error, because this process has no log.
        return {"error": traceback_of(error)[-MAX_ERROR_CHARACTERS:], "kind": "mgclust"}


def _limit_resources(order: dict[str, Any]) -> None:
    memory, seconds = int(order["memory"]), math.ceil(order["seconds"])
    has = psutil.Process().memory_info()
    for what, most in (
        (resource.RLIMIT_DATA, getattr(has, "data", has.vms) + memory),
        (resource.RLIMIT_CPU, 2 * seconds),
        (resource.RLIMIT_FSIZE, 4 * memory if order["writable"] else 0),
    ):
        resource.setrlimit(what, (most, most))


def _with_centers(order: dict[str, Any]) -> Any:
    model = _model(order)
    return model.select_centers(**check_parameters(model.center_parameters, order["centers"]))


def _model(order: dict[str, Any]) -> Any:
    """Restore the estimator as it was when it had found the result."""
    result = _result(order)
    able: dict[str, Any] = {name: method for name, method in METHODS.items() if method.center_parameters}
    if result.method not in able:
        names = " or ".join(able)
        raise InputError(f"method={result.method!r}: other centres can only be chosen for a result of {names}.")
    return able[result.method].from_result(result)


def _result(order: dict[str, Any]) -> Result:
    result = order["result"]
    try:
        return load_result(result)
    except InputError as error:
        raise InputError(str(error).replace(result.path, result.name)) from None


def _open_source(order: dict[str, Any], result: Result) -> Dataset:
    if order["refused"]:
        raise InputError(order["refused"])
    dataset = open_inputs(METHODS[result.method], order["request"], order["opened"])
    if dataset.shape != tuple(result.source["shape"]):
        raise InputError("the source has changed since the job read it; run the job again.")
    return dataset


def _message(error: BaseException, order: dict[str, Any]) -> str:
    return restore_names(" ".join(str(error).split()), order.get("request", {}), order.get("files", {}))


if __name__ == "__main__":
    run_child(main)
