"""The command line that repeats a job of the service, for its report: made of the request that the job stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mgclust.algorithms import METHODS
from mgclust.data.options import GRAPH_OPTIONS, ROW_OPTIONS
from mgclust.service.confined.inputs import named_sources

__all__ = ["command_of"]


def command_of(request: Mapping[str, Any]) -> list[str]:
    """Return the words of ``mgclust run`` that repeat a job.

    Parameters
    ----------
    request : mapping
        The stored request of the job, with its ``method``. Files are named as the user named them.

    Returns
    -------
    list of str
        Empty if no command repeats the job: some limits of chosen centres are not options of the command line.
    """
    method = METHODS[request["method"]]
    files = {name: _file(source) for name, source in named_sources(dict(request)).items()}
    given = {**request.get("parameters", {}), **(request.get("centers") or {})}
    given = {name: files.get(name, value) for name, value in given.items() if value is not None}
    if not given.keys() <= {option.name for option in method.options()}:
        return []
    words = ["mgclust", "run", request["method"], *(file for name, file in files.items() if name.isdigit())]
    if "mask" in files:
        given["mask"] = files["mask"]
    for several in ("confounds", "surfaces", "atlas"):
        if named := [file for name, file in files.items() if name.startswith(f"{several}-")]:
            given[several] = ",".join(named)
    defaults = {option.name: option.default for option in (GRAPH_OPTIONS if method.opens == "graph" else ROW_OPTIONS)}
    options = request.get("options") or {}
    given |= {name: value for name, value in options.items() if value is not None and value != defaults[name]}
    for name, value in given.items():
        words += _option(name, value)
    place = request.get("resources") or {}
    if place.get("workers"):
        words += ["--cpu", "--workers", str(place["workers"])]
    elif place.get("gpus"):
        words += ["--gpus", str(place["gpus"])]
    return [*words, "-o", "result"]


def _file(source: Mapping[str, str]) -> str:
    """Return the name of a file in the folder where the user runs the command, or its path on the service's machine."""
    if "job" in source:
        return f"job-{source['job'][:8]}/labels.npy"  # of a result that the user has fetched
    name = source.get("path") or source.get("name") or f"upload-{source['upload']}"
    return f"./{name}" if name.startswith("-") else name


def _option(name: str, value: Any) -> list[str]:
    flag = f"--{name.replace('_', '-')}"
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    return [flag, ",".join(map(str, value)) if isinstance(value, list) else str(value)]
