"""Result of a run, and its directory on disk.

A result directory is written under a temporary name in the same folder and renamed when it is complete::

    DIR/result.json       parameters, source and its hash, versions, hardware, timings, scores, warnings
    DIR/labels.npy        one integer per row; labels.csv holds the same for spreadsheets
    DIR/<array>.npy       every array of `Result.arrays`; DIR/<array>.zarr if it was `Deferred`
    DIR/report.html, *.png   files that the caller adds before the directory is renamed

A directory with the final name is therefore complete, even if a process was interrupted or killed, or the disk was
full.
"""

from __future__ import annotations

import importlib
import json
import math
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.base.dask_arrays import computed, is_dask, parts_of
from mgclust.base.errors import InputError
from mgclust.outside.json_text import parse_json
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.array_files import Deferred, file_name, read_array, write_array, write_csv, write_npy
from mgclust.results.atomic_directory import atomic_directory

__all__ = ["Deferred", "Result", "load_result"]

FORMAT = "mgclust-result"
FORMAT_VERSION = 1
# The fields of `Result` that are saved as JSON, the most important first.
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
SHORT_ARRAY = 1_000  # arrays among the parameters are written out if they have at most this many elements


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """Labels, scores, diagnostics and provenance of one run; see `load_result`.

    Attributes
    ----------
    method : str
        Name of the method on the command line, e.g. ``"density-peaks"``.
    labels : ndarray or Dask array of shape (n_samples,), int, or None
        Cluster of each row; -1 for rows in no cluster.
    arrays : mapping of str to ndarray or Dask array
        Diagnostics that are too long for JSON, e.g. ``rho`` and ``delta``. Names match ``[a-z0-9_]+``. An array that
        does not fit into memory is a ``mgclust.results.array_files.Deferred``; `load_result` opens it as a
        ``zarr.Array``.
    scores : dict
        Single numbers, such as ``n_clusters``, ``dc``, or the agreement with true labels.
    parameters : dict
        Every parameter of the estimator with the value that was used.
    source : dict
        ``name``, ``shape``, ``dtype`` and ``sha256`` of the data.
    timings : dict of str to float
        Seconds per stage, in the order of the stages.
    hardware, versions : dict
        Hardware that the method ran on, and versions of the software.
    warnings : list of str
        Warnings for the user, one sentence each.
    diagnostics : dict
        Short facts about the computation (how dc was found, fallbacks, errors).
    """

    method: str
    labels: Any = None
    arrays: Mapping[str, Any] = field(default_factory=dict)
    scores: dict[str, Any] = field(default_factory=dict)
    parameters: dict[str, Any] = field(default_factory=dict)
    source: dict[str, Any] = field(default_factory=dict)
    timings: dict[str, float] = field(default_factory=dict)
    hardware: dict[str, Any] = field(default_factory=dict)
    versions: dict[str, str] = field(default_factory=dict)
    warnings: Sequence[str] = field(default_factory=list)
    diagnostics: dict[str, Any] = field(default_factory=dict)

    @property
    def cluster_sizes(self) -> np.ndarray:
        """Number of rows of each cluster 0, 1, ...; rows labelled -1 are not counted."""
        if self.labels is None:
            return np.zeros(0, dtype=np.int64)
        sizes = np.zeros(0, dtype=np.int64)
        for part in parts_of(self.labels):
            labels = np.asarray(part)
            more = np.bincount(labels[labels >= 0], minlength=len(sizes))
            more[: len(sizes)] += sizes
            sizes = more
        return sizes

    @property
    def seconds(self) -> float:
        """Total time of all stages in seconds."""
        return sum(seconds for name, seconds in self.timings.items() if name != "total")

    def compute(self) -> Result:
        """Return the result with NumPy and SciPy arrays instead of Dask arrays, for plots and reports.

        All arrays must fit into the memory of this process. `save` does not need `compute`: it writes Dask arrays chunk
        by chunk.
        """
        labels = computed(self.labels) if is_dask(self.labels) else self.labels
        arrays = {name: computed(array) if is_dask(array) else array for name, array in self.arrays.items()}
        return replace(self, labels=labels, arrays=arrays)

    def methods_text(self) -> str:
        """Return a paragraph for a paper: method, parameters, versions and size of the data, then the references.

        Returns
        -------
        str
        """
        methods = importlib.import_module("mgclust.algorithms")  # by name, because it is a layer above mgclust.results
        known = methods.declarations()
        options = known[self.method].options() if self.method in known else ()
        defaults = {option.name: option.default for option in options}
        text: str = methods.presentation_of(self.method).methods_text(self, defaults)
        return text

    def __repr__(self) -> str:
        shape = " x ".join(f"{size:,}" for size in self.source.get("shape", ()))
        lines = [f"Result of {self.method}" + (f" of {shape}" if shape else "")]
        scores = [f"{name}={value:.6g}" for name, value in self.scores.items() if _is_number(value)]
        lines += [f"  scores: {', '.join(scores)}"] * bool(scores)
        lines += [f"  arrays: {', '.join(self.arrays)}"] * bool(self.arrays)
        lines += [f"  warning: {text}" for text in self.warnings]
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return the content of ``result.json``: everything except the arrays, which are only listed."""
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
        """Write the result directory; it appears under its name only when it is complete.

        Parameters
        ----------
        path : path
            The directory to create. Its parent must exist.
        overwrite : bool
            Whether to replace an earlier result directory. It is replaced only if it holds no file that its run did
            not write.
        add : callable, optional
            Function that writes more files (the report, pictures). It is called with the path of the unfinished
            directory.

        Returns
        -------
        Path
            The directory.

        Raises
        ------
        InputError
            The directory exists and may not be replaced, or its parent is missing or cannot be written.
        """
        with atomic_directory(path, overwrite) as directory:
            self._write_arrays(directory)
            index = directory / "result.json"
            _write_json(index, self.to_dict())
            if add is not None:
                add(directory)
            # List the files that a later run may overwrite: any other file in the directory is the user's.
            _write_json(index, {**self.to_dict(), "files": sorted(each.name for each in directory.iterdir())})
        return Path(path)

    def _write_arrays(self, directory: Path) -> None:
        for name, array in self.arrays.items():
            if not re.fullmatch(r"[a-z0-9_]+", name) or name == "labels":
                raise ValueError(f"array name {name!r} should match [a-z0-9_]+ and not be 'labels'")
            write_array(directory / file_name(name, array), array)
        if self.labels is not None:
            write_npy(directory / "labels.npy", self.labels)
            write_csv(directory / "labels.csv", self.labels, self.arrays.get("halo"))


def load_result(path: str | os.PathLike[str] | RootedFile) -> Result:
    """Read a result directory; most arrays are memory-mapped, so that they are read only when they are used.

    Parameters
    ----------
    path : path or RootedFile
        A directory that `Result.save` or ``mgclust run`` wrote.

    Returns
    -------
    Result

    Raises
    ------
    InputError
        There is no such directory, or it does not hold a complete result.
    """
    directory = path if isinstance(path, RootedFile) else Path(path)
    index = f"{directory}/result.json"
    if not (directory.is_directory() if isinstance(directory, RootedFile) else directory.is_dir()):
        raise InputError(f"path={str(path)!r} should be a result directory; there is no such directory.")
    try:
        content = parse_json(_read_index(directory))
    except FileNotFoundError:
        raise InputError(f"path={str(path)!r} should be a result directory; it holds no result.json.") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{index!r} cannot be read ({error}); run the job again.") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise InputError(f"{index!r} was not written by mgclust; give a result directory.")
    if content.get("format_version", 0) > FORMAT_VERSION:
        raise InputError(
            f"{index!r} has format_version={content['format_version']}, this mgclust reads up to "
            f"{FORMAT_VERSION}; update mgclust."
        )
    arrays = {name: read_array(directory, entry) for name, entry in content.get("arrays", {}).items()}
    labels = arrays.pop("labels", None)
    fields = {name: content[name] for name in JSON_FIELDS if name in content}
    return Result(labels=labels, arrays=arrays, **fields)


def _write_json(path: Path, content: dict[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=2, allow_nan=False) + "\n", encoding="utf-8")


def _read_index(directory: Path | RootedFile) -> bytes:
    if isinstance(directory, RootedFile):
        with directory.open_inside("result.json") as file:
            return file.read()
    return (directory / "result.json").read_bytes()


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def _plain(value: Any) -> Any:
    """Convert a value to JSON types. Infinity and NaN become strings, because JSON cannot hold them."""
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
