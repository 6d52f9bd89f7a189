"""Checkpoints on disk: their names, their files, and what tells that they are whole.

::

    FOLDER/checkpoint-7/checkpoint.json    which run it is of, and the SHA-256 of every other file
    FOLDER/checkpoint-7/control.json       what all ranks know alike and fits into a few lines
    FOLDER/checkpoint-7/NAME.npy           an array that all ranks have alike
    FOLDER/checkpoint-7/NAME.00012.npy     block 12 of an array whose rows are shared out like those of the data, or of
                                           one that has several elements a row: those of the block's rows
    FOLDER/checkpoint-8/...                the one after it; the two last are kept

Blocks have a size that depends on the data alone (`mgclust.engine.partition`), so any number of ranks finds its own.
What became of the files since they were written, their hashes tell: a checkpoint that is damaged is skipped for the
one before.
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
# Of a whole checkpoint, and of one that `atomic_directory` has not renamed yet.
OURS = re.compile(r"checkpoint-(?P<whole>\d+)|\.checkpoint-(?P<torn>\d+)\.[0-9a-f]+\.partial")
OF_A_BLOCK = re.compile(r".+\.(\d+)\.npy")
WRITERS = 4  # threads of a rank that write, hash and flush
SHOWN = 3  # differences between two runs that a refusal names


class Writer:
    """Threads that write, hash and flush a rank's files while the caller continues.

    Parameters
    ----------
    folder : path
    room : int
        Bytes that may wait for being written; a few files may in any case.
    """

    def __init__(self, folder: Path, room: int) -> None:
        self._folder, self._room = folder, room
        self._threads = ThreadPoolExecutor(WRITERS)
        self._files: list[Future[dict[str, Any]]] = []
        self._waiting: deque[tuple[Future[dict[str, Any]], int]] = deque()

    def add(self, name: str, content: np.ndarray | str) -> None:
        """Have a file written, of an array that no longer changes, or of a text.

        Raises
        ------
        OSError
            One of the files before it could not be written.
        """
        size = content.nbytes if isinstance(content, np.ndarray) else len(content)
        while len(self._waiting) >= WRITERS and sum(bytes_ for _, bytes_ in self._waiting) + size > self._room:
            self._waiting.popleft()[0].result()
        file = self._threads.submit(_write, self._folder / name, content)
        self._files.append(file)
        self._waiting.append((file, size))

    def done(self) -> bool:
        """Return whether nothing is left to be done, well or not."""
        return all(file.done() for file in self._files)

    def files(self) -> list[dict[str, Any]]:
        """Wait; each file's name, its SHA-256, and the processor seconds it took.

        Raises
        ------
        OSError
            One of them could not be written.
        """
        return [file.result() for file in self._files]

    def close(self) -> None:
        """Write nothing more."""
        self._threads.shutdown(cancel_futures=True)


class Ragged:
    """Some elements of each row, one row behind the other, with nothing between them.

    Parameters
    ----------
    values : ndarray
        On the host.
    counts : ndarray of shape (rows,), int64
        How many each row has.
    """

    def __init__(self, values: np.ndarray, counts: np.ndarray) -> None:
        self._values = values
        self._ends = np.concatenate([[0], np.cumsum(counts)])

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return int(self._values.nbytes)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """The elements of rows from one on to before another."""
        return self._values[self._ends[rows.start] : self._ends[rows.stop]]


class Saved:
    """A checkpoint that was found whole.

    Parameters
    ----------
    read : callable
        Returns what a file holds, by its name: text of `CONTROL`, else an array.
    names : iterable of str
        Its files.
    partition : Partition
    rank : int

    Attributes
    ----------
    control : dict
        As it was saved.
    arrays : dict of str to ndarray
        Those that all ranks have alike, on the host.
    """

    def __init__(self, read: Callable[[str], Any], names: Iterable[str], partition: Partition, rank: int) -> None:
        self._read, self._partition, self._rank = read, partition, rank
        self.control: dict[str, Any] = parse_json(read(CONTROL))
        alike = [name for name in names if name.endswith(".npy") and block_of(name) is None]
        self.arrays: dict[str, np.ndarray] = {name.removesuffix(".npy"): read(name) for name in alike}

    def rows(self, name: str) -> Iterator[tuple[slice, np.ndarray]]:
        """An array's rows that are this rank's, a block at a time, on the host.

        Yields
        ------
        place : slice
            Where they belong among the rank's own.
        rows : ndarray
        """
        first = self._partition.rows_of(self._rank)[0]
        blocks = self._partition.blocks_of(self._rank)
        for block, rows in zip(blocks, self.blocks(name), strict=True):
            start, stop = self._partition.bounds(block)
            yield slice(start - first, stop - first), rows

    def blocks(self, name: str) -> Iterator[np.ndarray]:
        """Blocks of an array or a `Ragged` that are of this rank's rows, one after the other, on the host."""
        for block in self._partition.blocks_of(self._rank):
            yield self._read(block_file(name, block))


def block_of(name: str) -> int | None:
    """The number of the block that a file holds; None where it holds what all ranks have alike."""
    match = OF_A_BLOCK.fullmatch(name)
    return None if match is None else int(match[1])


def in_folder(folder: Path) -> Callable[[str], Any]:
    """Make the reader that `Saved` needs for a checkpoint on disk."""

    def read(name: str) -> Any:
        if name == CONTROL:
            return (folder / name).read_text(encoding="utf-8")
        return np.load(folder / name, allow_pickle=False)

    return read


def ours(folder: Path) -> list[Path]:
    """The checkpoints of a folder, finished or not; whatever else is there is left alone."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.is_dir() and OURS.fullmatch(path.name)]


def number_of(path: Path) -> int:
    """Number of a checkpoint, from its path."""
    match = OURS.fullmatch(path.name)
    assert match is not None
    return int(match["whole"] or match["torn"])


def name_of(number: int) -> str:
    """Name of a checkpoint's folder."""
    return f"checkpoint-{number}"


def block_file(name: str, block: int) -> str:
    """The file of an array's block."""
    return f"{name}.{block:05d}.npy"


def _digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write(path: Path, content: np.ndarray | str) -> dict[str, Any]:
    """Write a file: its name and hash, once it is on disk, and the processor seconds this took."""
    began = time.thread_time()
    if isinstance(content, str):
        path.write_text(content, encoding="utf-8")
    else:
        write_array(path, content)
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return {"file": path.name, "sha256": _digest(path), "seconds": time.thread_time() - began}


def write_index(folder: Path, run: Mapping[str, str], files: Mapping[str, str]) -> None:
    """Say which run a checkpoint is of and what its files should be, once all of these are on disk."""
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": dict(run), "files": dict(files)}
    text = json.dumps({**content, "sha256": _digest_of(content)}, indent=1)
    _write(folder / INDEX, text + "\n")


def read_index(folder: Path) -> dict[str, Any] | None:
    """The index of a checkpoint, or None if it is not as it was written."""
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
    """Return whether the files that a rank with these blocks is going to read are as they were written."""
    mine = [name for name in files if (block := block_of(name)) is None or block in blocks]
    try:
        with ThreadPoolExecutor(WRITERS) as readers:
            digests = list(readers.map(_digest, (folder / name for name in mine)))
    except OSError:
        return False
    return digests == [files[name] for name in mine]


def differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    """Differences between a checkpoint's run and this one, in words."""
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    sentences = [
        f"{name}={there.get(name, 'unknown')} there, {here.get(name, 'unknown')} here" for name in names[:SHOWN]
    ]
    return "; ".join(sentences)
