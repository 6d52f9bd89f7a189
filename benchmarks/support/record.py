"""What every benchmark shares: its command line, and a JSON file that says what was measured, where, and how.

The file is rewritten after each measured item, so that a run cut short keeps what it has.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import os
import platform
import shlex
import statistics
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np

PACKAGES = ("mgclust", "numpy", "numba", "scipy", "scikit-learn", "dask", "distributed", "dask-cuda")


def parser(doc: str) -> argparse.ArgumentParser:
    """The options that all benchmarks have; `doc` is the script's docstring."""
    out = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    out.add_argument("--out", type=Path, help="JSON file to write (default: print only)")
    out.add_argument("--data", type=Path, help="folder of further point sets, as NAME.npz with X and y")
    return out


class Record:
    """Items measured by one run of one script; `beside` are further packages whose versions are kept."""

    def __init__(self, doc: str, out: Path | None, beside: tuple[str, ...] = ()) -> None:
        self.out = out
        self.document: dict[str, Any] = {
            "question": doc.strip().splitlines()[0],
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "command": shlex.join(["python", "-m", sys.modules["__main__"].__spec__.name, *_arguments()]),
            "hardware": hardware(),
            "versions": versions(beside),
            "items": [],
        }

    def note(self, name: str, value: Any) -> None:
        """Keep a statement beside the items: limits, conditions."""
        self.document[name] = value
        self._write()

    def add(self, item: str, **figures: Any) -> dict[str, Any]:
        """Keep one item's figures and print them as one line."""
        figures = {key: _plain(value) for key, value in figures.items()}
        self.document["items"].append({"item": item, **figures})
        shown = "  ".join(f"{key}={_short(value)}" for key, value in figures.items())
        print(f"{item}: {shown}", flush=True)
        self._write()
        return figures

    def _write(self) -> None:
        if self.out is not None:
            self.out.parent.mkdir(parents=True, exist_ok=True)
            self.out.write_text(json.dumps(self.document, indent=1) + "\n")


def _arguments() -> list[str]:
    """The command line without this machine's folders."""
    return [Path(a).name if os.path.isabs(a) else a for a in sys.argv[1:]]


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(v) for v in value]
    if isinstance(value, np.generic):
        value = value.item()
    return float(f"{value:.6g}") if isinstance(value, float) else value


def _short(value: Any) -> str:
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_short(v)}" for key, v in value.items()) + "}"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def hardware() -> dict[str, Any]:
    """Processor, memory and GPUs of this machine."""
    cpu = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    out: dict[str, Any] = {"cpu": cpu, "cores": os.cpu_count(), "memory_gib": round(memory / 2**30, 1)}
    if importlib.util.find_spec("cupy"):
        import cupy

        try:
            count = cupy.cuda.runtime.getDeviceCount()
            names = [cupy.cuda.runtime.getDeviceProperties(i)["name"].decode() for i in range(count)]
        except cupy.cuda.runtime.CUDARuntimeError:
            names = []
        out["gpus"] = names
    return out


def versions(beside: tuple[str, ...] = ()) -> dict[str, str]:
    """Python, the packages that decide a figure, and others."""
    out = {"python": platform.python_version()}
    names = [*PACKAGES, *beside, *(n for n in ("cupy-cuda13x", "cupy-cuda12x") if importlib.util.find_spec("cupy"))]
    for name in names:
        try:
            out[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return out


def seconds(function: Callable[[], Any], repeat: int = 3) -> tuple[float, Any]:
    """Median wall time of a call after one warm-up, and its last value."""
    function()
    times, value = [], None
    for _ in range(repeat):
        start = time.perf_counter()
        value = function()
        times.append(time.perf_counter() - start)
    return statistics.median(times), value


def peak_bytes() -> int:
    """Most memory that this process ever held; not its parent's, which `getrusage` passes on."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))
