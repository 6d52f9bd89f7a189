"""Device forms of kernels without a device: their ``.cu`` files run on the CPU, NumPy takes the place of CuPy.

For the logic of a kernel and of what starts it; races, speed and what a GPU rounds in other ways show on a GPU alone.
A kernel that reads or writes beyond the end of an array, or writes before its start, fails.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import importlib
import mmap
import re
import shutil
import subprocess
import sys
import types
from pathlib import Path

import numpy as np

import mgclust.kernels

FOLDER = Path(mgclust.kernels.__file__).parent
HEADER = Path(__file__).with_name("cuda_on_cpu.hpp")
KERNEL = re.compile(
    r'^extern "C" __global__ void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(\w+)\(([^)]*)\)',
    re.MULTILINE,
)
FEATURES = re.compile(r"^#ifdef DIM\n.*?^#endif\n", re.MULTILINE | re.DOTALL)  # kernels for a number of features
AT_LAUNCH = re.compile(r"extern __shared__ (?:__align__\(\d+\) )?([\w ]+?) (\w+)\[\];")  # as large as is asked for
MAX_SHARED = 48 * 1024
LIBC = ctypes.CDLL(None)
REALS = {"float32": "float", "float64": "double"}
NORMS = {"l2": "NORM_L2", "l1": "NORM_L1"}
NUMBERS = {
    "int": ctypes.c_int, "unsigned": ctypes.c_uint, "int64": ctypes.c_longlong, "uint64": ctypes.c_ulonglong,
    "float": ctypes.c_float, "double": ctypes.c_double, "bool": ctypes.c_bool,
}  # fmt: skip
ALIASES = {  # of pairs.cuh
    "float": {"real": "float", "sbits": "int", "ubits": "unsigned"},
    "double": {"real": "double", "sbits": "int64", "ubits": "uint64"},
}


def compiler() -> str | None:
    return shutil.which("g++")


class File:
    """The kernels of a ``.cu`` file, as `gpu_compiler.Module` has them."""

    def __init__(self, folder: Path, file: str, dtype: str, norm: str, defines: dict[str, int]) -> None:
        text = (FOLDER / file).read_text()
        if "DIM" not in defines:
            text = FEATURES.sub("", text)
        text = AT_LAUNCH.sub(rf"alignas(16) static \1 \2[{MAX_SHARED} / sizeof(\1)];", text)
        header = (FOLDER / "pairs/pairs.cuh").read_text().replace("#pragma once", "")
        self._real, self._kernels = REALS[dtype], {}
        starts = ""
        for name, listed in KERNEL.findall(text):
            parameters = [" ".join(each.split()) for each in listed.split(",")]
            names = ", ".join(re.search(r"(\w+)$", each)[1] for each in parameters)
            starts += f'extern "C" bool start_{name}(int grid_x, int grid_y, int block_x, {", ".join(parameters)}) '
            starts += f"{{ return block::launch(::{name}, grid_x, grid_y, block_x, {names}); }}\n"
            self._kernels[name] = parameters
        constants = {"REAL": self._real, "NORM": NORMS[norm], **defines}
        code = "".join(f"#define {name} {value}\n" for name, value in constants.items())
        code += f'#include "{HEADER}"\n' + text.replace('#include "pairs/pairs.cuh"', header) + starts
        stem = "-".join([Path(file).stem, dtype, norm, *map(str, defines.values())])
        source, library = folder / f"{stem}.cpp", folder / f"{stem}.so"
        source.write_text(code)
        flags = ["-std=c++17", "-O1", "-mfma", "-ffp-contract=off", "-w", "-shared", "-fPIC", "-I", FOLDER]
        subprocess.run([compiler(), *flags, "-o", library, source], check=True, timeout=100)
        self._library = ctypes.CDLL(str(library))

    def get_function(self, name: str):
        kinds = [self._kind(each) for each in self._kernels[name]]
        start = getattr(self._library, f"start_{name}")
        start.restype = ctypes.c_bool

        def launch(grid, threads, arguments, shared_mem=0):
            assert len(arguments) == len(kinds), name
            assert shared_mem <= MAX_SHARED, name
            across, down = (*grid, 1)[:2]
            with guarded([each for each in arguments if isinstance(each, np.ndarray)]) as place:
                passed = [
                    ctypes.c_void_p(place(each) if isinstance(each, np.ndarray) else None)
                    if kind is None
                    else kind(each.item())
                    for kind, each in zip(kinds, arguments, strict=True)
                ]
                faulty = start(across, down, threads[0], *passed)
            assert not faulty, f"{name} reads or writes beyond the end of an array"

        return launch

    def _kind(self, parameter: str):
        if "*" in parameter:
            return None
        word = parameter.split()[-2]
        return NUMBERS[ALIASES[self._real].get(word, word)]


@contextlib.contextmanager
def guarded(arrays):
    """Let a kernel work on copies of arrays, each of which ends where a page without rights begins.

    Yields
    ------
    callable
        Address of the copy of one of the arrays. Views of the same memory are copied together.
    """
    spans = []
    for low, high in sorted(np.lib.array_utils.byte_bounds(each) for each in arrays if each.size):
        if spans and low < spans[-1][1]:
            spans[-1][1] = max(high, spans[-1][1])
        else:
            spans.append([low, high])
    copies = []
    for low, high in spans:
        size = high - low
        inside = -(-size // mmap.PAGESIZE) * mmap.PAGESIZE
        room = mmap.mmap(-1, inside + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(room))
        before = room[: inside - size] = b"\xff" * (inside - size)
        ctypes.memmove(start + inside - size, low, size)
        assert not LIBC.mprotect(ctypes.c_void_p(start + inside), mmap.PAGESIZE, 0)
        copies.append((low, size, start + inside - size, room, before))

    def place(array):
        low = array.ctypes.data
        return next((copy + low - first for first, size, copy, *_ in copies if first <= low < first + size), None)

    yield place
    for low, size, copy, room, before in copies:
        ctypes.memmove(low, copy, size)
        assert room[: len(before)] == before, "a kernel writes before the start of an array"


@contextlib.contextmanager
def gpu_modules(folder: Path, *names: str):
    """Modules of kernels as on a GPU, imported afresh; their kernels run on the CPU.

    Parameters
    ----------
    folder : Path
        For what is compiled.
    *names : str
        Below ``mgclust.kernels``: ``pairs.boxes.gpu_column_boxes``.
    """
    cupy = types.ModuleType("cupy")
    cupy.__dict__.update({name: getattr(np, name) for name in dir(np) if not name.startswith("__")})
    cupy.asnumpy = np.asarray

    @functools.cache
    def compiled(file, dtype, norm="l2", **defines):
        return File(folder, file, dtype, norm, defines)

    toolkit = types.ModuleType("mgclust.kernels.toolkit.gpu_compiler")
    toolkit.compiled, toolkit.Module, toolkit.multiprocessors = compiled, File, lambda: 132
    toolkit.compiled_for_hopper = lambda file, **defines: compiled(file, "float32", **defines)
    toolkit.is_hopper = lambda: False
    toolkit.or_null = lambda array: np.uint64(0) if array is None else array
    stand_ins = {"cupy": cupy, "cupyx": types.ModuleType("cupyx"), toolkit.__name__: toolkit}
    before = dict(sys.modules)
    sys.modules.update(stand_ins)
    try:
        yield [importlib.import_module(f"mgclust.kernels.{name}") for name in names]
    finally:
        for name in sys.modules.keys() - before.keys():
            if name.startswith("mgclust.kernels"):
                module = sys.modules.pop(name)
                parent, _, child = name.rpartition(".")
                if getattr(sys.modules.get(parent), child, None) is module:
                    delattr(sys.modules[parent], child)
        for name in stand_ins:
            if name in before:
                sys.modules[name] = before[name]
            else:
                sys.modules.pop(name, None)
