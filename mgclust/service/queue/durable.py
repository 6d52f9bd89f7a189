"""Small files of the data folder that are complete, or absent, after a loss of power."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["append_durably", "write_durably"]


def write_durably(path: Path, text: str) -> None:
    """Replace a file that only this account may read; return after the disk holds its content and its name."""
    partial = path.with_name(f"{path.name}.partial")
    partial.unlink(missing_ok=True)
    with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    partial.rename(path)
    _keep_names(path.parent)


def append_durably(path: Path, lines: str) -> None:
    """Add one or more lines to a file that only this account may read; return after the disk holds them."""
    new = not path.exists()
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW
    with os.fdopen(os.open(path, flags, 0o600), "a+b") as file:
        size = file.tell()
        # If a process was killed while it wrote the last line, the new lines must not continue it.
        whole = size == 0 or os.pread(file.fileno(), 1, size - 1) == b"\n"
        file.write((lines if whole else f"\n{lines}").encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())
    if new:
        _keep_names(path.parent)


def _keep_names(folder: Path) -> None:
    """Write the names of new files in a folder to the disk, without which the files would be lost."""
    number = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
