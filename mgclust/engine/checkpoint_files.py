"""Checkpoints on disk: their names and files, and the check that they are complete.

::

    FOLDER/checkpoint-7/checkpoint.json    which run it belongs to, and the SHA-256 of every other file
    FOLDER/checkpoint-7/control.json       small values that are the same on all ranks
    FOLDER/checkpoint-7/NAME.npy           an array that is the same on all ranks
    FOLDER/checkpoint-7/NAME.00012.npy     block 12 of an array that is distributed like the rows of the data; for an
                                           array with several elements per row, the elements of the rows of the block
    FOLDER/checkpoint-8/...                the next checkpoint; the last two are kept

The size of blocks depends only on the data (`mgclust.engine.partition`), so any number of ranks finds its blocks. The
hashes show whether files changed since they were written. If a checkpoint is damaged, the previous checkpoint is used.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.engine.partition import Partition
from mgclust.outside.json_text import parse_json
from mgclust.results.array_files import write_array

__all__ = [
    "CONTROL", "Ragged", "Saved", "Writer", "are_whole", "block_file", "block_of", "differences", "in_folder",
    "name_of", "number_of", "ours", "read_index", "write_index",
]  # fmt: skip

FORMAT, FORMAT_VERSION = "mgclust-checkpoint", 2
INDEX, CONTROL = "checkpoint.json", "control.json"
# Folder names of a complete checkpoint, and of a checkpoint that `atomic_directory` has not renamed yet.
OURS = re.compile(r"checkpoint-(?P<whole>\d+)|\.checkpoint-(?P<torn>\d+)\.[0-9a-f]+\.partial")
OF_A_BLOCK = re.compile(r".+\.(\d+)\.npy")
WRITERS = 4  # threads per rank that write, hash and flush files
SHOWN = 3  # number of differences between two runs that an error message lists


class Writer:
    """Threads that write, hash and flush the files of a rank while the caller continues.

    Parameters
    ----------
    folder : path
        Folder to write to.
    room : int
        Bytes that may wait to be written. A few files may always wait.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder, self._room = folder, room
        self._threads = ThreadPoolExecutor(WRITERS)
        self._files: list[Future[dict[str, Any]]] = []
        self._waiting: deque[tuple[Future[dict[str, Any]], int]] = deque()

    def add(self, name: str, content: np.ndarray | str) -> None:
        """Write a file in the background; its content is a text, or an array that no longer changes.

        Raises
        ------
        OSError
            An earlier file could not be written.
        """
        size = content.nbytes if isinstance(content, np.ndarray) else len(content)
        while len(self._waiting) >= WRITERS and sum(bytes_ for _, bytes_ in self._waiting) + size > self._room:
            self._waiting.popleft()[0].result()
        file = self._threads.submit(_write, self._folder / name, content)
        self._files.append(file)
        self._waiting.append((file, size))

    def done(self) -> bool:
        """Return whether every file has been written or has failed."""
        return all(file.done() for file in self._files)

    def files(self) -> list[dict[str, Any]]:
        """Wait until all files are written; return name, SHA-256 and processor seconds of each file.

        Raises
        ------
        OSError
            A file could not be written.
        """
        return [file.result() for file in self._files]

    def close(self) -> None:
        """Write nothing more."""
        self._threads.shutdown(cancel_futures=True)


class Ragged:
    """An array with a varying number of elements per row; rows are stored one after the other without gaps.

    Parameters
    ----------
    values : ndarray
        All elements, on the host.
    counts : ndarray of shape (rows,), int64
        Number of elements of each row.
    """

    def __init__(self, values: np.ndarray, counts: np.ndarray) -> None:
        self._values = values
        self._ends = np.concatenate([[0], np.cumsum(counts)])

    @property
    def nbytes(self) -> int:
        """Number of bytes of all elements."""
        return int(self._values.nbytes)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return the elements of a range of rows."""
        return self._values[self._ends[rows.start] : self._ends[rows.stop]]


class Saved:
    """A checkpoint that was found to be complete.

    Parameters
    ----------
    read : callable
        ``read(name)`` returns the content of a file: text for `CONTROL`, else an array.
    names : iterable of str
        Names of the files.
    partition : Partition
        Which rank owns which rows.
    rank : int
        Number of this rank.

    Attributes
    ----------
    control : dict
        The values that were passed to `Checkpointer.save`.
    arrays : dict of str to ndarray
        Arrays that are the same on all ranks, on the host.
    """

    def __init__(self, read: Callable[[str], Any], names: Iterable[str], partition: Partition, rank: int) -> None:
        self._read, self._partition, self._rank = read, partition, rank
        self.control: dict[str, Any] = parse_json(read(CONTROL))
        alike = [name for name in names if name.endswith(".npy") and block_of(name) is None]
        self.arrays: dict[str, np.ndarray] = {name.removesuffix(".npy"): read(name) for name in alike}

    def rows(self, name: str) -> Iterator[tuple[slice, np.ndarray]]:
        """Yield the rows of an array that this rank owns, one block at a time, on the host.

        Yields
        ------
        place : slice
            Position of the rows among the rows that this rank owns.
        rows : ndarray
            The rows.
        """
        first = self._partition.rows_of(self._rank)[0]
        blocks = self._partition.blocks_of(self._rank)
        for block, rows in zip(blocks, self.blocks(name), strict=True):
            start, stop = self._partition.bounds(block)
            yield slice(start - first, stop - first), rows

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Yield the blocks of an array or a `Ragged` that belong to rows of this rank, on the host."""
        for block in self._partition.blocks_of(self._rank):
            yield self._read(block_file(name, block))


def block_of(name: str) -> int | None:
    """Return the number of the block in a file; None if the file holds values that are the same on all ranks."""
    match = OF_A_BLOCK.fullmatch(name)
    return None if match is None else int(match[1])


def in_folder(folder: Path) -> Callable[[str], Any]:
    """Make the function `read` of `Saved` for a checkpoint on disk."""

    def read(name: str) -> Any:
        if name == CONTROL:
            return (folder / name).read_text(encoding="utf-8")
        return np.load(folder / name, allow_pickle=False)

    return read


def ours(folder: Path) -> list[Path]:
    """List the checkpoints in a folder, finished or not. Other files are left alone."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.is_dir() and OURS.fullmatch(path.name)]


def number_of(path: Path) -> int:
    """Return the number of a checkpoint from its path."""
    match = OURS.fullmatch(path.name)
    assert match is not None
    return int(match["whole"] or match["torn"])


def name_of(number: int) -> str:
    """Return the name of the folder of a checkpoint."""
    return f"checkpoint-{number}"


def block_file(name: str, block: int) -> str:
    """Return the name of the file of a block of an array."""
    return f"{name}.{block:05d}.npy"


def _digest(path: Path) -> str:
    """Return the SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: np.ndarray | str) -> dict[str, Any]:
    """Write a file to disk; return its name and hash, and the processor seconds that this took."""
    began = time.thread_time()
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        write_array(path, content)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return {"file": path.name, "sha256": _digest(path), "seconds": time.thread_time() - began}


def write_index(folder: Path, run: Mapping[str, str], files: Mapping[str, str]) -> None:
    """Write the index of a checkpoint: its run, and the hashes of its files. All files must be on disk already."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": dict(run), "files": dict(files)}
    text = json.dumps({**content, "sha256": _digest_of(content)}, indent=1)
    _write(folder / INDEX, text + "\n")


def read_index(folder: Path) -> dict[str, Any] | None:
    """Return the index of a checkpoint; None if the index is missing, damaged or of another version."""
    try:
        content = parse_json((folder / INDEX).read_text(encoding="utf-8"))
        digest = content.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    known = content.get("format") == FORMAT and content.get("format_version") == FORMAT_VERSION
    return content if known and digest == _digest_of(content) else None


def _digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def are_whole(folder: Path, files: Mapping[str, str], blocks: Container[int]) -> bool:
    """Return whether all files that a rank with these blocks will read are unchanged since they were written."""
    mine = [name for name in files if (block := block_of(name)) is None or block in blocks]
    try:
        with ThreadPoolExecutor(WRITERS) as readers:
            digests = list(readers.map(_digest, (folder / name for name in mine)))
    except OSError:
        return False
    return digests == [files[name] for name in mine]


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Describe the differences between the run of a checkpoint and this run."""
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    sentences = [
        f"{name}={there.get(name, 'unknown')} there, {here.get(name, 'unknown')} here" for name in names[:SHOWN]
    ]
    return "; ".join(sentences)
