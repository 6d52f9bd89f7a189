"""Output directories that appear under their final name only when they are complete."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

from mgclust.base.errors import InputError
from mgclust.outside.json_text import parse_json

__all__ = ["atomic_directory", "check_target"]


def check_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Reject an output directory that could not be written, before anything is computed.

    Parameters
    ----------
    path : path
        The directory that a run is going to create.
    overwrite : bool
        Whether an earlier result may be replaced.

    Returns
    -------
    Path
        `path` as an absolute path.

    Raises
    ------
    InputError
        The directory exists and may not be replaced, or its parent is missing or cannot be written.
    """
    target = Path(os.path.abspath(path))
    if os.path.lexists(target):
        _check_replaceable(target, overwrite)
    parent = target.parent
    if not parent.is_dir():
        problem = "is not a directory" if parent.exists() else "does not exist"
        raise InputError(f"output={str(path)!r} cannot be made: {str(parent)!r} {problem}; choose another folder.")
    probe = parent / _temporary_name(target)
    try:
        # Permission bits do not show everything (root, read-only file systems, quotas), so try to create a directory.
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"output={str(path)!r} cannot be made in {str(parent)!r}: {reason}.") from None
    return target


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Create a directory that gets its final name when the ``with`` block succeeds, and is removed if the block fails.

    Parameters
    ----------
    path : path
        Final name of the directory.
    overwrite : bool
        Passed to `check_target`, which is called first.

    Yields
    ------
    Path
        The directory under its temporary name, to be filled.
    """
    target = check_target(path, overwrite)
    temporary = target.parent / _temporary_name(target)
    try:
        temporary.mkdir()
        yield temporary
        for file in (*temporary.rglob("*"), temporary):
            _flush(file)
        _put_in_place(temporary, target)
        _flush(target.parent)
    finally:
        # After an error or Ctrl-C, the directory still has its temporary name.
        shutil.rmtree(temporary, ignore_errors=True)


def _check_replaceable(target: Path, overwrite: bool) -> None:
    """Reject an existing target, unless it may be overwritten and is empty or holds only files that its run wrote."""
    if not overwrite:
        raise InputError(f"output={str(target)!r} exists; choose another name, or give overwrite=True (--overwrite).")
    folder = target.is_dir() and not target.is_symlink()
    there = {each.name for each in target.iterdir()} if folder else set()
    others = sorted(there - _written(target))
    if not folder or (others and "result.json" not in there):
        raise InputError(
            f"output={str(target)!r} exists and is not a result directory, so it is not overwritten; "
            f"choose another name."
        )
    if others:
        raise InputError(
            f"output={str(target)!r} holds {others[0]!r}, which its run did not write, so it is not overwritten; "
            "move it away, or choose another name."
        )


def _written(target: Path) -> set[str]:
    """Return the names of the files that a run wrote, as listed in the result."""
    try:
        files = parse_json((target / "result.json").read_bytes())["files"]
        return {name for name in files if isinstance(name, str)}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def _put_in_place(temporary: Path, target: Path) -> None:
    if not target.exists():
        temporary.rename(target)
        return
    old = target.parent / _temporary_name(target)
    try:
        target.rename(old)
        temporary.rename(target)
    finally:
        if old.exists() and not target.exists():
            old.rename(target)
        shutil.rmtree(old, ignore_errors=True)


def _temporary_name(target: Path) -> str:
    return f".{target.name}.{secrets.token_hex(4)}.partial"


def _flush(path: Path) -> None:
    """Flush a file or folder to disk, so that it is complete before the directory is renamed."""
    with contextlib.suppress(OSError):  # some file systems refuse to sync directories
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
