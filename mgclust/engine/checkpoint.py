"""Checkpoints: the state from which a run resumes, on any number of ranks.

An algorithm first calls `Checkpointer.load`. It calls `Checkpointer.due` where its ranks synchronize anyway, and
`Checkpointer.save` with the state from which its next iteration begins. `mgclust.engine.checkpoint_files` defines the
files. `mgclust.engine.checkpoint_memory` keeps checkpoints in memory, for retries by the caller of a run.

A checkpoint is written under a temporary name, and renamed once all ranks have written their files. So it exists
completely or not at all. Large arrays are copied first and written in the background, while the run continues.

Ranks synchronize to decide whether a checkpoint is due, about five times a second, and to rename a checkpoint that has
been written. Without a `CheckpointConfig`, they do not synchronize for checkpoints.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mgclust.base.errors import InputError
from mgclust.engine.checkpoint_files import (
    CONTROL,
    Ragged,
    Saved,
    Writer,
    are_whole,
    block_file,
    differences,
    in_folder,
    name_of,
    number_of,
    ours,
    read_index,
    write_index,
)
from mgclust.engine.devices import cores
from mgclust.engine.partition import Partition
from mgclust.engine.transport.comm import Comm
from mgclust.kernels import Kernels
from mgclust.outside.json_text import parse_json
from mgclust.results.atomic_directory import atomic_directory

__all__ = ["CheckpointConfig", "Checkpointer", "Ragged", "Saved"]

Array = Any
Found = tuple[int, dict[str, str]]  # number of a checkpoint, and the hashes of its files

# Errors after which the run continues without a checkpoint, e.g. no disk space, no memory for a copy, or no new thread.
UNWRITTEN = (OSError, MemoryError, RuntimeError)


@dataclass(frozen=True)
class CheckpointConfig:
    """Folder and interval of the checkpoints of a run, from which the same run resumes.

    Parameters
    ----------
    folder : path
        Folder of the checkpoints. It is created if its parent exists. All ranks must reach it, so on several machines
        it has to be on a shared file system.
    seconds : float, default=60.0
        Shortest time between two checkpoints, in seconds.
    share : float, default=0.02
        Largest fraction of the run's time that checkpoints may take. If they would take more, the time between them is
        longer.
    strict : bool, default=True
        Behaviour if the folder cannot be used, or holds checkpoints of another run. True: raise an InputError. False:
        warn; if the folder cannot be used, run without checkpoints, else restart the run and replace the checkpoints of
        the other run. Use False only for a folder that belongs to the caller.
    run : mapping of str to str
        Facts that identify the run; `of_run` fills them in.

    Examples
    --------
    >>> from mgclust.engine.checkpoint import CheckpointConfig
    >>> CheckpointConfig("checkpoints", seconds=300.0).seconds
    300.0
    """

    folder: str | os.PathLike[str]
    seconds: float = 60.0
    share: float = 0.02
    strict: bool = True
    run: Mapping[str, str] = field(default_factory=dict)
    poll: ClassVar[float] = 0.2  # seconds between two decisions whether a checkpoint is due

    def __post_init__(self) -> None:
        object.__setattr__(self, "folder", os.path.abspath(self.folder))
        if not self.seconds >= 0:
            raise InputError(f"checkpoint_seconds={self.seconds!r} should be >= 0; 60 is customary.")
        if not 0 < self.share <= 1:
            raise InputError(f"share={self.share!r} of a checkpoint should be > 0 and <= 1; 0.02 is customary.")

    def of_run(self, facts: Mapping[str, Any]) -> CheckpointConfig:
        """Identify the run by everything on which its result depends; arrays are identified by their hashes.

        Parameters
        ----------
        facts : mapping of str to object
            Facts by name. They must be equal for runs that may resume from each other.

        Returns
        -------
        CheckpointConfig
            A copy with these facts.
        """
        facts_text = {name: json.dumps(value, sort_keys=True, default=_briefly) for name, value in facts.items()}
        return replace(self, run=facts_text)

    def remove(self) -> None:
        """Remove all checkpoints, and the folder if it is then empty. Call this only when the result is safe."""
        for path in ours(Path(self.folder)):
            shutil.rmtree(path, ignore_errors=True)
        with contextlib.suppress(OSError):
            os.rmdir(self.folder)


class Checkpointer:
    """The checkpoints of a run, for its algorithm: ``context.checkpoint``.

    `plan` is a `CheckpointConfig`. Without a plan, no checkpoint is ever due or found. All ranks have to call the same
    methods in the same order. `stage` and `say` are methods of the context. `room` returns the bytes of host memory
    that may now be used for copies.
    """

    def __init__(
        self,
        plan: Any,
        *,
        comm: Comm,
        partition: Partition,
        kernels: Kernels,
        stage: Callable[[str], AbstractContextManager[None]],
        say: Callable[..., None],
        room: Callable[[], int],
    ) -> None:
        self._plan: Any = plan
        self._comm = comm
        self._partition = partition
        self._kernels = kernels
        self._stage = stage
        self._say = say
        self._room = room
        self._writing: _Writing | None = None  # the checkpoint that is being written; if a rank has one, all have one
        self._found: list[Found] = []
        self._last: int | None = None  # number of the last checkpoint that is known to be complete
        if plan is None:
            return
        try:
            self._found, self._number = self._open(plan)
        except InputError as error:
            if plan.strict:
                raise
            self._plan = None
            self._say(warning=f"no checkpoints: {error}")
            return
        self._every, self._calls = 1, 0  # calls of `due` per synchronization, and since the last synchronization
        self._asked = time.perf_counter()
        self._next = self._asked + plan.seconds

    @property
    def active(self) -> bool:
        """True if the run saves checkpoints."""
        return self._plan is not None

    def due(self, *, seldom: bool = False) -> bool:
        """Return whether to `save` now. All ranks get the same answer, which depends on the clock of rank 0.

        Parameters
        ----------
        seldom : bool
            True: synchronize with rank 0 at every call, for algorithms that call `due` only a few times per run. False:
            at each synchronization, rank 0 announces after how many calls the ranks synchronize again; all ranks count
            the calls.

        Returns
        -------
        bool
        """
        if self._plan is None:
            return False
        self._calls += 1
        if self._calls < self._every and not seldom:
            return False
        now = time.perf_counter()
        in_a_pause = self._calls * min(self._plan.poll, self._plan.seconds) / max(now - self._asked, 1e-9)
        # The number of calls at most doubles, because the next calls may take longer than the last calls.
        every = max(1, min(2 * self._calls, int(in_a_pause)))
        if self._writing is not None:
            self._name_if_written(self._writing)
        due, self._every = self._comm.agree((now >= self._next and self._writing is None, every))
        self._calls, self._asked = 0, now
        return bool(due)

    def save(
        self,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray] | None = None,
        rows: Mapping[str, Array | Ragged] | None = None,
        *,
        background: bool = False,
    ) -> None:
        """Write a checkpoint. If that fails, warn and continue without it.

        Parameters
        ----------
        control : mapping
            Values that JSON can store, the same on all ranks.
        arrays : mapping of str to ndarray, optional
            Arrays on the host, the same on all ranks. Rank 0 writes them.
        rows : mapping of str to array or Ragged, optional
            Arrays with one row for each row of the data that this rank owns. They may be on the device.
        background : bool
            Whether to return as soon as everything has been copied, as far as memory allows. The checkpoint is renamed
            in a later call of `due`, so the algorithm should call `due` often.
        """
        assert self._plan is not None
        if self._writing is not None:
            self._name(self._writing)
        began = time.perf_counter()
        self._number += 1
        whole = contextlib.ExitStack()
        folder = self._comm.agree(self._begin(whole) if self._comm.rank == 0 else None)
        self._writing = _Writing(self._number, whole, folder)
        self._write(self._writing, control, arrays or {}, rows or {}, background)
        if not background:
            self._name(self._writing)
        self._asked = time.perf_counter()
        self._cost = self._asked - began
        self._set_next()

    def close(self) -> None:
        """Stop, and discard a checkpoint that has not been renamed yet."""
        if self._writing is not None:
            self._writing.close()

    def load(self) -> Saved | None:
        """Return the last complete checkpoint of this run, or None if there is none."""
        if not self._found:
            return None
        with self._stage("resume"):
            for number, files in self._found:
                folder = self._folder / name_of(number)
                own = self._partition.blocks_of(self._comm.rank)
                if self._all(are_whole(folder, files, own)):
                    self._last = number
                    return Saved(in_folder(folder), files, self._partition, self._comm.rank)
                self._say(warning=f"checkpoint {str(folder)!r} is damaged, or of another version, and is skipped.")
        return None

    def _open(self, plan: CheckpointConfig) -> tuple[list[Found], int]:
        """Return the existing checkpoints, latest first, and the highest number; reject checkpoints of another run."""
        self._folder = Path(plan.folder)
        answer = self._comm.agree(self._look(plan) if self._comm.rank == 0 else None)
        if isinstance(answer, InputError):
            raise answer
        probe, found, number = answer
        seen = self._comm.all_gather(np.array([probe.exists()], np.int64))
        if self._comm.rank == 0:
            probe.unlink(missing_ok=True)
        if not seen.all():
            raise InputError(
                f"checkpoint={str(plan.folder)!r} is not the same folder for all ranks: rank {int(seen.argmin())} does "
                "not see what rank 0 writes there; name a folder on a file system that all machines share."
            )
        return found, number

    def _look(self, plan: CheckpointConfig) -> tuple[Path, list[Found], int] | InputError:
        """Do rank 0's part of `_open`: make the folder, remove unfinished checkpoints, and read the existing ones."""
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
        for path in sorted(ours(folder), key=number_of, reverse=True):
            if path.name.startswith("."):
                shutil.rmtree(path, ignore_errors=True)
                continue
            highest = max(highest, number_of(path))
            index = read_index(path)
            if index is None:
                self._say(warning=f"checkpoint {str(path)!r} is damaged, or of another version, and is skipped.")
                continue
            if index["run"] != plan.run and not plan.strict:
                change = differences(index["run"], plan.run)
                self._say(warning=f"checkpoint {str(path)!r} belongs to another run ({change}): this run restarts.")
                shutil.rmtree(path, ignore_errors=True)
                continue
            if index["run"] != plan.run:
                probe.unlink(missing_ok=True)
                return InputError(
                    f"checkpoint={str(folder)!r} holds checkpoints of another run "
                    f"({differences(index['run'], plan.run)}); name another folder, or remove this one."
                )
            found.append((number_of(path), index["files"]))
        return probe, found, highest

    def _begin(self, whole: contextlib.ExitStack) -> Path | str:
        """Return the unfinished folder, or why there is none; it is renamed when `whole` closes without an error."""
        try:
            return whole.enter_context(atomic_directory(self._folder / name_of(self._number)))
        except (OSError, InputError) as error:
            return _reason(error)

    def _write(
        self,
        writing: _Writing,
        control: Mapping[str, Any],
        arrays: Mapping[str, np.ndarray],
        rows: Mapping[str, Array | Ragged],
        background: bool,
    ) -> None:
        """Start to write the files of this rank."""
        if isinstance(writing.folder, str):
            writing.problem = writing.folder
            return
        writing.writer = Writer(writing.folder, self._room() if background else 0)
        try:
            if self._comm.rank == 0:
                writing.writer.add(CONTROL, json.dumps(control))
            for name, own in self._own_arrays(arrays, rows, background):
                writing.writer.add(name, own)
        except UNWRITTEN as error:
            writing.problem = _reason(error)

    def _own_arrays(
        self, arrays: Mapping[str, np.ndarray], rows: Mapping[str, Array | Ragged], copied: bool
    ) -> Iterator[tuple[str, np.ndarray]]:
        """Yield the files that this rank writes, as name and content; copy arrays from the device one by one."""
        if self._comm.rank == 0:
            for name, array in arrays.items():
                yield f"{name}.npy", array.copy() if copied else array
        first = self._partition.rows_of(self._comm.rank)[0]
        for name, held in rows.items():
            for block in self._partition.blocks_of(self._comm.rank):
                start, stop = self._partition.bounds(block)
                part = held[start - first : stop - first]
                own = self._kernels.memory.to_host(part)
                # Arrays on the host are copied, because the run will change them.
                yield block_file(name, block), own.copy() if copied and isinstance(part, np.ndarray) else own

    def _name_if_written(self, writing: _Writing) -> None:
        """Rename a checkpoint if all ranks have written their files."""
        if not self._all(writing.writer is None or writing.writer.done()):
            return
        began = time.perf_counter()
        busy = self._name(writing)
        # The writing threads used cores that the run may have needed.
        self._cost += time.perf_counter() - began + busy / cores()
        self._set_next()

    def _name(self, writing: _Writing) -> float:
        """Wait until all ranks have written their files, and rename the checkpoint; return the total processor time."""
        reports = self._everyone(writing.told())
        problems = [each["problem"] for each in reports if "problem" in each]
        try:
            if problems:
                raise _Unwritten(problems[0])
            if self._comm.rank == 0:
                assert self._plan is not None and isinstance(writing.folder, Path)
                write_index(writing.folder, self._plan.run, {each["file"]: each["sha256"] for each in reports})
                writing.whole.close()
                self._keep(writing.number, self._last)
            self._last = writing.number
        except (_Unwritten, OSError) as error:
            # Only rank 0 takes the last steps, and other ranks need not know whether these steps failed.
            reason = _reason(error)
            self._say(
                warning=f"no checkpoint could be written to {str(self._folder)!r} ({reason}): the run continues "
                "without one, and tries again later; free some disk space."
            )
        writing.close()
        self._writing = None
        return sum(float(each.get("seconds", 0)) for each in reports)

    def _set_next(self) -> None:
        """Set when the next checkpoint is due, so that checkpoints take at most the fraction `share` of the time."""
        assert self._plan is not None
        self._next = self._asked + max(self._plan.seconds, self._cost / self._plan.share - self._cost)

    def _all(self, own: bool) -> bool:
        """Return whether a value is True on all ranks."""
        return bool(self._comm.all_reduce(np.array([own], np.int64), "min")[0])

    def _everyone(self, own: list[dict[str, str]]) -> list[dict[str, str]]:
        """Join the lists of all ranks; when this method returns, all ranks have called it."""
        lines = "".join(json.dumps(each) + "\n" for each in own)
        every = self._comm.all_gather(np.frombuffer(lines.encode(), np.uint8))
        return [parse_json(line) for line in every.tobytes().decode().splitlines()]

    def _keep(self, *numbers: int | None) -> None:
        """Remove all checkpoints whose numbers are not listed."""
        for path in ours(self._folder):
            if number_of(path) not in numbers:
                shutil.rmtree(path, ignore_errors=True)


@dataclass
class _Writing:
    """A checkpoint that is being written, and has not been renamed yet."""

    number: int
    whole: contextlib.ExitStack  # on rank 0, it renames the folder when it closes without an error
    folder: Path | str  # the unfinished folder, or why there is none
    writer: Writer | None = None
    problem: str | None = None

    def told(self) -> list[dict[str, Any]]:
        """Wait for this rank's files; return them with their hashes, or the problem."""
        if self.problem is None and self.writer is not None:
            try:
                return self.writer.files()
            except UNWRITTEN as error:
                self.problem = _reason(error)
        return [{"problem": self.problem}]

    def close(self) -> None:
        """Write nothing more, and remove unfinished files."""
        if self.writer is not None:
            self.writer.close()
        unfinished = _Unwritten()
        self.whole.__exit__(type(unfinished), unfinished, None)


class _Unwritten(Exception):
    """A rank could not write its part, or has decided not to."""


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _briefly(value: Any) -> Any:
    """Encode values that JSON does not know, so that equal values give equal text."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{value.dtype.name} {list(value.shape)} {digest}"
    return str(value)
