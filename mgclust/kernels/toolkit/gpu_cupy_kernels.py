"""CuPy's own kernels, compiled side by side: by itself CuPy compiles one after the other, 50 ms each.

A first fit asks CuPy for 15 to 100 small kernels. ``cupy_kernels.json.xz`` has the programs that CuPy made of them when
the methods were run for the record (``python -m benchmarks.kernels.first_fits --record``). When CuPy is about to
compile one of them, it and those that follow it in the record are compiled by some processes, and CuPy is handed the
machine code, which it keeps as ever. A program that is not in the record, since the rows differ or CuPy does, is
compiled by CuPy: a stale record costs time, never a result.
"""

from __future__ import annotations

import contextlib
import functools
import lzma
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from cupy.cuda import compiler

from mgclust.json_text import parse_json
from mgclust.kernels.toolkit.gpu_processes import Task, idle_cores, share_out

__all__ = ["RECORD", "Programs", "begin", "key_of"]

RECORD = Path(__file__).with_name("cupy_kernels.json.xz")
FEW_FEATURES = 16  # up to which methods take other ways (`gpu_launch.LOW_DIMENSIONS`)
MOST_PROCESSES = 8  # that compile CuPy's kernels; each parses CuPy's headers first, for a quarter of a second


class Programs:
    """Programs that may be asked for, and what processes have made of them."""

    def __init__(self) -> None:
        self._expected: list[str] = []
        self._begun: dict[tuple[str, tuple[str, ...]], Future[bytes]] = {}
        self._lock = threading.Lock()

    def expect(self, programs: Sequence[str]) -> None:
        """Note what a run is likely to ask for, in this order."""
        with self._lock:
            self._expected = list(programs)

    def machine_code(self, program: str, options: tuple[str, ...]) -> bytes:
        """Return the machine code of a program, waiting for it; empty where it is not expected, or has failed."""
        with self._lock:
            processes = min(MOST_PROCESSES, idle_cores() // 2)
            if processes and program in self._expected and (program, options) not in self._begun:
                # What precedes it was asked for, or is in CuPy's cache.
                programs = self._expected[self._expected.index(program) :]
                self._expected = []
                left = [(each, options) for each in programs if (each, options) not in self._begun]
                try:
                    share_out([self._plan(*each) for each in left], processes)
                except BaseException:  # an interrupt from the keyboard: nobody may wait for these
                    for each in left:
                        if each in self._begun:
                            self._begun.pop(each).cancel()
                    raise
            begun = self._begun.get((program, options))
        with contextlib.suppress(Exception):  # CuPy compiles it, and says what is wrong
            return begun.result() if begun else b""
        return b""

    def _plan(self, program: str, options: tuple[str, ...]) -> Task:
        self._begun[program, options] = Future()
        return self._begun[program, options], lambda compile_: compile_(program, options)


_PROGRAMS = Programs()


def key_of(function: str, dtype: str, d: int) -> str:
    """Name of a run in the record: of which method, in which type, with few or many features."""
    return f"{function}, {dtype}, {'few' if d <= FEW_FEATURES else 'many'} features"


def begin(function: str, dtype: str, d: int) -> None:
    """Expect the programs of a method's run."""
    if idle_cores() and _take_part():
        record = _record()
        _PROGRAMS.expect([record["programs"][k] for k in record["runs"].get(key_of(function, dtype, d), ())])


@functools.cache
def _record() -> dict[str, Any]:
    record: dict[str, Any] = parse_json(lzma.decompress(RECORD.read_bytes()))
    return record


@functools.cache
def _take_part() -> bool:
    """Ask `_PROGRAMS` before CuPy compiles; return whether this CuPy can be taken part in."""
    program: Any = getattr(compiler, "_NVRTCProgram", None)
    compile_ = getattr(program, "compile", None)
    if compile_ is None:
        return False

    @functools.wraps(compile_)
    def compiled(self: Any, options: tuple[str, ...] = (), log_stream: Any = None) -> Any:
        if getattr(self, "method", "") == "cubin" and not self.name_expressions:
            code = _PROGRAMS.machine_code(self.src, tuple(options))
            if code:
                return code, None
        return compile_(self, options, log_stream)

    program.compile = compiled
    return True
