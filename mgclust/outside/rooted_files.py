"""Opening of files that users name, under a root folder. Each file is opened once, and links are not followed.

A path that was checked may lead elsewhere when it is opened, because any of its parts may have been replaced by a link
in between. Therefore nothing is checked before opening. The folder is opened, then the file relative to the folder: by
``openat2`` with ``RESOLVE_BENEATH`` and ``RESOLVE_NO_SYMLINKS`` if the kernel has it (Linux 5.6), else part by part
with ``O_NOFOLLOW``. The checks then use the open descriptor, which is kept, and all content is read from it. A FIFO, a
device or a socket is rejected without waiting for it.

Opening cannot detect hard links. If the kernel lets any user create a hard link to a file of another user
(``fs.protected_hardlinks=0``), a user could read files of the service through this link. Therefore a file is rejected
if it belongs to the user that opens it and has a second name.
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
    """A file, or a folder of files such as a zarr store, under a root folder. A pickled copy is opened again.

    Parameters
    ----------
    root : str
        Absolute path of the root folder. Links in this path are followed.
    name : str
        Path relative to `root`, in which links are not followed; "" is the root folder itself.
    quotable : bool
        Whether messages may quote the content; see `mgclust.outside.quoting`.
    called : str, optional
        Name of the file in messages and results; by default its path.
    """

    def __init__(self, root: str, name: str, quotable: bool = True, called: str | None = None) -> None:
        self.root, self.name, self.quotable = os.fspath(root), os.fspath(name), bool(quotable)
        self._called = called
        self._kept: _Descriptor | None = None
        self._lock = threading.Lock()

    def __reduce__(self) -> Any:
        return RootedFile, (self.root, self.name, self.quotable, self._called)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RootedFile) and self.__reduce__() == other.__reduce__()

    def __hash__(self) -> int:
        return hash((self.root, self.name))

    def __str__(self) -> str:
        return self.called

    def __repr__(self) -> str:
        return f"RootedFile({self.root!r}, {self.name!r})"

    @property
    def path(self) -> str:
        """Absolute path, to find the suffix. Do not open this path."""
        return os.path.join(self.root, self.name).rstrip("/")

    @property
    def called(self) -> str:
        """Name of the file in messages and results."""
        return self._called or self.path

    def order(self) -> dict[str, Any]:
        """Return arguments with which another process makes an equal object: ``RootedFile(**order)``."""
        return {"root": self.root, "name": self.name, "quotable": self.quotable, "called": self._called}

    def descriptor(self) -> int:
        """Return the number of the descriptor, which stays open."""
        return self._open().number

    def status(self) -> os.stat_result:
        """Return the current status of the opened file or folder."""
        return os.fstat(self._open().number)

    def is_directory(self) -> bool:
        """Return whether this is a folder."""
        return stat.S_ISDIR(self.status().st_mode)

    def open(self) -> IO[bytes]:
        """Open the file for reading from its beginning; each file object has its own position."""
        kept = self._open()
        if stat.S_ISDIR(os.fstat(kept.number).st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", self.path)
        return io.BufferedReader(_Bytes(kept), 2**16)

    def open_inside(self, name: str) -> IO[bytes]:
        """Open a file in this folder."""
        kept = _Descriptor(_open_in(self._open().number, name, f"{self.path}/{name}"))
        if stat.S_ISDIR(os.fstat(kept.number).st_mode):
            raise IsADirectoryError(errno.EISDIR, "Is a directory", f"{self.path}/{name}")
        return io.BufferedReader(_Bytes(kept), 2**16)

    def inside(self, name: str) -> RootedFile:
        """Return a file in this folder."""
        return RootedFile(
            self.root, os.path.join(self.name, name), self.quotable, self._called and f"{self._called}/{name}"
        )

    def listed(self, name: str = "") -> list[tuple[str, bool]]:
        """List the names in this folder or a subfolder, and whether each is a folder; a link is not a folder."""
        number = _open_in(self._open().number, name, f"{self.path}/{name}") if name else os.dup(self._open().number)
        try:
            with os.scandir(number) as entries:
                return [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries]
        finally:
            os.close(number)

    def files(self, name: str = "") -> Iterator[str]:
        """Yield the relative paths of all files in this folder and its subfolders, sorted within each folder."""
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
    """Return the system call or flag that keeps paths under their root on this machine, for the log of the service."""
    return "openat2" if _has_openat2() else "O_NOFOLLOW"


class _Descriptor:
    """A descriptor that is closed when no object uses it any more."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __del__(self, close: Any = os.close) -> None:
        with contextlib.suppress(OSError):
            close(self.number)


class _Bytes(io.RawIOBase):
    """Reader of a descriptor with its own position."""

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
    """Open a file or folder inside another folder for reading.

    Raises
    ------
    InputError
        The path names something else, or one of its parts is a link.
    """
    name = name.strip("/") or "."
    if "\0" in name or ".." in name.split("/"):
        raise InputError(f"{path!r} should be a path without '..'.")
    try:
        if _PATH:  # check before opening, because opening a device may already have an effect
            looked = _resolve(folder, name, _PATH | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                _check(os.fstat(looked), path)
            finally:
                os.close(looked)
        number = _resolve(folder, name, _READ)
    except OSError as error:
        raise _refusal(error, path) from None
    try:
        _check(os.fstat(number), path)  # the file may have been replaced after the first check
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
        return InputError(f"{path} is held by another program; try again when that program has released it.")
    if error.errno in (errno.ENOTDIR, errno.ENAMETOOLONG):
        return FileNotFoundError(errno.ENOENT, "No such file", path)
    return error


def _check(status: os.stat_result, path: str) -> None:
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFLNK:
        raise InputError(f"{path} {_LINK}.")
    if kind not in (stat.S_IFREG, stat.S_IFDIR):
        raise InputError(f"{path} is {_KINDS.get(kind, 'a special file')}, not a file; give the path of a file.")
    if kind == stat.S_IFREG and status.st_nlink > 1 and status.st_uid == os.geteuid():
        raise InputError(
            f"{path} has {status.st_nlink} names (hard links) and belongs to the user that reads it; give a copy of "
            "the file."
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
        return error.errno not in (errno.ENOSYS, errno.EPERM)  # the kernel is old, or system calls are filtered
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
