"""What a job reads, in the process that reads it.

Its files come as an order, ``{name: Beneath.order()}``, named as `named_sources` names them, and are opened there:
once, beneath their roots. A sentence about a file that is named by a path or a URL may reach
users without the right to read the file; it then quotes nothing of it.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mgclust.beneath import Beneath
from mgclust.errors import MgclustError
from mgclust.quoting import quote_nothing, quoting

__all__ = ["descriptors", "files_of", "named_sources", "open_inputs", "print_error", "restore_names"]


def named_sources(record: dict[str, Any]) -> dict[str, dict[str, str]]:
    """All that a job reads, of what `Submission.to_record` made: "0", "1", ..., "mask", and parameters' names."""
    found = {str(k): source for k, source in enumerate(record["sources"])}
    found |= {"mask": record["mask"]} if record.get("mask") else {}
    return found | {name: value for name, value in record.get("parameters", {}).items() if isinstance(value, dict)}


def files_of(order: Mapping[str, Mapping[str, Any]]) -> dict[str, Beneath]:
    """The files of an order, whose sentences quote them from now on only if all of them may be quoted."""
    files = {name: Beneath(**each) for name, each in order.items()}
    quote_nothing(not all(file.quotable for file in files.values()))
    return files


def descriptors(files: Mapping[str, Beneath]) -> list[int]:
    """Open the files that are there; what is wrong with others is said when they are read."""
    found = []
    for file in files.values():
        try:
            found.append(file.descriptor())
        except (OSError, MgclustError):
            continue
    return found


def open_inputs(method: Any, request: Mapping[str, Any], files: Mapping[str, Beneath]) -> Any:
    """Open the rows or the graph of a job."""
    from mgclust.file_run import open_sources

    options = dict(request.get("options") or {})
    if "mask" in files:
        options["mask"] = files["mask"]
    return open_sources(method, [file for name, file in files.items() if name.isdigit()], **options)


def restore_names(sentence: str, request: dict[str, Any], files: Mapping[str, Mapping[str, Any]]) -> str:
    """A sentence with files under the names of the request, not those of the service."""
    called = named_sources({"sources": [], **request})
    paths = {Beneath(**file).path: called.get(name, {}) for name, file in files.items()}
    for path in sorted(paths, key=len, reverse=True):
        sentence = sentence.replace(path, paths[path].get("name") or Path(path).name)
    return sentence


def print_error(error: BaseException) -> None:
    """What went wrong, for the log; where nothing may be quoted, by the places alone and not what libraries said."""
    if quoting():
        traceback.print_exception(error)
        return
    print("Traceback (most recent call last):", file=sys.stderr)
    traceback.print_tb(error.__traceback__)
    said = f": {error}" if isinstance(error, MgclustError) else ""
    print(f"{type(error).__qualname__}{said}", file=sys.stderr)
