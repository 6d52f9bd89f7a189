"""Files that users name, opened beneath a folder: once, through no link, and nothing that is not a file.

A path that was checked may lead elsewhere by the time it is opened: any of its parts may have been replaced by a link
meanwhile. So nothing is checked first. The folder is opened, then the file relative to it, by ``openat2`` with
``RESOLVE_BENEATH`` and ``RESOLVE_NO_SYMLINKS`` where the kernel has it (Linux 5.6), else part by part with
``O_NOFOLLOW``. What was opened is looked at through its descriptor, which is kept: all that is read comes from it. A
FIFO, a device or a socket is refused without waiting for it.

A hard link is no link that an open could notice. Where the kernel lets any user make one to a file of another
(``fs.protected_hardlinks=0``), a file of the service itself might be had that way: a file that belongs to the user that
opens it and has a second name is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import io
import os
import stat
import sys
import threading
from collections.abc import Iterator
from typing import IO, Any

from mgclust.base.errors import InputError

__all__ = ["RootedFile", "protection"]

_OPENAT2 = 437
_NO_SYMLINKS, _BENEATH = 0x04, 0x08  # RESOLVE_...
_PATH = getattr(os, "O_PATH", 0)
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NOCTTY
_LINK = "is a link, or lies behind one; links are not followed: name the file itself"
_KINDS = {
    stat.S_IFIFO: "a FIFO", stat.S_IFSOCK: "a socket", stat.S_IFCHR: "a device", stat.S_IFBLK: "a device",
}  # fmt: skip


class RootedFile:
    """A file, or a folder of files such as a zarr store, beneath a root; picklable, and then opened again.

    Parameters
    ----------
    root : str
        Absolute path of a folder; links in it are followed.
    name : str
        Path relative to it, in which no link is followed; "" is the root itself.
    quotable : bool
        Whether sentences may quote the content; see `mgclust.outside.quoting`.
    """

    def __init__(self, root: str, name: str, quotable: bool = True) -> None:
        self.root, self.name, self.quotable = os.fspath(root), os.fspath(name), bool(quotable)
        self._kept: _Descriptor | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return RootedFile, (self.root, self.name, self.quotable)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootedFile) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.root, self.name))

    def __str__(self) -> str:
        return self.path

    def __repr__(self) -> str:
        return f"RootedFile({self.root!r}, {self.name!r})"

    @property
    def path(self) -> str:
        """Absolute path, for people and for its suffix; not to be opened."""
        return os.path.join(self.root, self.name).rstrip("/")

    def order(self) -> dict[str, Any]:
        """Arguments from which another process makes the same: ``RootedFile(**order)``."""
        return {"root": self.root, "name": self.name, "quotable": self.quotable}

    def descriptor(self) -> int:
        """Number of the descriptor that is kept."""
        return self._open().number

    def status(self) -> os.stat_result:
        """Status of what was opened, as it is now."""
        return os.fstat(self._open().number)

    def is_directory(self) -> bool:
        """Return whether it is a folder."""
        return stat.S_ISDIR(self.status().st_mode)

    def open(self) -> IO[bytes]:
        """Open for reading, from the beginning; every file object has a position of its own."""
        kept = self._open()
        if stat.S_ISDIR(os.fstat(kept.number).st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", self.path)
        return io.BufferedReader(_Bytes(kept), 2**16)

    def open_inside(self, name: str) -> IO[bytes]:
        """Open a file of the folder that this is."""
        kept = _Descriptor(_open_in(self._open().number, name, f"{self.path}/{name}"))
        if stat.S_ISDIR(os.fstat(kept.number).st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", f"{self.path}/{name}")
        return io.BufferedReader(_Bytes(kept), 2**16)

    def inside(self, name: str) -> RootedFile:
        """A file of the folder that this is."""
        return RootedFile(self.root, os.path.join(self.name, name), self.quotable)

    def listed(self, name: str = "") -> list[tuple[str, bool]]:
        """Names in the folder that this is, or in one in it, and which of them are folders; links are neither."""
        number = _open_in(self._open().number, name, f"{self.path}/{name}") if name else os.dup(self._open().number)
        try:
            with os.scandir(number) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(number)

    def files(self, name: str = "") -> Iterator[str]:
        """Names of all that is in the folder and its folders, relative to it, in sorted order of each folder."""
        for each, folder in sorted(self.listed(name)):
            below = f"{name}/{each}" if name else each
            if folder:
                yield from self.files(below)
            else:
                yield below

    def _open(self) -> _Descriptor:
        with self._lock:
            if self._kept is None:
                root = os.open(self.root, (_PATH or os.O_RDONLY) | os.O_DIRECTORY | os.O_CLOEXEC)
                try:
                    self._kept = _Descriptor(_open_in(root, self.name, self.path))
                finally:
                    os.close(root)
            return self._kept


def protection() -> str:
    """Means by which paths are held beneath their roots on this machine, for the service's log."""
    return "openat2" if _has_openat2() else "O_NOFOLLOW"


class _Descriptor:
    """A descriptor that is closed with the last that needs it."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Any = os.close) -> None:
        with contextlib.suppress(OSError):
            close(self.number)


class _Bytes(io.RawIOBase):
    """Bytes behind a descriptor, with a position of its own."""

    def __init__(self, kept: _Descriptor) -> None:
        self._kept, self._position = kept, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        base = (0, self._position, 0)[whence] if whence != os.SEEK_END else os.fstat(self._kept.number).st_size
        if base + offset < 0:
            raise OSError(errno.EINVAL, "Invalid argument")
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self._kept.number, [buffer], self._position)
        self._position += count
        return count

    def readall(self) -> bytes:
        parts = []
        while part := os.pread(self._kept.number, 2**24, self._position):
            parts.append(part)
            self._position += len(part)
        return b"".join(parts)


def _open_in(folder: int, name: str, path: str) -> int:
    """Open a file or folder in another for reading.

    Raises
    ------
    InputError
        It is something else, or lies behind a link.
    """
    name = name.strip("/") or "."
    if "\0" in name or ".." in name.split("/"):
        raise InputError(f"{path!r} should be a path without '..'.")
    try:
        if _PATH:  # looked at before it is opened: to open a device may already have an effect
            looked = _resolve(folder, name, _PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _check(os.fstat(looked), path)
            finally:
                os.close(looked)
        number = _resolve(folder, name, _READ)
    except OSError as error:
        raise _refusal(error, path) from None
    try:
        _check(os.fstat(number), path)  # it may have been replaced
    except BaseException:
        os.close(number)
        raise
    return number


def _refusal(error: OSError, path: str) -> Exception:
    if error.errno in (errno.ELOOP, errno.EXDEV, errno.EMLINK):
        return InputError(f"{path} {_LINK}.")
    if error.errno in (errno.ENXIO, errno.ENODEV):
        return InputError(f"{path} is not a file; give the path of a file.")
    if error.errno in (errno.EWOULDBLOCK, errno.ETXTBSY):
        return InputError(f"{path} is held by another program; try again once that has let go of it.")
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        return FileNotFoundError(errno.ENOENT, "No such file", path)
    return error


def _check(status: os.stat_result, path: str) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        raise InputError(f"{path} {_LINK}.")
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise InputError(f"{path} is {_KINDS.get(kind, 'no file')}, not a file; give the path of a file.")
    if kind == stat.S_IFREG and status.st_nlink > 1 and status.st_uid == os.geteuid():
        raise InputError(
            f"{path} has {status.st_nlink} names (hard links) and belongs to the user that reads it; copy the file, so "
            "that it has one."
        )


def _resolve(folder: int, name: str, flags: int) -> int:
    if not _has_openat2():
        return _resolve_by_parts(folder, name, flags)
    return _openat2(folder, name, flags)


def _resolve_by_parts(folder: int, name: str, flags: int) -> int:
    *parents, last = [part for part in name.split("/") if part not in ("", ".")] or ["."]
    here = os.dup(folder)
    try:
        for part in parents:
            wanted = (_PATH or os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
            try:
                below = os.open(part, wanted, dir_fd=here)
            except NotADirectoryError:
                if stat.S_ISLNK(os.stat(part, dir_fd=here, follow_symlinks=False).st_mode):
                    raise OSError(errno.ELOOP, "a link") from None
                raise
            os.close(here)
            here = below
        return os.open(last, flags, dir_fd=here)
    finally:
        os.close(here)


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


@functools.cache
def _has_openat2() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    try:
        os.close(_openat2(-100, ".", _PATH | os.O_CLOEXEC))  # AT_FDCWD
    except OSError as error:
        return error.errno not in (errno.ENOSYS, errno.EPERM)  # an old kernel, or a filter of system calls
    return True


@functools.cache
def _libc() -> Any:
    return ctypes.CDLL(None, use_errno=True)


def _openat2(folder: int, name: str, flags: int) -> int:
    how = _How(flags, 0, _NO_SYMLINKS | _BENEATH)
    number = _libc().syscall(
        ctypes.c_long(_OPENAT2), ctypes.c_int(folder), ctypes.c_char_p(os.fsencode(name)), ctypes.byref(how),
        ctypes.c_size_t(ctypes.sizeof(how)),
    )  # fmt: skip
    if number < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()), name)
    return int(number)
