"""Logs and results of attempts, read as files that a hostile process may have written.

An attempt may write anything in its own folder, and the data that it reads may have taken it over. So nothing there is
read by path. Files are opened below the folder of the job, which the attempt cannot replace, without following links,
and only if they are regular files or folders (`mgclust.outside.rooted_files`). Listings and reads are limited.
"""

from __future__ import annotations

import codecs
import contextlib
from collections.abc import Iterator
from typing import Any

from mgclust.base.errors import InputError, MgclustError
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.child_messages import Findings, check_findings, parse_object
from mgclust.service.settings import Settings

__all__ = ["list_files", "open_result", "read_findings", "read_logs"]

MAX_LOG_BYTES, MAX_LOGS = 1 << 20, 100  # limits of the shown logs of all attempts of a job
LOG_CHUNK_BYTES = 64 << 10
MAX_SCORES_BYTES = 1 << 22  # size of result.json
MAX_ENTRIES = 10_000  # files and folders of a result
MAX_DEPTH = 16  # levels of nested folders


def read_logs(settings: Settings, id_: str, attempts: int) -> Iterator[str]:
    """Read the logs of all attempts of a job in parts: only the end of long logs, and only the last of many logs."""

    def log(attempt: int) -> RootedFile:
        return RootedFile(str(settings.job_folder(id_)), f"attempt-{attempt}/log.txt")

    most: dict[int, int] = {}  # bytes of each log to show
    left, first = MAX_LOG_BYTES, attempts + 1
    while first > 1 and left > 0 and len(most) < MAX_LOGS:
        first -= 1
        most[first] = left
        with contextlib.suppress(OSError, InputError):
            left -= log(first).status().st_size
    if first > 1:
        yield f"the logs of attempts 1 to {first - 1} are left out.\n"
    for attempt in range(first, attempts + 1):
        if attempts > 1:
            yield f"attempt {attempt}\n"
        yield from _without(str(settings.data), _read_end(log(attempt), most[attempt]))


def _without(path: str, parts: Iterator[str]) -> Iterator[str]:
    """Replace the path of the data folder, which users need not know, also where two parts meet."""
    rest = ""
    for part in parts:
        text = (rest + part).replace(path, "DATA")
        cut = len(text) - len(path) + 1
        rest = text[max(0, cut) :]
        if cut > 0:
            yield text[:cut]
    if rest:
        yield rest


def _read_end(log: RootedFile, most: int) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    try:
        with log.open() as file:
            start = file.seek(max(0, log.status().st_size - most))
            if start:
                yield f"the first {start} bytes are left out.\n"
            while part := file.read(min(LOG_CHUNK_BYTES, start + most - file.tell())):
                yield decoder.decode(part)
    except FileNotFoundError:
        return
    except (OSError, InputError):
        yield "the log is not a regular file and is not shown.\n"


def open_result(settings: Settings, id_: str, attempt: int) -> RootedFile | None:
    """Open the result of an attempt; return None if there is no result."""
    result = RootedFile(str(settings.job_folder(id_)), f"attempt-{attempt}/result")
    try:
        return result if result.is_directory() else None
    except (OSError, InputError):
        return None


def list_files(result: RootedFile) -> list[dict[str, Any]]:
    """List the regular files of a result with their sizes, sorted by name.

    Raises
    ------
    InputError
        There are too many files, or they are nested too deeply.
    """
    found: list[dict[str, Any]] = []
    folders, looked = [""], 0
    while folders:
        folder = folders.pop()
        for name, is_folder in result.listed(folder):
            looked += 1
            path = f"{folder}/{name}" if folder else name
            if looked > MAX_ENTRIES or path.count("/") > MAX_DEPTH:
                raise InputError(
                    f"the result holds more than {MAX_ENTRIES} files, or folders more than {MAX_DEPTH} deep; its files "
                    "can only be fetched by their names."
                )
            if is_folder:
                folders.append(path)
            else:
                try:
                    found.append({"name": path, "size": result.inside(path).status().st_size})
                except (OSError, InputError):
                    continue
    return sorted(found, key=lambda each: each["name"].split("/"))


def read_findings(settings: Settings, id_: str, attempt: int) -> Findings | None:
    """Read the scores and warnings of a complete result; return None if there is no complete result."""
    result = open_result(settings, id_, attempt)
    if result is None:
        return None
    try:
        with result.open_inside("result.json") as file:
            content = file.read(MAX_SCORES_BYTES + 1)
        return check_findings(parse_object(content)) if len(content) <= MAX_SCORES_BYTES else None
    except (OSError, MgclustError, ValueError, KeyError):
        return None
