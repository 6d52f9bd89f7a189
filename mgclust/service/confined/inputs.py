"""The inputs of a job, in the process that reads them.

An order names the files as ``{name: RootedFile.order()}``, with the names of `named_sources`. Each file is opened once,
below its root. If a path names the file, error messages about it may reach users without the right to read it, so these
messages quote nothing of its content.
"""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mgclust.base.errors import MgclustError
from mgclust.outside.quoting import quote_nothing, quoting
from mgclust.outside.rooted_files import RootedFile

if TYPE_CHECKING:
    from mgclust.data import Dataset

__all__ = ["descriptors", "named_sources", "open_inputs", "ordered_files", "restore_names", "traceback_of"]

_LISTS = ("confounds", "surfaces", "atlas")  # options of `open_dataset` that name several files


def named_sources(record: dict[str, Any]) -> dict[str, dict[str, str]]:
    """Return the sources in a record of `Submission.to_record`, by name.

    The names are "0", "1", ... for the sources, "mask", "confounds-0", "confounds-1", ... and likewise for surfaces and
    the atlas, and names of parameters.
    """
    found = {str(k): source for k, source in enumerate(record["sources"])}
    found |= {"mask": record["mask"]} if record.get("mask") else {}
    found |= {f"{name}-{k}": source for name in _LISTS for k, source in enumerate(record.get(name) or [])}
    return found | {name: value for name, value in record.get("parameters", {}).items() if isinstance(value, dict)}


def ordered_files(order: Mapping[str, Mapping[str, Any]]) -> dict[str, RootedFile]:
    """Return the files of an order. From now on, errors quote content only if all files may be quoted."""
    files = {name: RootedFile(**each) for name, each in order.items()}
    quote_nothing(not all(file.quotable for file in files.values()))
    return files


def descriptors(files: Mapping[str, RootedFile]) -> list[int]:
    """Open the files that exist. Problems of other files are reported when they are read."""
    found = []
    for file in files.values():
        try:
            found.append(file.descriptor())
        except (OSError, MgclustError):
            continue
    return found


def open_inputs(method: Any, request: Mapping[str, Any], files: Mapping[str, RootedFile]) -> Dataset:
    """Open the rows or the graph of a job."""
    from mgclust.output.file_run import open_sources

    options = dict(request.get("options") or {})
    if "mask" in files:
        options["mask"] = files["mask"]
    for option in _LISTS:
        if several := [file for name, file in files.items() if name.startswith(f"{option}-")]:
            options[option] = several
    return open_sources(method, [file for name, file in files.items() if name.isdigit()], **options)


def restore_names(sentence: str, request: dict[str, Any], files: Mapping[str, Mapping[str, Any]]) -> str:
    """Replace paths of the service in a message by the names in the request."""
    called = named_sources({"sources": [], **request})
    paths = {RootedFile(**file).path: called.get(name, {}) for name, file in files.items()}
    for path in sorted(paths, key=len, reverse=True):
        sentence = sentence.replace(path, paths[path].get("name") or Path(path).name)
    return sentence


def traceback_of(error: BaseException) -> str:
    """Return the traceback for the log, without messages of libraries if content must not be quoted."""
    if quoting():
        return "".join(traceback.format_exception(error))
    message = f": {error}" if isinstance(error, MgclustError) else ""
    lines = "".join(traceback.format_tb(error.__traceback__))
    return f"Traceback (most recent call last):\n{lines}{type(error).__qualname__}{message}\n"
