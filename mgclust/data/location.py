"""One file, directory or URL: opened, hashed, and watched for changes.

A dataset in a file is pickled as its location and stamp, and is opened again when it is unpickled. The stamp then shows
whether the content has changed since the file was first opened. Workers on other hosts read the file from a network
file system, or read a copy. The time of change of a copy may differ although its content is the same.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlparse
from zipfile import BadZipFile

from mgclust.base.errors import InputError, InsufficientMemoryError, MgclustError
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import reason, without_quotes
from mgclust.outside.rooted_files import RootedFile
from mgclust.outside.streams import COMPRESSIONS, inflated, with_line_ends

__all__ = ["Location", "Stamp", "check_not_empty", "is_path", "listed_paths"]

_CHUNK = 2**22
_STANDARD_INPUT = ("-", "/dev/stdin")
_PROBES = 16
_PROBE_BYTES = 2**14


@dataclass(frozen=True)
class Stamp:
    """Properties that distinguish versions of a file."""

    size: int  # bytes
    modified: int  # time of change in nanoseconds; if time and size are equal, the file counts as unchanged
    probe: bytes  # hash of parts spread over the file, which is compared if the time differs


@dataclass(frozen=True)
class Location:
    """Location of a dataset: a path or a URL.

    Attributes
    ----------
    name : str
        Path or URL as the user wrote it; "standard input" for ``-``.
    path : str
        Absolute local path, or a URL.
    beneath : RootedFile or None
        The local file with the root folder that contains it. If it is set, the file is never opened by its path.
    content : bytes or None
        Bytes of the file if they are in memory; `path` is then only a name.
    """

    name: str
    path: str
    beneath: RootedFile | None = None
    content: bytes | None = field(default=None, repr=False)

    @classmethod
    def of(cls, source: str | os.PathLike[str] | RootedFile) -> Location:
        """Make a location from the user's path or URL.

        Parameters
        ----------
        source : path, URL or RootedFile
            Path or URL as the user wrote it.
        """
        if isinstance(source, RootedFile):
            return cls(source.called, source.path, source)
        name = os.fspath(source)
        if not name:
            raise InputError("source='' should be a path or a URL.")
        if name in _STANDARD_INPUT:
            return cls("standard input", name)
        if "://" not in name:
            return cls(name, os.path.abspath(os.path.expanduser(name)))
        url = urlparse(name)
        return cls(name, unquote(url.path)) if url.scheme == "file" else cls(name, name)

    @property
    def remote(self) -> bool:
        """True if reading needs fsspec."""
        return self.beneath is None and self.content is None and "://" in self.path

    @property
    def suffix(self) -> str:
        """Suffix of the name in lower case, such as ``.npy``; for a compressed file, the suffix before ``.gz``."""
        path = self._file_path
        return path.with_suffix("").suffix.lower() if self.compression else path.suffix.lower()

    @property
    def compression(self) -> str:
        """Suffix of the compression, such as ``.gz``, or an empty string."""
        suffix = self._file_path.suffix.lower()
        return suffix if suffix in COMPRESSIONS else ""

    @property
    def _file_path(self) -> Path:
        url = urlparse(self.path)
        return Path(((url.path or url.netloc) if self.remote else self.path).rstrip("/"))

    @property
    def once(self) -> bool:
        """True if the source can be read only once: standard input (``-``) or a named pipe."""
        if self.beneath is not None or self.remote or self.content is not None:
            return False
        return self.path in _STANDARD_INPUT or _is_pipe(self.path)

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Convert exceptions of a block to errors that name this location, and quote its content only if allowed."""
        with ExitStack() as stack:
            if self.beneath is not None and not self.beneath.quotable:
                stack.enter_context(without_quotes())
            with self._sentences():
                yield

    @contextmanager
    def _sentences(self) -> Iterator[None]:
        try:
            yield
        except MgclustError:
            raise
        except FileNotFoundError as error:
            raise InputError(f"{self.name} does not exist; check the path (each worker must see it).") from error
        except IsADirectoryError as error:
            raise InputError(f"{self.name} is a directory; give the path of a file.") from error
        except PermissionError as error:
            raise InputError(f"{self.name} cannot be read (permission denied); change its permissions.") from error
        except (EOFError, BadZipFile, zlib.error) as error:
            raise InputError(f"{self.name} is damaged or truncated: {reason(error)}; write it again.") from error
        except RecursionError as error:
            raise InputError(f"{self.name} cannot be read: it is nested too deeply; write it flat.") from error
        except ImportError as error:
            raise InputError(f"reading {self.name} needs another package: {reason(error)}.") from error
        except MemoryError as error:
            raise InsufficientMemoryError(
                f"not enough memory to read {self.name} ({reason(error)}); give fewer rows."
            ) from error
        except Exception as error:  # parsers may fail in many ways on arbitrary bytes
            raise InputError(f"{self.name} cannot be read: {reason(error)}.") from error

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open the location to read bytes; `reading` converts the exceptions."""
        with self.reading():
            if self.remote:
                import fsspec

                with fsspec.open(self.path, "rb") as file:
                    yield file
            else:
                with self._open() as file:
                    yield file

    @contextmanager
    def open_text(self) -> Iterator[IO[bytes]]:
        """Open the location to read text, decompressed. Carriage returns that end a line become line feeds."""
        with self.open() as file:
            text = inflated(file, self.compression, self.name) if self.compression else file
            yield with_line_ends(text)

    @contextmanager
    def copied(self) -> Iterator[Location]:
        """Yield a copy of a source that can be read only once, as a temporary file that is deleted afterwards."""
        standard = self.path in _STANDARD_INPUT
        name = os.path.basename(self.path)
        with self.reading(), tempfile.TemporaryDirectory(prefix="mgclust-") as folder, ExitStack() as stack:
            copy = os.path.join(folder, name if self.suffix and not standard else "text.csv")
            source = sys.stdin.buffer if standard else stack.enter_context(open(self.path, "rb"))
            with open(copy, "wb") as target:
                while chunk := source.read(_CHUNK):
                    target.write(chunk)
                    check_memory(self.name, target.tell())
            yield Location(self.name, copy)

    def exists(self) -> bool:
        """Return whether there is a local file or directory at this location."""
        if self.beneath is None:
            return self.content is not None or os.path.exists(self.path)
        try:
            self.beneath.status()
        except FileNotFoundError:
            return False
        return True

    def is_directory(self) -> bool:
        """Return whether there is a local directory at this location."""
        if self.beneath is None:
            return self.content is None and os.path.isdir(self.path)
        return self.exists() and self.beneath.is_directory()

    def holds(self, name: str) -> bool:
        """Return whether this is a local directory with a file of this name.

        Parameters
        ----------
        name : str
            Name of the file, without folders.
        """
        if self.beneath is None:
            return os.path.isfile(os.path.join(self.path, name))
        return self.is_directory() and (name, False) in self.beneath.listed()

    def inside(self, name: str) -> Location:
        """Return the location of a file in this local directory.

        Parameters
        ----------
        name : str
            Name of the file in the directory.
        """
        own = None if self.beneath is None else self.beneath.inside(name)
        return Location(f"{self.name.rstrip('/')}/{name}", os.path.join(self.path, name), own)

    def listed(self) -> Iterator[str]:
        """Yield the names of the files below a local directory, relative to it, sorted by their parts."""
        if self.beneath is not None:
            yield from sorted(self.beneath.files(), key=lambda name: name.split("/"))
            return
        for path in sorted(p for p in Path(self.path).rglob("*") if p.is_file()):
            yield path.relative_to(self.path).as_posix()

    def stamp(self) -> Stamp:
        """Return the stamp of the present content."""
        with self.reading():
            if self.content is not None:
                return Stamp(len(self.content), 0, b"")
            if self.remote:
                return Stamp(self._remote_size(), 0, b"")
            status = self._status()
            return Stamp(status.st_size, status.st_mtime_ns, self._probe(status.st_size))

    def check(self, stamp: Stamp) -> None:
        """Raise an error if the content has changed since ``stamp`` was taken.

        Parameters
        ----------
        stamp : Stamp
            A stamp that `stamp` returned earlier.
        """
        if self.content is not None:
            return
        with self.reading():
            if self.remote:
                changed = self._remote_size() != stamp.size
            else:
                status = self._status()
                if (status.st_size, status.st_mtime_ns) == (stamp.size, stamp.modified):
                    return
                changed = status.st_size != stamp.size or self._probe(status.st_size) != stamp.probe
        if changed:
            raise InputError(f"{self.name} changed since it was opened; open it again.")

    def sha256(self) -> str:
        """Return the SHA-256 of the bytes; for a directory, of the names and bytes of its files in sorted order."""
        digest = hashlib.sha256()
        if not self.remote and self.is_directory():
            with self.reading():
                for name, file in self._files():
                    digest.update(f"{name}\n{file.seek(0, os.SEEK_END)}\n".encode())
                    file.seek(0)
                    _hash_file(file, digest)
            return digest.hexdigest()
        with self.open() as file:
            _hash_file(file, digest)
        return digest.hexdigest()

    def _open(self) -> IO[bytes]:
        if self.once:
            raise InputError(f"{self.name} is a pipe, and only text can be read from pipes; write it to a file.")
        if self.content is not None:
            return io.BytesIO(self.content)
        return open(self.path, "rb") if self.beneath is None else self.beneath.open()

    def _status(self) -> os.stat_result:
        return os.stat(self.path) if self.beneath is None else self.beneath.status()

    def _files(self) -> Iterator[tuple[str, IO[bytes]]]:
        """Yield the files of a directory with their names relative to it, sorted by their parts."""
        for name in self.listed():
            if self.beneath is not None:
                with self.beneath.open_inside(name) as file:
                    yield name, file
            else:
                with open(os.path.join(self.path, name), "rb") as file:
                    yield name, file

    def _remote_size(self) -> int:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(self.path)
        # Some servers do not report a size; a truncated file is then found only by reading it.
        return int(filesystem.info(path).get("size") or 0)

    def _probe(self, size: int) -> bytes:
        if self.is_directory():
            return b""
        digest = hashlib.sha256()
        with self._open() as file:
            for i in range(_PROBES):
                file.seek(max(0, size - _PROBE_BYTES) * i // (_PROBES - 1))
                digest.update(file.read(_PROBE_BYTES))
        return digest.digest()


def is_path(source: Any) -> bool:
    """Return whether a source is a path or URL that `Location.of` accepts."""
    return isinstance(source, (str, os.PathLike, RootedFile))


def listed_paths(given: Any) -> list[Any] | None:
    """Return the paths that an option names: a path, a sequence of paths, or a str of paths separated by commas.

    Parameters
    ----------
    given : object
        Value of the option.

    Returns
    -------
    list or None
        The paths; None if `given` has none of these forms.
    """
    if isinstance(given, str) and "://" not in given and not os.path.exists(given):
        given = [part.strip() for part in given.split(",")]
    paths = [given] if is_path(given) else given
    if not isinstance(paths, (list, tuple)) or not all(map(is_path, paths)) or not all(map(str, paths)):
        return None
    return list(paths)


def check_not_empty(option: str, given: Any, remedy: str) -> None:
    """Reject a value of an option that names no path, or that has an empty path.

    Parameters
    ----------
    option : str
        Name of the option.
    given : object
        Value of the option.
    remedy : str
        What to give instead, for the message.

    Raises
    ------
    InputError
        The value is an empty str or sequence, or one of its paths is an empty str.
    """
    if not isinstance(given, (str, list, tuple)):
        return
    parts = given.split(",") if isinstance(given, str) else list(given)
    empty = [isinstance(part, str) and not part.strip() for part in parts]
    if all(empty):
        raise InputError(f"{option} is empty; {remedy}.")
    if any(empty) and not (isinstance(given, str) and ("://" in given or os.path.exists(given))):
        raise InputError(f"{option} has {len(parts)} paths, but path {empty.index(True) + 1} is empty; leave it out.")


def _is_pipe(path: str) -> bool:
    try:
        return stat.S_ISFIFO(os.stat(path).st_mode)
    except (OSError, ValueError):
        return False


def _hash_file(file: IO[bytes], digest: Any) -> None:
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
