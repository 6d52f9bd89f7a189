"""What can be said of the kernels of CUDA devices without one: their names, and when each is compiled."""

import importlib
import io
import itertools
import re
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import mgclust.kernels
from mgclust.algorithms.affinity_propagation.adaptive_ranks import adaptive_affinity_propagation
from mgclust.algorithms.affinity_propagation.ranks import affinity_propagation
from mgclust.algorithms.canopy.ranks import canopy
from mgclust.algorithms.communities.estimator import fast_newman
from mgclust.algorithms.density_peaks.pair_quantile import FIRST_ROWS
from mgclust.algorithms.density_peaks.ranks import density_peaks
from mgclust.algorithms.fuzzy_c_means.ranks import fuzzy_c_means
from mgclust.algorithms.nearest_neighbors.ranks import search_neighbors
from mgclust.algorithms.silhouette.estimator import silhouette
from mgclust.kernels.toolkit import nvrtc_process
from mgclust.kernels.toolkit.cuda_text import KERNEL, only_kernel

FOLDER = Path(mgclust.kernels.__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.cu"))
LIBRARIES = ("cupy", "cupyx", "cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs")
METHODS = (
    density_peaks, fuzzy_c_means, canopy, silhouette, search_neighbors, affinity_propagation,
    adaptive_affinity_propagation, fast_newman,
)  # fmt: skip


@pytest.fixture
def gpu(monkeypatch):
    """The modules of the GPU, with a stand-in for CuPy."""
    for name in [name for name in sys.modules if name.startswith("mgclust.kernels.") and ".gpu" in name]:
        monkeypatch.delitem(sys.modules, name)
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    before = set(sys.modules)
    compiler, ahead, launch = (
        importlib.import_module(f"mgclust.kernels.{name}")
        for name in ("toolkit.gpu_compiler", "gpu_ahead", "pairs.gpu_launch")
    )
    monkeypatch.setattr(launch, "multiprocessors", lambda: 132)
    yield SimpleNamespace(compiler=compiler, ahead=ahead)
    for name in set(sys.modules) - before:
        if name.startswith("mgclust.kernels.") and ".gpu" in name:
            del sys.modules[name]


def kernels_in(gpu, code):
    return {match["name"]: match.group() for match in KERNEL.finditer(code)}


@pytest.mark.parametrize("file", FILES)
def test_every_kernel_of_a_file_is_found_whole(gpu, file):
    code = (FOLDER / file).read_text()
    kernels = kernels_in(gpu, code)
    assert kernels
    assert len(kernels) == code.count("__global__")
    for text in kernels.values():
        assert text.count("{") == text.count("}")


@pytest.mark.parametrize("file", FILES)
def test_a_kernel_is_compiled_without_the_others(gpu, file):
    code = (FOLDER / file).read_text()
    every = kernels_in(gpu, code)
    rest = KERNEL.sub("", code)
    for name, text in every.items():
        alone = only_kernel(code, name)
        assert alone.count("__global__") == 1
        assert text in alone
        assert len(alone) == len(rest) + len(text)


def test_every_kernel_that_python_names_exists(gpu):
    exist = {name for file in FILES for name in kernels_in(gpu, (FOLDER / file).read_text())}
    asked = set()
    for path in FOLDER.glob("**/gpu*.py"):
        text = path.read_text()
        asked |= set(re.findall(r'\b(?:get_function|launch|by_rows|whole|_search|_over_rows)\(\s*"(\w+)"', text))
        asked |= {f"{name}_short" for name in re.findall(r'by_rows\(rows, "(\w+)"', text)}
        asked |= {f"{name}_long" for name in re.findall(r'by_rows\(rows, "(\w+)"', text)}
    assert len(asked) > 50
    assert asked <= exist


@pytest.mark.parametrize("hopper", [True, False])
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.__name__)
def test_kernels_that_are_compiled_ahead_exist(gpu, monkeypatch, method, hopper):
    for module in (gpu.ahead, gpu.ahead.pair_products, gpu.ahead.fuzzy_products):
        monkeypatch.setattr(module, "is_hopper", lambda: hopper)
    for d, dtype in itertools.product([1, 2, 3, 8, 16, 17, 128, 1024], ["float32", "float64"]):
        arguments = {"numbers": [300 if d == 128 else 8], "m": 2.0}
        arguments["covariance_type"] = "full" if (d, dtype) == (16, "float64") else "spherical"
        arguments |= {"metric": "precomputed" if d == 1024 else "euclidean"}
        found = list(gpu.ahead.LISTS[method.__name__](arguments, (100_000, d), 50_000, np.dtype(dtype)))
        assert found, (d, dtype)
        for module, name in found:
            code = module._code
            kernel = kernels_in(gpu, code).get(name)
            assert kernel, (name, d, dtype)
            # Some kernels are there only with DIM, some only without.
            before = code[: code.index(kernel)]
            at = {guard: before.rfind(f"\n{guard}") for guard in ("#ifdef DIM", "#else  //", "#endif")}
            if (guard := max(at, key=lambda each: at[each])) != "#endif" and at[guard] >= 0:
                assert (f"#define DIM {d}\n" in code) == (guard == "#ifdef DIM"), (name, d, dtype)


def test_lists_are_for_functions_that_exist(gpu):
    assert set(gpu.ahead.LISTS) == {method.__name__ for method in METHODS}


def test_the_sample_of_density_peaks_is_as_large_as_lists_say(gpu):
    assert gpu.ahead.SAMPLE == FIRST_ROWS


def test_constants_precede_what_they_are_for(gpu):
    module = gpu.compiler.compiled("pairs/few_features.cu", "float64", "l1", DIM=3, ROWS=2)
    first = "#define REAL double\n#define NORM NORM_L1\n#define DIM 3\n#define ROWS 2\n"
    assert module._code.startswith(first)
    assert "#include" not in module._code


class Builds:
    """Stands for a compiler."""

    def __init__(self, gate=None):
        self.codes, self.apart, self.gate = [], [], gate

    def __call__(self, code, apart):
        self.apart.append(apart)
        if self.gate is not None:
            self.gate.wait(30)
        self.codes.append(code)
        if "broken" in code:
            raise RuntimeError("broken")
        return SimpleNamespace(get_function=lambda name: f"function {name}")


CODE = "".join(f'extern "C" __global__ void {name}(int n) {{\n    n;\n}}\n' for name in ("first", "second", "broken"))


def test_a_module_compiles_what_is_asked_for_once(gpu):
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    assert [module.get_function("second") for _ in range(3)] == ["function second"] * 3
    assert builds.apart == [False]
    assert "first" not in builds.codes[0]


def test_what_was_compiled_ahead_is_not_compiled_again(gpu):
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    with ThreadPoolExecutor(2) as pool:
        for name in ("first", "second", "broken", "first"):
            module.start(name, pool)
    assert builds.apart == [True] * 3
    assert module.get_function("first") == "function first"
    assert module.get_function("second") == "function second"
    with ThreadPoolExecutor(1) as pool:
        module.start("first", pool)
    assert len(builds.codes) == 3
    with pytest.raises(RuntimeError, match="broken"):  # raised where it is asked for
        module.get_function("broken")


def test_what_has_not_begun_is_not_waited_for(gpu):
    gate = threading.Event()
    builds = Builds()
    module, behind = gpu.compiler.Module(CODE, Builds(gate)), gpu.compiler.Module(CODE, builds)
    with ThreadPoolExecutor(1) as pool:
        module.start("first", pool)
        behind.start("second", pool)
        assert behind.get_function("second") == "function second"
        gate.set()
    assert module.get_function("first") == "function first"
    assert len(builds.codes) == 1


def test_a_program_is_compiled_by_a_process(gpu, monkeypatch, tmp_path):
    python = tmp_path / "python"
    told = '"$1$4$5$SECRET" = -I-one-two ] && [ "${3%/*}" = "${LD_LIBRARY_PATH%%:*}"'
    monkeypatch.setenv("SECRET", "key")
    python.write_text(f"#!/bin/sh\n[ {told} ] && exec tr a-z A-Z\n")
    python.chmod(0o700)
    monkeypatch.setattr(gpu.compiler, "_library", lambda: "/some/where/libnvrtc.so")
    monkeypatch.setattr(gpu.compiler.sys, "executable", str(python))
    monkeypatch.setattr(gpu.compiler.os, "sched_getaffinity", lambda _: range(8))
    assert gpu.compiler._compiled_apart("code", ("-one", "-two")) == b"CODE"
    # What goes wrong is for this process to find out, and to report.
    assert gpu.compiler._compiled_apart("code", ("-one", "-three")) == b""
    monkeypatch.setattr(gpu.compiler.sys, "executable", str(tmp_path / "missing"))
    assert gpu.compiler._compiled_apart("code", ("-one", "-two")) == b""


def test_a_process_that_compiles(monkeypatch, capsysbinary):
    def created(program, code, *_):
        program._obj.value = 5
        return code == b"broken"

    def size(program, found):
        found._obj.value = program.value

    def take(program, buffer):
        buffer.raw = b"cubin"

    library = SimpleNamespace(nvrtcCreateProgram=created, nvrtcGetCUBINSize=size, nvrtcGetCUBIN=take)
    library.nvrtcCompileProgram = lambda program, count, flags: list(flags) != [b"-one", b"-two"] or count != 2
    monkeypatch.setattr(nvrtc_process.ctypes, "CDLL", {"/libnvrtc.so": library}.get)
    for code, options in ((b"code", ["-one", "-two"]), (b"broken", ["-one", "-two"]), (b"code", ["-one"])):
        monkeypatch.setattr(sys, "argv", ["nvrtc_process.py", "/libnvrtc.so", *options])
        monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(code)))
        if code == b"code" and len(options) == 2:
            nvrtc_process.main()
            assert capsysbinary.readouterr().out == b"cubin"
        else:
            with pytest.raises(SystemExit, match="refuses"):
                nvrtc_process.main()
