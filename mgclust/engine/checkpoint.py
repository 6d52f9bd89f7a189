"""Checkpoints: what a run needs to go on from where it was, on as many ranks as there are then.

::

    FOLDER/checkpoint-7/checkpoint.json    which run it is of, and the SHA-256 of every other file
    FOLDER/checkpoint-7/control.json       what all ranks know alike and fits into a few lines
    FOLDER/checkpoint-7/NAME.npy           an array that all ranks have alike
    FOLDER/checkpoint-7/NAME.00012.npy     block 12 of an array whose rows are shared out like those of the data
    FOLDER/checkpoint-8/...                the one after it; the two last are kept

Blocks have a size that depends on the data alone (`mgclust.engine.partition`), so any number of ranks finds its own.
A checkpoint is written under another name and renamed once all ranks have theirs on disk: it is there whole or not at
all. What later became of its files, their hashes tell: one that is damaged is passed over for the one before.

Ranks meet for the question whether one is due, about five times a second, and while one is written. Without a
`Checkpoint` they never do.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from mgclust.array_files import write_array
from mgclust.engine.comm import Comm
from mgclust.engine.partition import Partition
from mgclust.errors import InputError
from mgclust.result import whole_directory

__all__ = ["Checkpoint", "Checkpoints", "Saved"]

Array = Any

FORMAT, FORMAT_VERSION = "mgclust-checkpoint", 1
INDEX, CONTROL = "checkpoint.json", "control.json"
PAUSE = 0.2  # seconds between two questions whether a checkpoint is due
# Of a whole checkpoint, and of one that `whole_directory` has not renamed yet.
OURS = re.compile(r"checkpoint-(?P<whole>\d+)|\.checkpoint-(?P<torn>\d+)\.[0-9a-f]+\.partial")
OF_A_BLOCK = re.compile(r".+\.(\d+)\.npy")
WRITERS = 4  # threads of a rank that write, hash and flush blocks while the next one comes from the device
SHOWN = 3  # differences between two runs that a refusal names


@dataclass(frozen=True)
class Checkpoint:
    """Where and how often a run writes checkpoints; if there is one of the same run, it goes on from there.

    Parameters
    ----------
    folder : path
        Made if its parent exists. All ranks must reach it: on several machines, a shared file system.
    seconds : float, default=60.0
        At least so long passes between two of them.
    share : float, default=0.02
        Longer where writing would otherwise take more than this share of the time.
    strict : bool, default=True
        Refuse a folder that cannot be used, or that holds checkpoints of another run. False: say so and go on without
        checkpoints, or anew in place of those; for a folder that is the caller's own.
    run : mapping of str to str
        What makes it the same run; filled in by `of_run`.
    """

    folder: str | os.PathLike[str]
    seconds: float = 60.0
    share: float = 0.02
    strict: bool = True
    run: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))
        if not self.seconds >= 0:
            raise InputError(f"checkpoint_seconds={self.seconds!r} should be >= 0; 60 is customary.")
        if not 0 < self.share <= 1:
            raise InputError(f"share={self.share!r} of a checkpoint should be > 0 and <= 1; 0.02 is customary.")

    def of_run(self, facts: Mapping[str, Any]) -> Checkpoint:
        """Say what the run is: whatever its result depends on, arrays by their hashes."""
        told = {name: json.dumps(value, sort_keys=True, default=_briefly) for name, value in facts.items()}
        return replace(self, run=told)

    def remove(self) -> None:
        """Remove all checkpoints, and their folder if nothing else is in it; once the result is safe."""
        for path in _ours(Path(self.folder)):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


class Saved:
    """A checkpoint that was found whole.

    Attributes
    ----------
    control : dict
        As it was saved.
    arrays : dict of str to ndarray
        Those that all ranks have alike, on the host.
    """

    def __init__(self, folder: Path, files: Mapping[str, str], partition: Partition, rank: int) -> None:
        self._folder, self._partition, self._rank = folder, partition, rank
        self.control: dict[str, Any] = json.loads((folder / CONTROL).read_text(encoding="utf-8"))
        alike = [name for name in files if name.endswith(".npy") and not OF_A_BLOCK.fullmatch(name)]
        self.arrays = {name.removesuffix(".npy"): _load(folder / name) for name in alike}

    def rows(self, name: str) -> Iterator[tuple[slice, np.ndarray]]:
        """An array's rows that are this rank's, a block at a time, on the host.

        Yields
        ------
        place : slice
            Where they belong among the rank's own.
        rows : ndarray
        """
        first = self._partition.rows_of(self._rank)[0]
        for block in self._partition.blocks_of(self._rank):
            start, stop = self._partition.bounds(block)
            yield slice(start - first, stop - first), _load(self._folder / _block_file(name, block))


class Checkpoints:
    """What an algorithm sees of it, as ``context.checkpoint``; without a `Checkpoint` nothing is due and nothing found.

    All ranks call the same methods in the same order.

    Parameters
    ----------
    plan : Checkpoint or None
    comm : Comm
    partition : Partition
    kernels : module
    stage : callable
        `Context.stage`.
    say : callable
        `Context.say`.
    """

    def __init__(
        self,
        plan: Checkpoint | None,
        *,
        comm: Comm,
        partition: Partition,
        kernels: Any,
        stage: Callable[[str], AbstractContextManager[None]],
        say: Callable[..., None],
    ) -> None:
        self._plan = plan
        self._comm = comm
        self._partition = partition
        self._kernels = kernels
        self._stage = stage
        self._say = say
        self._found: list[_Found] = []
        self._last: int | None = None  # the last one that is known to be whole
        if plan is None:
            return
        self._folder = Path(plan.folder)
        try:
            self._found, self._number = self._open(plan)
        except InputError as error:
            if plan.strict:
                raise
            self._plan = None
            self._say(warning=f"no checkpoints: {error}")
            return
        self._every, self._calls = 1, 0  # calls of `due` from one question to the next, and since the last one
        self._asked = time.perf_counter()
        self._next = self._asked + plan.seconds

    def due(self, *, seldom: bool = False) -> bool:
        """Whether to `save` now: the same on all ranks, by the clock of rank 0.

        Parameters
        ----------
        seldom : bool
            Ask rank 0 at every call: for callers that come by a few times a run. Otherwise rank 0 says each time in
            how many calls, which all ranks count, to ask again.
        """
        if self._plan is None:
            return False
        self._calls += 1
        if self._calls < self._every and not seldom:
            return False
        now = time.perf_counter()
        in_a_pause = self._calls * min(PAUSE, self._plan.seconds) / max(now - self._asked, 1e-9)
        # At most twice as many as the last time: what comes may take longer than what was.
        every = max(1, min(2 * self._calls, int(in_a_pause)))
        due, self._every = self._comm.agree((now >= self._next, every))
        self._calls, self._asked = 0, now
        return bool(due)

    def save(
        self,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        rows: Mapping[str, Array] | None = None,
    ) -> None:
        """Write a checkpoint; where that fails, say so and go on without.

        Parameters
        ----------
        control : mapping
            Plain values for JSON, the same on all ranks.
        arrays : mapping of str to ndarray, optional
            On the host, the same on all ranks. Written by rank 0.
        rows : mapping of str to array, optional
            Arrays whose rows belong to this rank's rows of the data; may be on the device.
        """
        assert self._plan is not None
        began = time.perf_counter()
        self._number += 1
        try:
            with contextlib.ExitStack() as whole:
                folder = self._comm.agree(self._begin(whole) if self._comm.rank == 0 else None)
                told = self._everyone(self._write(folder, control, arrays or {}, rows or {}))
                problems = [each["problem"] for each in told if "problem" in each]
                if problems:
                    raise _Unwritten(problems[0])
                if self._comm.rank == 0:
                    _write_index(folder, self._plan.run, {each["file"]: each["sha256"] for each in told})
            if self._comm.rank == 0:
                self._keep_two()
            self._last = self._number
        except (_Unwritten, OSError) as error:
            # Of the last steps, which rank 0 takes alone, other ranks need not know that they failed.
            reason = getattr(error, "strerror", None) or str(error)
            self._say(
                warning=f"no checkpoint could be written to {str(self._folder)!r} ({reason}): the run goes on without, "
                "and tries again later; make room there."
            )
        self._asked = time.perf_counter()
        cost = self._asked - began
        self._next = self._asked + max(self._plan.seconds, cost / self._plan.share - cost)

    def load(self) -> Saved | None:
        """The last checkpoint of this run that is whole, or None where there is none to go on from."""
        if not self._found:
            return None
        with self._stage("resume"):
            for number, files in self._found:
                folder = self._folder / _name_of(number)
                whole = np.array([self._is_whole(folder, files)], np.int64)
                if self._comm.all_reduce(whole, "min")[0]:
                    self._last = number
                    return Saved(folder, files, self._partition, self._comm.rank)
                self._say(warning=f"checkpoint {str(folder)!r} is damaged and is passed over.")
        return None

    def _open(self, plan: Checkpoint) -> tuple[list[_Found], int]:
        """The checkpoints that are there, the last one first, and the highest number; refuses another run's."""
        answer = self._comm.agree(self._look(plan) if self._comm.rank == 0 else None)
        if isinstance(answer, InputError):
            raise answer
        probe, found, number = answer
        seen = self._comm.all_gather(np.array([probe.exists()], np.int64))
        if self._comm.rank == 0:
            probe.unlink(missing_ok=True)
        if not seen.all():
            raise InputError(
                f"checkpoint={str(plan.folder)!r} is not the same folder everywhere: rank {int(seen.argmin())} does "
                "not see what rank 0 writes there; name a folder on a file system that all machines share."
            )
        return found, number

    def _look(self, plan: Checkpoint) -> tuple[Path, list[_Found], int] | InputError:
        """Rank 0's part of `_open`: make the folder, clear what was not finished, read what there is."""
        folder = Path(plan.folder)
        probe = folder / f".{secrets.token_hex(4)}.probe"
        try:
            folder.mkdir(exist_ok=True)
            probe.touch()
        except OSError as error:
            return InputError(
                f"checkpoint={str(folder)!r} cannot be written ({error.strerror or error}); name another folder."
            )
        found, highest = [], 0
        for path in sorted(_ours(folder), key=_number_of, reverse=True):
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
                continue
            highest = max(highest, _number_of(path))
            index = _read_index(path)
            if index is None:
                self._say(warning=f"checkpoint {str(path)!r} is damaged and is passed over.")
                continue
            if index["run"] != plan.run and not plan.strict:
                told = _differences(index["run"], plan.run)
                self._say(warning=f"checkpoint {str(path)!r} is of another run ({told}): the run begins anew.")
                shutil.rmtree(path, ignore_errors=True)
                continue
            if index["run"] != plan.run:
                probe.unlink(missing_ok=True)
                return InputError(
                    f"checkpoint={str(folder)!r} holds checkpoints of another run "
                    f"({_differences(index['run'], plan.run)}); name another folder, or remove this one."
                )
            found.append(_Found(_number_of(path), index["files"]))
        return probe, found, highest

    def _begin(self, whole: contextlib.ExitStack) -> Path | str:
        """The unfinished folder, which gets its name when `whole` closes well; or why there is none."""
        try:
            return whole.enter_context(whole_directory(self._folder / _name_of(self._number)))
        except (OSError, InputError) as error:
            return getattr(error, "strerror", None) or str(error)

    def _write(
        self,
        folder: Path | str,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        rows: Mapping[str, Array],
    ) -> list[dict[str, str]]:
        """Write this rank's files: their names and hashes, or the problem."""
        if isinstance(folder, str):
            return [{"problem": folder}]
        files: list[Future[dict[str, str]]] = []
        try:
            with ThreadPoolExecutor(WRITERS) as writers:
                if self._comm.rank == 0:
                    (folder / CONTROL).write_text(json.dumps(control), encoding="utf-8")
                    files.append(writers.submit(_flushed, folder / CONTROL))
                for name, own in self._own_arrays(arrays, rows):
                    files.append(writers.submit(_write_flushed, folder / name, own))
                    if len(files) > WRITERS:
                        files[-1 - WRITERS].result()  # so many blocks in memory at most
            return [file.result() for file in files]
        except OSError as error:
            return [{"problem": error.strerror or str(error)}]

    def _own_arrays(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[str, Array]
    ) -> Iterator[tuple[str, np.ndarray]]:
        """The files that this rank writes, and what is in them, one after the other from the device."""
        if self._comm.rank == 0:
            for name, array in arrays.items():
                yield f"{name}.npy", array
        first = self._partition.rows_of(self._comm.rank)[0]
        for name, array in rows.items():
            for block in self._partition.blocks_of(self._comm.rank):
                start, stop = self._partition.bounds(block)
                yield _block_file(name, block), self._kernels.to_host(array[start - first : stop - first])

    def _everyone(self, own: list[dict[str, str]]) -> list[dict[str, str]]:
        """What all ranks have to tell; each has come so far once it is known."""
        lines = "".join(json.dumps(each) + "\n" for each in own)
        every = self._comm.all_gather(np.frombuffer(lines.encode(), np.uint8))
        return [json.loads(line) for line in every.tobytes().decode().splitlines()]

    def _is_whole(self, folder: Path, files: Mapping[str, str]) -> bool:
        """Whether the files that this rank is going to read are as they were written."""
        own = self._partition.blocks_of(self._comm.rank)
        mine = [name for name in files if (block := OF_A_BLOCK.fullmatch(name)) is None or int(block[1]) in own]
        try:
            with ThreadPoolExecutor(WRITERS) as readers:
                digests = list(readers.map(_digest, (folder / name for name in mine)))
        except OSError:
            return False
        return digests == [files[name] for name in mine]

    def _keep_two(self) -> None:
        """Remove all but the one that was just written and the one before it."""
        for path in _ours(self._folder):
            if _number_of(path) not in (self._number, self._last):
                shutil.rmtree(path, ignore_errors=True)


class _Found(NamedTuple):
    """A checkpoint whose index could be read, and the hashes of its files."""

    number: int
    files: dict[str, str]


class _Unwritten(Exception):
    """Some rank could not write its part."""


def _ours(folder: Path) -> list[Path]:
    """The checkpoints of a folder, finished or not; whatever else is there is left alone."""
    try:
        paths = list(folder.iterdir())
    except OSError:
        return []
    return [path for path in paths if path.is_dir() and OURS.fullmatch(path.name)]


def _number_of(path: Path) -> int:
    found = OURS.fullmatch(path.name)
    assert found is not None
    return int(found["whole"] or found["torn"])


def _name_of(number: int) -> str:
    return f"checkpoint-{number}"


def _block_file(name: str, block: int) -> str:
    return f"{name}.{block:05d}.npy"


def _load(path: Path) -> np.ndarray:
    array: np.ndarray = np.load(path, allow_pickle=False)
    return array


def _digest(path: Path) -> str:
    """The SHA-256 of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_flushed(path: Path, array: np.ndarray) -> dict[str, str]:
    write_array(path, array)
    return _flushed(path)


def _flushed(path: Path) -> dict[str, str]:
    """A file's name and hash, once it is on disk."""
    with open(path, "rb") as file:
        os.fsync(file.fileno())
    return {"file": path.name, "sha256": _digest(path)}


def _write_index(folder: Path, run: Mapping[str, str], files: Mapping[str, str]) -> None:
    content = {"format": FORMAT, "format_version": FORMAT_VERSION, "run": dict(run), "files": dict(files)}
    text = json.dumps({**content, "sha256": _digest_of(content)}, indent=1)
    (folder / INDEX).write_text(text + "\n", encoding="utf-8")
    _flushed(folder / INDEX)


def _read_index(folder: Path) -> dict[str, Any] | None:
    """The index of a checkpoint, or None if it is not as it was written."""
    try:
        content = json.loads((folder / INDEX).read_text(encoding="utf-8"))
        digest = content.pop("sha256")
    except (OSError, ValueError, KeyError, AttributeError, TypeError):
        return None
    ours = content.get("format") == FORMAT and content.get("format_version") == FORMAT_VERSION
    return content if ours and digest == _digest_of(content) else None


def _digest_of(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def _differences(there: Mapping[str, str], here: Mapping[str, str]) -> str:
    names = [name for name in {**here, **there} if there.get(name) != here.get(name)]
    told = [f"{name}={there.get(name, 'unknown')} there, {here.get(name, 'unknown')} here" for name in names[:SHOWN]]
    return "; ".join(told)


def _briefly(value: Any) -> Any:
    """What JSON does not know, so that equal values give equal text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype.name} {list(value.shape)} {digest}"
    return str(value)
