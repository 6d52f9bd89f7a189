"""What attempts have left: logs and results, read as something that a hostile process may have written.

An attempt may write all of its job's folder, and the data that it reads may have taken it over. Nothing there is read
by its path: it is opened beneath the folder of the job, which the attempt cannot replace, through no link, and only if
it is a file or a folder (`mgclust.beneath`). What is listed or read at once has a bound.
"""

from __future__ import annotations

from typing import Any

from mgclust.beneath import Beneath
from mgclust.errors import InputError, MgclustError
from mgclust.service.answers import check_scores, parse_object
from mgclust.service.settings import Settings

__all__ = ["list_files", "open_result", "read_log", "read_scores"]

MAX_LOG_BYTES = 1 << 20
MAX_SCORES_BYTES = 1 << 22  # of a result.json that the runner reads
MAX_ENTRIES = 10_000  # files and folders of a result
MAX_DEPTH = 16  # folders within each other


def read_log(settings: Settings, id_: str, attempt: int) -> str:
    """The end of an attempt's log; what is no log is not shown."""
    log = Beneath(str(settings.job_folder(id_)), f"attempt-{attempt}/log.txt")
    try:
        with log.open() as file:
            file.seek(max(0, log.status().st_size - MAX_LOG_BYTES))
            return file.read(MAX_LOG_BYTES).decode("utf-8", "replace")
    except FileNotFoundError:
        return ""
    except (OSError, InputError):
        return "the log is not a file of its own and is not shown.\n"


def open_result(settings: Settings, id_: str, attempt: int) -> Beneath | None:
    """The result that an attempt has left, opened; None where there is none."""
    result = Beneath(str(settings.job_folder(id_)), f"attempt-{attempt}/result")
    try:
        return result if result.is_directory() else None
    except (OSError, InputError):
        return None


def list_files(result: Beneath) -> list[dict[str, Any]]:
    """Names and sizes of a result's files, in sorted order; links and what is no file are left out.

    Raises
    ------
    InputError
        There are more than a result has.
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
                    "can be fetched by their names only."
                )
            if is_folder:
                folders.append(path)
            else:
                try:
                    found.append({"name": path, "size": result.inside(path).status().st_size})
                except (OSError, InputError):
                    continue
    return sorted(found, key=lambda each: each["name"].split("/"))


def read_scores(settings: Settings, id_: str, attempt: int) -> dict[str, Any] | None:
    """The scores of a whole result that an attempt has left; None where there is none."""
    result = open_result(settings, id_, attempt)
    if result is None:
        return None
    try:
        with result.open_inside("result.json") as file:
            content = file.read(MAX_SCORES_BYTES + 1)
        return check_scores(parse_object(content)) if len(content) <= MAX_SCORES_BYTES else None
    except (OSError, MgclustError, ValueError, KeyError, RecursionError):
        return None
