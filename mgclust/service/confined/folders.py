"""Size and removal of folders that a hostile process may have written."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
from pathlib import Path

__all__ = ["DELETED_SUFFIX", "remove", "set_aside", "size_of"]

DELETED_SUFFIX = ".deleted"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def size_of(path: Path) -> int:
    """Return the bytes of a file, or of all files in a folder; 0 if it does not exist. Links are not followed.

    An attempt may nest folders deeper than the limits of recursion, open files and paths. So only one folder is open
    at a time, and ``..`` leads back.
    """
    try:
        status = os.lstat(path)
        if not stat.S_ISDIR(status.st_mode):
            return status.st_size
        number = _enter(path)
    except OSError:
        return 0
    above: list[tuple[tuple[int, int], list[str]]] = []  # parent folders, each with the names still to visit
    try:
        total, names = _content(number)
        while names or above:
            if names:
                with contextlib.suppress(OSError):  # the folder was removed
                    below = _enter(names.pop(), number)
                    above.append((_identity(number), names))
                    os.close(number)
                    number = below
                    size, names = _content(number)
                    total += size
            else:
                identity, names = above.pop()
                parent = os.open("..", _FOLDER, dir_fd=number)
                os.close(number)
                number = parent
                if _identity(number) != identity:  # the folder was moved meanwhile
                    break
    except OSError:
        pass
    finally:
        os.close(number)
    return total


def _content(number: int) -> tuple[int, list[str]]:
    """Return the bytes of the files in an open folder, and the names of its subfolders."""
    total, folders = 0, []
    with os.scandir(number) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(entry.name)
            else:
                with contextlib.suppress(OSError):
                    total += entry.stat(follow_symlinks=False).st_size
    return total, folders


def _identity(number: int) -> tuple[int, int]:
    status = os.fstat(number)
    return status.st_dev, status.st_ino


def _enter(path: str | Path, parent: int | None = None) -> int:
    """Open a folder without following links, and make it readable and writable for its owner."""
    try:
        number = os.open(path, _FOLDER, dir_fd=parent)
    except PermissionError:
        _make_accessible(path, parent)
        return os.open(path, _FOLDER, dir_fd=parent)
    mode = stat.S_IMODE(os.fstat(number).st_mode)
    if mode & stat.S_IRWXU != stat.S_IRWXU:
        with contextlib.suppress(OSError):  # the folder belongs to another owner
            os.fchmod(number, mode | stat.S_IRWXU)
    return number


def _make_accessible(path: str | Path, parent: int | None) -> None:
    """Set the mode of a folder that cannot be opened for reading, by a descriptor, so that it cannot be replaced."""
    if not hasattr(os, "O_PATH"):  # not Linux
        os.chmod(path, stat.S_IRWXU, dir_fd=parent, follow_symlinks=False)
        return
    number = os.open(path, os.O_PATH | _FOLDER, dir_fd=parent)
    try:
        os.chmod(f"/proc/self/fd/{number}", stat.S_IRWXU)  # fchmod does not accept O_PATH descriptors
    finally:
        os.close(number)


def set_aside(folder: Path, beside: Path) -> Path | None:
    """Move a folder into the folder `beside`, where a sweep removes it; return None if this is not possible."""
    target = beside / f"{secrets.token_hex(8)}{DELETED_SUFFIX}"
    try:
        try:
            os.rename(folder, target)
        except PermissionError:  # a folder can only be moved if it is writable, like both parents
            for each in (folder.parent, folder):
                os.close(_enter(each))
            os.rename(folder, target)
    except OSError:
        return None
    return target


def remove(folder: Path) -> None:
    """Remove a folder and its content as far as possible. Links are not followed.

    An attempt may nest folders deeper than the limits of recursion, open files and paths. So only folders of the first
    level are entered, and their subfolders are moved up to this level.
    """
    try:
        top = _enter(folder)
    except OSError:
        if folder.name.endswith(DELETED_SUFFIX):  # an attempt may have left anything instead of a folder
            with contextlib.suppress(OSError):  # the file does not exist
                os.unlink(folder)
        return
    try:
        while _thin_out(top):
            pass
    finally:
        os.close(top)
    with contextlib.suppress(OSError):
        os.rmdir(folder)


def _thin_out(top: int) -> bool:
    """Remove files and empty folders of the first level, and lift subfolders; return whether anything changed."""
    done = False
    with contextlib.suppress(OSError), os.scandir(top) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if not entry.is_dir(follow_symlinks=False):
                    os.unlink(entry.name, dir_fd=top)
                else:
                    done |= _lift(entry.name, top)
                    os.rmdir(entry.name, dir_fd=top)
                done = True
    return done


def _lift(name: str, top: int) -> bool:
    """Remove the files of a folder, and move its subfolders one level up; return whether anything changed."""
    done = False
    number = _enter(name, top)
    try:
        with os.scandir(number) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    if entry.is_dir(follow_symlinks=False):
                        os.close(_enter(entry.name, number))  # a folder can only be moved if it is writable
                        os.rename(entry.name, secrets.token_hex(16), src_dir_fd=number, dst_dir_fd=top)
                    else:
                        os.unlink(entry.name, dir_fd=number)
                    done = True
    finally:
        os.close(number)
    return done
