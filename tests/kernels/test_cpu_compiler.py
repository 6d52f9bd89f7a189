"""Compiled kernels are kept on disk where that is possible; where it is not, they compute all the same."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from numba.core import event

import mgclust.kernels.toolkit.cpu_compiler  # noqa: F401 - delays signals in this process

pytestmark = pytest.mark.slow

KERNELS = """
import numpy as np
from mgclust.kernels.toolkit.cpu_compiler import allocating, compiled, inlined

@inlined
def half(x):
    return x / 2

@inlined
def scaled(x, factor):
    return factor * x

@compiled
def twice(x):
    return scaled(half(x), np.int64(3)) + scaled(half(x), np.int64(1))

@allocating
def same(x):
    return x
"""
# The cache is there when Numba is told of it, and not when there is something to be kept.
SPOIL = """
import os, pathlib
from numba.core import event
class Spoiler(event.Listener):
    def on_start(self, _):
        for folder in pathlib.Path(os.environ["NUMBA_CACHE_DIR"]).glob("*"):
            if folder.is_dir():
                folder.rmdir()
                folder.write_text("no folder")
    def on_end(self, _):
        pass
event.register("numba:compile", Spoiler())
"""
# Prints the functions that were compiled, at the end.
COMPILED = """
import atexit
from numba.core import event
compiled = []
class Noting(event.Listener):
    def on_start(self, begun):
        compiled.append(begun.data["dispatcher"].py_func.__name__)
    def on_end(self, _):
        pass
event.register("numba:compile", Noting())
atexit.register(lambda: print(*compiled))
"""


@pytest.fixture
def ran(tmp_path):
    """Runs the kernels in a process whose home cannot be written, not even by root: it lies below a file."""

    def run(before="", first="", **environment):
        (tmp_path / "kernels.py").write_text(KERNELS)
        (tmp_path / "__pycache__").touch()  # nor beside the code
        (tmp_path / "file").touch()
        own = {
            "HOME": str(tmp_path / "file" / "home"), "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path]),
            "PYTHONDONTWRITEBYTECODE": "1",
        }  # fmt: skip
        code = f"{first}\nimport kernels\n{before}\nprint(kernels.twice(1.5), kernels.same(2))"
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("NUMBA_", "XDG_"))}
        return subprocess.run(
            [sys.executable, "-c", code], env=kept | own | environment, capture_output=True, text=True
        )

    return run


@pytest.mark.parametrize("locators", ["", "UserWideCacheLocator"])
def test_without_a_folder_for_a_cache(ran, locators):
    done = ran(NUMBA_CACHE_LOCATOR_CLASSES=locators)
    assert done.stdout == "3.0 2\n", done.stderr
    assert done.stderr.count("compiled kernels cannot be kept on disk") == 1
    assert "set NUMBA_CACHE_DIR to a writable folder." in done.stderr


def test_a_folder_that_is_gone_when_it_is_needed(ran, tmp_path):
    done = ran(SPOIL, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert done.stdout == "3.0 2\n", done.stderr
    assert done.stderr.count("compiled kernels cannot be kept on disk") == 1


def test_a_folder_is_used(ran, tmp_path):
    """The second process loads what the first one has compiled, and needs no parts."""
    for names in ("twice half scaled same", ""):
        done = ran(COMPILED, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert (done.stdout, done.stderr) == (f"3.0 2\n{names}\n", "")
    assert {each.name.split("-")[0] for each in tmp_path.glob("cache/*/*.nbi")} == {"kernels.twice", "kernels.same"}


def test_a_folder_that_can_only_be_read(ran, tmp_path):
    """Kernels are compiled all the same, and the folder stays as it is."""
    usual = tmp_path / "usual"
    read_only = """
import tempfile
def refuse(dir):
    raise PermissionError
tempfile.TemporaryFile = refuse
"""
    assert ran(NUMBA_CACHE_DIR=str(usual)).stdout == "3.0 2\n"
    before = sorted(usual.glob("*/*"))
    done = ran(first=read_only, NUMBA_CACHE_DIR=str(usual))
    assert done.stdout == "3.0 2\n", done.stderr
    assert done.stderr.count("compiled kernels cannot be kept on disk") == 1
    assert sorted(usual.glob("*/*")) == before


@pytest.mark.parametrize("module", ["kernels", "numba"])
def test_a_folder_of_its_own_that_a_process_sets_late(ran, tmp_path, module):
    """As jobs of the service do, whose modules are there before they know their user."""
    own = f"""
import {module}
from mgclust.service.confined.caches import use_private_caches
use_private_caches({str(tmp_path / "own")!r})
"""
    for names in ("twice half scaled same", ""):
        done = ran(COMPILED, own, NUMBA_CACHE_DIR=str(tmp_path / "usual"))
        assert (done.stdout, done.stderr) == (f"3.0 2\n{names}\n", "")
    assert list(tmp_path.glob("own/numba/*/*.nbc")) and not list(tmp_path.glob("usual/*"))


def test_threads_compile_a_kernel_once(ran, tmp_path):
    threads = """
from concurrent.futures import ThreadPoolExecutor
with ThreadPoolExecutor(4) as pool:
    assert set(pool.map(kernels.twice, [1.5] * 4)) == {3.0}
"""
    done = ran(COMPILED + threads, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.stdout, done.stderr) == ("3.0 2\ntwice half scaled same\n", "")


def test_a_listener_is_told_of_each_function_that_is_compiled(ran, tmp_path):
    tell = """
from mgclust.kernels.toolkit.cpu_compiler import on_compiling
with on_compiling(lambda: print("one")):
    kernels.twice(1.5)
    kernels.twice(2.5)
"""
    assert ran(tell, NUMBA_CACHE_DIR=str(tmp_path / "cache")).stdout == "one\none\none\n3.0 2\n"
    assert ran(tell, NUMBA_CACHE_DIR=str(tmp_path / "cache")).stdout == "3.0 2\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_wait_for_the_end_of_a_compilation(number):
    """Errors of Python functions that LLVM calls are lost, and so would be the error that a signal raises."""
    reached = []

    def stop(*_):
        raise KeyboardInterrupt

    def compile_two():
        with event.trigger_event("numba:compiler_lock"):
            with event.trigger_event("numba:compiler_lock"):
                signal.raise_signal(number)
                reached.append("inner")
            reached.append("outer")

    before = signal.signal(number, stop)
    try:
        with pytest.raises(KeyboardInterrupt):
            compile_two()
        assert reached == ["inner", "outer"]
        assert signal.getsignal(number) is stop
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(number)
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM"])
def test_a_stop_discards_no_compiled_kernel(ran, tmp_path, name):
    """If a job is cancelled while it compiles a function, a retry does not compile this function again."""
    interrupt = f"""
import signal
signal.signal(signal.SIGTERM, signal.default_int_handler)
class Interrupting(event.Listener):
    def on_start(self, begun):
        if begun.data["dispatcher"].py_func.__name__ == "twice":
            signal.raise_signal(signal.{name})
    def on_end(self, _):
        pass
event.register("numba:compile", Interrupting())
try:
    kernels.twice(1.5)
except KeyboardInterrupt:
    print("stopped")
"""
    done = ran(COMPILED + interrupt, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.stdout, done.stderr) == ("stopped\n3.0 2\ntwice half scaled same\n", "")
    assert ran(COMPILED, NUMBA_CACHE_DIR=str(tmp_path / "cache")).stdout == "3.0 2\n\n"
