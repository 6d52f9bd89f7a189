"""One file, directory or URL: opened, hashed, and watched for changes.

A dataset over a location is pickled as the location and its stamp, and opened again by whoever unpickles it.
The stamp then tells whether that is still what was opened first: workers on other hosts see the path through
a network file system, or see a copy, whose time of change may differ while its content does not.
"""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlparse
from urllib.request import url2pathname
from zipfile import BadZipFile

from mgclust.errors import InputError, InsufficientMemoryError, MgclustError

__all__ = ["Location", "Stamp", "reason", "shortened"]

_CHUNK = 2**22
_PROBES = 16
_PROBE_BYTES = 2**14


@dataclass(frozen=True)
class Stamp:
    """What told one version of a file from another.

    Attributes
    ----------
    size : int
        Bytes.
    modified : int
        Time of change in nanoseconds; equal time and size are taken for an unchanged file.
    probe : bytes
        Hash of parts spread over the file, which decides where the time differs.
    """

    size: int
    modified: int
    probe: bytes


@dataclass(frozen=True)
class Location:
    """Where a dataset is stored.

    Attributes
    ----------
    name : str
        As the user wrote it.
    path : str
        Absolute local path, or a URL.
    """

    name: str
    path: str

    @classmethod
    def of(cls, source: str | os.PathLike[str]) -> Location:
        """Resolve a user's path or URL."""
        name = os.fspath(source)
        if not name:
            raise InputError("source='' should be a path or a URL.")
        if "://" not in name:
            return cls(name, os.path.abspath(os.path.expanduser(name)))
        url = urlparse(name)
        return cls(name, url2pathname(url.path)) if url.scheme == "file" else cls(name, name)

    @property
    def remote(self) -> bool:
        """Whether fsspec is needed to read it."""
        return "://" in self.path

    @property
    def suffix(self) -> str:
        """Last suffix of the file's name in lower case, such as ``.npy``."""
        url = urlparse(self.path)
        path = (url.path or url.netloc) if self.remote else self.path
        return Path(path.rstrip("/")).suffix.lower()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Turn what reading may raise into a sentence that names this location."""
        try:
            yield
        except MgclustError:
            raise
        except FileNotFoundError as error:
            raise InputError(f"{self.name} does not exist; check the path (each worker must see it).") from error
        except IsADirectoryError as error:
            raise InputError(f"{self.name} is a directory; give the path of a file.") from error
        except PermissionError as error:
            raise InputError(f"{self.name} may not be read (permission denied).") from error
        except (EOFError, BadZipFile, zlib.error) as error:
            raise InputError(f"{self.name} is damaged or truncated: {reason(error)}; write it again.") from error
        except ImportError as error:
            raise InputError(f"reading {self.name} needs another package: {reason(error)}.") from error
        except MemoryError as error:
            raise InsufficientMemoryError(
                f"there is not enough memory to read {self.name} ({reason(error)}); give fewer rows."
            ) from error
        except Exception as error:  # parsers that meet any bytes have many ways to fail
            raise InputError(f"{self.name} cannot be read: {reason(error)}.") from error

    @contextmanager
    def open(self) -> Iterator[IO[bytes]]:
        """Open for reading bytes, with errors as sentences."""
        with self.reading():
            if self.remote:
                import fsspec

                with fsspec.open(self.path, "rb") as file:
                    yield file
            else:
                with open(self.path, "rb") as file:
                    yield file

    def stamp(self) -> Stamp:
        """Describe the present content."""
        with self.reading():
            if self.remote:
                return Stamp(self._remote_size(), 0, b"")
            status = os.stat(self.path)
            return Stamp(status.st_size, status.st_mtime_ns, self._probe(status.st_size))

    def check(self, stamp: Stamp) -> None:
        """Refuse to read on if the content is no longer what ``stamp`` described."""
        with self.reading():
            if self.remote:
                changed = self._remote_size() != stamp.size
            else:
                status = os.stat(self.path)
                if (status.st_size, status.st_mtime_ns) == (stamp.size, stamp.modified):
                    return
                changed = status.st_size != stamp.size or self._probe(status.st_size) != stamp.probe
        if changed:
            raise InputError(f"{self.name} changed since it was opened; open it again.")

    def sha256(self) -> str:
        """SHA-256 of the bytes; of a directory, of its files' names and bytes in sorted order."""
        digest = hashlib.sha256()
        if not self.remote and os.path.isdir(self.path):
            for path in sorted(p for p in Path(self.path).rglob("*") if p.is_file()):
                digest.update(f"{path.relative_to(self.path).as_posix()}\n{path.stat().st_size}\n".encode())
                _hash_file(path, digest)
            return digest.hexdigest()
        with self.open() as file:
            while chunk := file.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def _remote_size(self) -> int:
        import fsspec

        filesystem, path = fsspec.core.url_to_fs(self.path)
        # Some servers do not tell; then only reading can fail.
        return int(filesystem.info(path).get("size") or 0)

    def _probe(self, size: int) -> bytes:
        if os.path.isdir(self.path):
            return b""
        digest = hashlib.sha256()
        with open(self.path, "rb") as file:
            for i in range(_PROBES):
                file.seek(max(0, size - _PROBE_BYTES) * i // (_PROBES - 1))
                digest.update(file.read(_PROBE_BYTES))
        return digest.digest()


def reason(error: Exception) -> str:
    """Return the first line of what a library said, to be put into a sentence."""
    lines = str(error).strip().splitlines()
    return shortened(lines[0].rstrip(". ")) if lines else type(error).__name__


def shortened(text: str, most: int = 200) -> str:
    """What a file says, which may be long, in a sentence."""
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _hash_file(path: Path, digest: Any) -> None:
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
