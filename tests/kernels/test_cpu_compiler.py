"""Compiled kernels are kept on disk where that is possible; where it is not, they compute all the same."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mgclust.kernels.toolkit.cpu_compiler import OWN_CACHE, is_known

pytestmark = pytest.mark.slow

KERNELS = """
from mgclust.kernels.toolkit.cpu_compiler import allocating, compiled, inlined

@inlined
def half(x):
    return x / 2

@inlined
def scaled(x, factor):
    return factor * x

@compiled
def twice(x):
    return scaled(half(x), 3) + scaled(half(x), 1)

@allocating
def same(x):
    return x
"""
# The cache is there when the module is loaded, and not when there is something to be kept.
SPOIL = """
import os, pathlib
cache = pathlib.Path(os.environ.get("NUMBA_CACHE_DIR", "none"))
for folder in cache.glob("*"):
    folder.rmdir()
    folder.write_text("no folder")
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
    assert "set NUMBA_CACHE_DIR to a folder that can be written." in done.stderr


def test_a_folder_that_is_gone_when_it_is_needed(ran, tmp_path):
    done = ran(SPOIL, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert done.stdout == "3.0 2\n", done.stderr
    assert done.stderr.count("compiled kernels cannot be kept on disk") == 1


def test_a_folder_is_used(ran, tmp_path):
    """The second process loads what the first one has compiled."""
    hits = "import atexit; atexit.register(lambda: print(sum(kernels.twice.stats.cache_hits.values())))"
    for found in (0, 1):
        done = ran(hits, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
        assert (done.stdout, done.stderr) == (f"3.0 2\n{found}\n", "")


def test_a_folder_that_can_only_be_read(ran, tmp_path):
    """What is there is loaded; what is compiled is kept in the process's own folder, and loaded by the next one."""
    usual, own = tmp_path / "usual", tmp_path / "own"
    read_only = """
import tempfile
real = tempfile.TemporaryFile
def refuse(dir):
    if "usual" in dir:
        raise PermissionError
    return real(dir=dir)
tempfile.TemporaryFile = refuse
"""
    more = (
        "kernels.twice(2)\nimport atexit; atexit.register(lambda: print(sum(kernels.twice.stats.cache_hits.values())))"
    )
    assert ran(NUMBA_CACHE_DIR=str(usual)).stdout == "3.0 2\n"
    before = sorted(usual.glob("*/*"))
    kept = {OWN_CACHE: str(own)}
    for found in (1, 2):
        done = ran(more, read_only, NUMBA_CACHE_DIR=str(usual), **kept)
        assert (done.stdout, done.stderr) == (f"3.0 2\n{found}\n", "")
    assert sorted(usual.glob("*/*")) == before and list(own.glob("*/*.nbc"))


def test_a_function_is_not_compiled_for_each_constant(ran, tmp_path):
    count = "import atexit; atexit.register(lambda: print(len(kernels.scaled.signatures)))"
    done = ran(count, NUMBA_CACHE_DIR=str(tmp_path / "cache"))
    assert (done.stdout, done.stderr) == ("3.0 2\n1\n", "")


PARTS = """
import gc
import numpy as np
from mgclust.kernels.toolkit.cpu_compiler import allocating, called, compiled, inlined

@called
def deepest(x):
    return x * 2 if x > 0 else -x

@called
def deep(x):
    return deepest(x) + 1

@compiled
def first(x):
    return deepest(x) + deep(x)

@compiled
def second(x):
    return deep(x) + deepest(x) + first(x)

@allocating
def third(n):
    values = np.zeros(n)
    for i in range(n):
        values[i] = deep(i)
    return values.sum()

def index(name):
    return sum(f".{name}-" in each.name for each in cache.glob("*/*.nbi"))
"""


def test_what_only_kernels_call_is_a_part_of_each(tmp_path):
    """Parts of parts, shared ones, in whatever order; none is kept for itself."""
    (tmp_path / "kernels.py").write_text(PARTS)
    code = f"""
import gc, pathlib, sys
sys.path.insert(0, {str(tmp_path)!r})
import kernels
kernels.cache = pathlib.Path({str(tmp_path / "cache")!r})
results = kernels.second(3), kernels.first(-2), kernels.third(4)
names = [kernels.index(each) for each in ("deepest", "deep", "first", "second", "third")]
print(*results, *names, bool(kernels.deepest.signatures), gc.isenabled())
"""
    own = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    for compiled in (True, False):  # loaded kernels do not need the parts
        done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
        assert (done.stdout, done.stderr) == (f"26 5 16.0 0 0 1 1 1 {compiled} True\n", "")


def test_the_installed_numba_is_known():
    """Else kernels compile the long way round: run all tests with `KNOWN_NUMBA` raised, then keep it."""
    assert is_known()


def test_kernels_compile_with_a_numba_that_is_not_known(tmp_path):
    (tmp_path / "kernels.py").write_text(PARTS)
    code = f"""
import numba, sys
numba.__version__ = "0.99.0"
sys.path.insert(0, {str(tmp_path)!r})
import kernels
print(kernels.second(3), kernels.first(-2), kernels.third(4))
"""
    own = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", code], env=own, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("26 5 16.0\n", "")
