"""Result of a run, and its directory on disk.

A result directory is written under a temporary name beside its final one and renamed when it is complete::

    DIR/result.json       parameters, source and its hash, versions, hardware, timings, scores, warnings
    DIR/labels.npy        one integer per row; labels.csv holds the same for spreadsheets
    DIR/<array>.npy       every array of `Result.arrays`; DIR/<array>.zarr where it was `Deferred`
    DIR/report.html, *.png   whatever the caller adds before the rename

So a directory that exists is whole, whether the process was interrupted, killed or ran out of disk.
"""

from __future__ import annotations

import contextlib
import functools
import json
import math
import os
import platform
import re
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from mgclust import __version__
from mgclust.array_files import Deferred, file_name, read_array, write_array, write_csv, write_npy
from mgclust.beneath import Beneath
from mgclust.errors import InputError
from mgclust.json_text import parse_json

__all__ = [
    "Deferred",
    "Result",
    "atomic_directory",
    "check_target",
    "installed_versions",
    "load_result",
    "seconds_text",
]

FORMAT = "mgclust-result"
FORMAT_VERSION = 1
# The part of `Result` that is kept as JSON, in the order of interest.
JSON_FIELDS = (
    "method",
    "parameters",
    "source",
    "scores",
    "warnings",
    "timings",
    "hardware",
    "versions",
    "diagnostics",
)
# Deprecated names of arrays and scores: results that were saved with them alone get the others when they are loaded.
RENAMED = {"center_indices": "centers", "n_canopies": "n_clusters"}
SHORT_ARRAY = 1_000  # arrays among the parameters are written out up to this size

_DISTRIBUTIONS = (
    "numpy",
    "scipy",
    "scikit-learn",
    "numba",
    "dask",
    "distributed",
    "dask-cuda",
    "cupy-cuda13x",
    "cupy-cuda12x",
)


@dataclass(frozen=True, eq=False)
class Result:
    """Labels, scores, diagnostics and provenance of one run; see `load_result`.

    Attributes
    ----------
    method : str
        As on the command line, e.g. ``"density-peaks"``.
    labels : ndarray of shape (n_samples,), int, or None
        Cluster of each row; -1 where a row belongs to none.
    arrays : mapping of str to ndarray
        Diagnostics that are too long for JSON, e.g. ``rho`` and ``delta``. Names are ``[a-z0-9_]+``. One that does not
        fit into memory is ``mgclust.array_files.Deferred``; `load_result` opens it as a ``zarr.Array``.
    scores : dict
        Single figures: ``n_clusters``, ``dc``, an agreement with a known truth.
    parameters : dict
        Every parameter of the estimator as it was used.
    source : dict
        ``name``, ``shape``, ``dtype`` and ``sha256`` of the data.
    timings : dict of str to float
        Seconds per stage, in the order of the stages.
    hardware, versions : dict
        What it ran on, and with which software.
    warnings : list of str
        What the user should know, as sentences.
    diagnostics : dict
        Small facts about the computation (how dc was found, fallbacks, errors).
    """

    method: str
    labels: np.ndarray | None = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def cluster_sizes(self) -> np.ndarray:
        """Rows of each cluster 0, 1, ...; rows labelled -1 are not counted."""
        if self.labels is None:
            return np.zeros(0, dtype=np.int64)
        labels = np.asarray(self.labels)
        return np.bincount(labels[labels >= 0])

    @property
    def seconds(self) -> float:
        """Seconds of all stages together."""
        return sum(seconds for name, seconds in self.timings.items() if name != "total")

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``result.json``: everything but the arrays, which it lists."""
        listed = {} if self.labels is None else {"labels": self.labels}
        listed |= self.arrays
        return {
            "format": FORMAT,
            "format_version": FORMAT_VERSION,
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            **{name: _plain(getattr(self, name)) for name in JSON_FIELDS},
            "arrays": {
                name: {"file": file_name(name, array), "shape": list(array.shape), "dtype": str(array.dtype)}
                for name, array in listed.items()
            },
        }

    def save(
        self,
        path: str | os.PathLike[str],
        overwrite: bool = False,
        add: Callable[[Path], object] | None = None,
    ) -> Path:
        """Write the result directory; it appears under its name only when complete.

        Parameters
        ----------
        path : path
            The directory to make. Its parent must exist.
        overwrite : bool
            Replace an earlier result directory. Anything else that is there is left alone.
        add : callable, optional
            Called with the unfinished directory, to write more files (the report, pictures) into it.

        Returns
        -------
        Path
            The directory.

        Raises
        ------
        InputError
            If the directory exists, or its parent is missing or cannot be written.
        """
        with atomic_directory(path, overwrite) as directory:
            self._write_arrays(directory)
            text = json.dumps(self.to_dict(), indent=2, allow_nan=False)
            (directory / "result.json").write_text(text + "\n", encoding="utf-8")
            if add is not None:
                add(directory)
        return Path(path)

    def _write_arrays(self, directory: Path) -> None:
        for name, array in self.arrays.items():
            if not re.fullmatch(r"[a-z0-9_]+", name) or name == "labels":
                raise ValueError(f"array name {name!r} should match [a-z0-9_]+ and not be 'labels'")
            write_array(directory / file_name(name, array), array)
        if self.labels is not None:
            write_npy(directory / "labels.npy", self.labels)
            write_csv(directory / "labels.csv", self.labels, self.arrays.get("halo"))


def load_result(path: str | os.PathLike[str] | Beneath) -> Result:
    """Read a result directory; its arrays are memory-mapped, so nothing is read before it is used.

    Parameters
    ----------
    path : path or Beneath
        A directory that `Result.save` or ``mgclust run`` wrote.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        If there is no such directory, or it is not a whole result.
    """
    directory = path if isinstance(path, Beneath) else Path(path)
    index = f"{directory}/result.json"
    if not (directory.is_directory() if isinstance(directory, Beneath) else directory.is_dir()):
        raise InputError(f"path={str(path)!r} should be a result directory; there is no such directory.")
    try:
        content = parse_json(_read_index(directory))
    except FileNotFoundError:
        raise InputError(f"path={str(path)!r} should be a result directory; it holds no result.json.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{index!r} cannot be read ({error}); run the job again.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{index!r} was not written by mgclust.")
    if content.get("format_version", 0) > FORMAT_VERSION:
        raise InputError(
            f"{index!r} has format_version={content['format_version']}, this mgclust reads up to "
            f"{FORMAT_VERSION}; update mgclust."
        )
    arrays = {name: read_array(directory, entry) for name, entry in content.get("arrays", {}).items()}
    labels = arrays.pop("labels", None)
    fields = {name: content[name] for name in JSON_FIELDS if name in content}
    for old, new in RENAMED.items():
        for values in (arrays, fields.get("scores")):
            if isinstance(values, dict) and old in values:
                values.setdefault(new, values[old])
    return Result(labels=labels, arrays=arrays, **fields)


def _read_index(directory: Path | Beneath) -> bytes:
    if isinstance(directory, Beneath):
        with directory.open_inside("result.json") as file:
            return file.read()
    return (directory / "result.json").read_bytes()


def check_target(path: str | os.PathLike[str], overwrite: bool = False) -> Path:
    """Refuse an output directory that could not be written, before anything is computed.

    Parameters
    ----------
    path : path
        The directory that a run is going to make.
    overwrite : bool
        Whether an earlier result may be replaced.

    Returns
    -------
    Path
        The same, absolute.

    Raises
    ------
    InputError
        If it exists (and may not be replaced), or its parent is missing or cannot be written.
    """
    target = Path(os.path.abspath(path))
    if os.path.lexists(target):
        _check_replaceable(target, overwrite)
    parent = target.parent
    if not parent.is_dir():
        problem = "is not a directory" if parent.exists() else "does not exist"
        raise InputError(f"output={str(path)!r} cannot be made: {str(parent)!r} {problem}.")
    probe = parent / _temporary_name(target)
    try:
        # Permission bits lie (root, read-only file systems, quotas): try what the run will do.
        probe.mkdir()
        probe.rmdir()
    except OSError as error:
        reason = error.strerror or error
        raise InputError(f"output={str(path)!r} cannot be made in {str(parent)!r}: {reason}.") from None
    return target


@contextlib.contextmanager
def atomic_directory(path: str | os.PathLike[str], overwrite: bool = False) -> Iterator[Path]:
    """Make a directory that takes its name when the ``with`` block ends well, and vanishes otherwise.

    Parameters
    ----------
    path : path
        Its final name.
    overwrite : bool
        As in `check_target`, which is called first.

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
        # Also after Ctrl-C: whatever did not get its name is not left behind.
        shutil.rmtree(temporary, ignore_errors=True)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the installed packages that decide what a run computes."""
    return {"python": platform.python_version(), "mgclust": __version__, **_distributions()}


@functools.cache
def _distributions() -> dict[str, str]:
    """Looked up once: reading the packages' metadata takes longer than many a run on a GPU."""
    versions = {}
    for name in _DISTRIBUTIONS:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name)
    return versions


def seconds_text(seconds: float) -> str:
    """Write a time with its unit and about three digits."""
    if seconds < 0.00995:
        return f"{1000 * seconds:.2g} ms"
    if seconds < 0.9995:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.2f} s" if seconds < 99.95 else f"{seconds:,.0f} s"


def _check_replaceable(target: Path, overwrite: bool) -> None:
    """Let an existing target be replaced on request, and only if mgclust wrote it (or it is empty)."""
    if not overwrite:
        raise InputError(f"output={str(target)!r} exists; choose another name or pass --overwrite.")
    ours = target.is_dir() and not target.is_symlink()
    if ours and any(target.iterdir()) and not any(target.glob("result.json")):
        ours = bool(list(target.glob("*/result.json")))
    if not ours:
        raise InputError(
            f"output={str(target)!r} exists and is not a result directory, so it is not overwritten; "
            f"choose another name."
        )


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
    """Ask the file system to have it on disk before the rename says that it is complete."""
    with contextlib.suppress(OSError):  # some file systems refuse to sync directories
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _plain(value: Any) -> Any:
    """`value` in terms of what JSON knows; infinities and NaN as strings, since JSON has none."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if isinstance(value, np.ndarray):
        if value.size <= SHORT_ARRAY:
            return _plain(value.tolist())
        return f"array of shape {value.shape}, {value.dtype}"
    if isinstance(value, np.generic):
        return _plain(value.item())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    return str(value)
