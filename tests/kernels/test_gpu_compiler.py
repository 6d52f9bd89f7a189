"""What can be said of the kernels of CUDA devices without one: their names, and when each is compiled."""

import importlib
import itertools
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import mgclust
import mgclust.kernels
from mgclust.kernels import Kernels
from mgclust.kernels.toolkit import nvrtc_process
from mgclust.kernels.toolkit.cuda_text import KERNEL, only_kernel

FOLDER = Path(mgclust.kernels.__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.rglob("*.cu"))
LIBRARIES = ("cupy", "cupy.cuda", "cupyx", "cuda", "cuda.pathfinder")
FITS = {
    "density peaks": lambda X: mgclust.DensityPeaks(client=None, device="cpu").fit(X),
    "density peaks, k nearest": lambda X: mgclust.DensityPeaks(density="knn", client=None, device="cpu").fit(X),
    "fuzzy c-means": lambda X: mgclust.FuzzyCMeans(8, client=None, device="cpu").fit(X),
    "fuzzy c-means, 300": lambda X: mgclust.FuzzyCMeans(300, m=1.5, client=None, device="cpu").fit(X),
    "silhouettes": lambda X: mgclust.silhouette_samples(X, np.arange(len(X)) % 4, client=None, device="cpu"),
    "nearest neighbours": lambda X: mgclust.nearest_neighbors(X, 5, client=None, device="cpu"),
    "affinity propagation": lambda X: mgclust.AffinityPropagation(client=None, device="cpu").fit(X),
    "adaptive": lambda X: mgclust.AdaptiveAffinityPropagation(client=None, device="cpu").fit(X),
}


class Requested(RuntimeError):
    """Ends a fit before rows load."""


def first_calls(fit, monkeypatch, rows=5000):
    """The functions that a method has compiled ahead."""
    found = {}

    def ask(kernels, functions, *_):
        found.update(functions)
        raise Requested

    with monkeypatch.context() as patched:
        patched.setattr(Kernels, "compile_ahead", ask)
        with pytest.raises(Requested):
            fit(np.random.default_rng(0).normal(size=(rows, 3)).astype("float32"))
    return found


@pytest.fixture
def gpu(monkeypatch, tmp_path):
    """The compiler of the GPU, with stand-ins for CuPy and the compiler's library."""
    for name in [name for name in sys.modules if name.startswith("mgclust.kernels.") and ".gpu" in name]:
        monkeypatch.delitem(sys.modules, name)
    for name in LIBRARIES:
        monkeypatch.setitem(sys.modules, name, MagicMock())
    before = set(sys.modules)
    compiler, launch = (
        importlib.import_module(f"mgclust.kernels.{name}") for name in ("toolkit.gpu_compiler", "pairs.gpu_launch")
    )
    monkeypatch.setattr(launch, "multiprocessors", lambda: 132)
    compiler.cp.cuda.Device().compute_capability = "90"
    compiler.nvrtc.getSupportedArchs.return_value = [80, 90]
    compiler.nvrtc.getVersion.return_value = (13, 0)
    compiler.nvrtc.getCUBIN.return_value = b"made here"
    monkeypatch.setattr(compiler, "load_nvidia_dynamic_lib", lambda _: SimpleNamespace(abs_path="/lib/libnvrtc.so"))
    monkeypatch.setenv("CUPY_CACHE_DIR", str(tmp_path / "cache"))
    yield compiler
    for name in set(sys.modules) - before:
        if name.startswith("mgclust.kernels.") and ".gpu" in name:
            del sys.modules[name]


def kernels_in(code):
    return {match["name"]: match.group() for match in KERNEL.finditer(code)}


@pytest.mark.parametrize("file", FILES)
def test_every_kernel_of_a_file_is_found_whole(file):
    code = (FOLDER / file).read_text()
    kernels = kernels_in(code)
    assert kernels
    assert len(kernels) == code.count("__global__")
    for text in kernels.values():
        assert text.count("{") == text.count("}")


@pytest.mark.parametrize("file", FILES)
def test_a_kernel_is_compiled_without_the_others(file):
    code = (FOLDER / file).read_text()
    every = kernels_in(code)
    rest = KERNEL.sub("", code)
    for name, text in every.items():
        alone = only_kernel(code, name)
        assert alone.count("__global__") == 1
        assert text in alone
        assert len(alone) == len(rest) + len(text)


def test_every_kernel_that_python_names_exists():
    exist = {name for file in FILES for name in kernels_in((FOLDER / file).read_text())}
    asked = set()
    for path in FOLDER.glob("**/gpu*.py"):
        text = path.read_text()
        asked |= set(re.findall(r'\b(?:get_function|launch|by_rows|whole|_search|_over_rows)\(\s*"(\w+)"', text))
        asked |= set(re.findall(r'by_rows\(rows, "(\w+)"', text))
    assert len(asked) > 50
    assert asked <= exist


@pytest.mark.parametrize("name", FITS)
def test_functions_whose_kernels_are_compiled_ahead_exist(monkeypatch, name):
    calls = first_calls(FITS[name], monkeypatch)
    assert calls
    for call in calls:
        concept, function = call.split(".")
        assert function in importlib.import_module(f"mgclust.kernels.{concept}.cpu").__all__


@pytest.mark.parametrize("hopper", [True, False])
@pytest.mark.parametrize("name", FITS)
def test_kernels_that_are_compiled_ahead_exist(gpu, monkeypatch, name, hopper):
    calls, found = first_calls(FITS[name], monkeypatch), []
    monkeypatch.setattr(gpu, "compile_ahead", found.extend)
    kernels = Kernels("cuda")
    for call in calls:
        importlib.import_module(f"mgclust.kernels.{call.split('.')[0]}.gpu")
    for module in list(sys.modules.values()):
        if getattr(module, "__name__", "").startswith("mgclust.kernels.") and hasattr(module, "is_hopper"):
            monkeypatch.setattr(module, "is_hopper", lambda: hopper)
    for d, dtype in itertools.product([1, 2, 3, 8, 16, 17, 128, 1024], ["float32", "float64"]):
        del found[:]
        kernels.compile_ahead(calls, d, np.dtype(dtype))
        assert found or d <= 16 or not hopper or dtype == "float64", (d, dtype)
        for module, kernel_name in found:
            code = module._code
            kernel = kernels_in(code).get(kernel_name)
            assert kernel, (kernel_name, d, dtype)
            # Some kernels are there only with DIM, some only without.
            before = code[: code.index(kernel)]
            at = {guard: before.rfind(f"\n{guard}") for guard in ("#ifdef DIM", "#else  //", "#endif")}
            if (guard := max(at, key=lambda each: at[each])) != "#endif" and at[guard] >= 0:
                assert (f"#define DIM {d}\n" in code) == (guard == "#ifdef DIM"), (kernel_name, d, dtype)


def test_nothing_is_compiled_ahead_on_a_cpu(gpu, monkeypatch):
    monkeypatch.setattr(gpu, "compile_ahead", lambda _: pytest.fail("compiles"))
    Kernels("cpu").compile_ahead({"pairs.count_within": {}}, 3, np.dtype("float32"))


def test_constants_precede_what_they_are_for(gpu):
    module = gpu.compiled("pairs/few_features.cu", "float64", "l1", DIM=3, ROWS=2)
    first = "#define REAL double\n#define NORM NORM_L1\n#define DIM 3\n#define ROWS 2\n"
    assert module._code.startswith(first)
    assert "#include" not in module._code


def test_one_module_for_the_same_constants(gpu):
    compiled = gpu.compiled
    assert compiled("pairs/many_features.cu", "float32") is compiled("pairs/many_features.cu", "float32", "l2")


CODE = "".join(f'extern "C" __global__ void {name}(int n) {{\n    n;\n}}\n' for name in ("first", "second", "broken"))
PYTHON = """\
#!{python}
import os, sys, time
from pathlib import Path
assert sys.argv[1:3] == ["-I", "-S"] and sys.argv[4] == "/lib/libnvrtc.so"
assert sys.argv[6:] == ["--std=c++17", "--device-as-default-execution-space", "-ftz=true", "-arch=sm_90"]
Path({folder!r}, str(os.getpid())).touch()
if "broken" in (code := sys.stdin.read()):
    sys.exit(1)
while Path({folder!r}, "wait").exists():
    time.sleep(0.01)
Path(sys.argv[5]).write_bytes(b"made apart")
"""


@pytest.fixture
def started(gpu, monkeypatch, tmp_path):
    """A folder with a file for each process that was started: a stand-in for those that compile."""
    python, folder = tmp_path / "python", tmp_path / "started"
    folder.mkdir()
    python.write_text(PYTHON.format(python=sys.executable, folder=str(folder)))
    python.chmod(0o700)
    monkeypatch.setattr(gpu.sys, "executable", str(python))
    monkeypatch.setattr(gpu.os, "sched_getaffinity", lambda _: range(3))
    yield folder
    (folder / "wait").unlink(missing_ok=True)
    for process in gpu._begun.values():
        process.wait(30)


def made_here(gpu):
    return gpu.nvrtc.compileProgram.call_count


def test_a_module_compiles_what_is_asked_for_once(gpu):
    module = gpu.Module(CODE)
    assert len({id(module.get_function("second")) for _ in range(3)}) == 1
    (call,) = gpu.nvrtc.createProgram.call_args_list
    assert "second" in call.args[0]
    assert "first" not in call.args[0]
    assert gpu.nvrtc.compileProgram.call_args.args[1] == (*gpu.STANDARD, "-ftz=true", "-arch=sm_90")
    gpu.Module(CODE).get_function("second")  # which is on disk now
    assert made_here(gpu) == 1


def test_what_was_compiled_ahead_is_not_compiled_again(gpu, started):
    module = gpu.Module(CODE)
    for _ in range(2):
        gpu.compile_ahead([(module, "first"), (module, "second"), (module, "first")])
    module.get_function("first")
    assert Path(gpu.cp.RawModule.call_args.kwargs["path"]).read_bytes() == b"made apart"
    module.get_function("second")
    module.program = lambda name: pytest.fail("each later fit reads the code again")
    gpu.compile_ahead([(module, "first"), (module, "second")])
    assert not made_here(gpu)
    assert len(list(started.iterdir())) == 2


def test_what_no_process_compiles_is_compiled_here(gpu, started, monkeypatch, tmp_path):
    module = gpu.Module(CODE)
    gpu.compile_ahead([(module, "broken")])  # NVRTC rejects it, and tells the fit why
    module.get_function("broken")
    assert made_here(gpu) == 1
    monkeypatch.setattr(gpu.sys, "executable", str(tmp_path / "missing"))
    gpu.compile_ahead([(module, "first")])
    module.get_function("first")
    assert made_here(gpu) == 2


def test_a_process_that_does_not_end_is_not_waited_for(gpu, started, monkeypatch):
    monkeypatch.setattr(gpu, "WAIT_LIMIT", 0.1)
    (started / "wait").touch()
    module = gpu.Module(CODE)
    gpu.compile_ahead([(module, "first")])
    module.get_function("first")
    assert made_here(gpu) == 1


def test_one_core_is_left_for_the_fit(gpu, started, monkeypatch):
    (started / "wait").touch()
    module = gpu.Module(CODE)
    gpu.compile_ahead((module, name) for name in ("first", "second", "broken"))
    assert len(gpu._begun) == 2
    (started / "wait").unlink()
    for name in ("first", "second"):
        module.get_function(name)
    monkeypatch.setattr(gpu.os, "sched_getaffinity", lambda _: range(1))
    gpu.compile_ahead([(module, "broken")])
    assert not gpu._begun


def test_a_device_that_nvrtc_does_not_know_is_left_to_cupy(gpu, started):
    gpu.cp.cuda.Device().compute_capability = "130"
    module = gpu.Module(CODE)
    gpu.compile_ahead([(module, "first")])
    module.get_function("first")
    assert "code" in gpu.cp.RawModule.call_args.kwargs
    assert not made_here(gpu)
    assert not list(started.iterdir())


def test_waits_for_kernels_are_told(gpu, started):
    told = []
    module = gpu.Module(CODE)
    gpu.compile_ahead([(module, "first")])
    (process,) = gpu._begun.values()
    process.wait(30)
    with gpu.on_compiling(lambda: told.append(made_here(gpu))):
        module.get_function("first")
        assert not told
        module.get_function("second")
        module.get_function("second")
    module.get_function("broken")
    assert told == [0]


@pytest.mark.parametrize("fails", ["", "create", "compile", "size", "cubin"])
def test_a_process_that_compiles(monkeypatch, tmp_path, fails):
    def size(program, found):
        found._obj.value = 5
        return fails == "size"

    def take(program, buffer):
        buffer.raw = b"cubin"
        return fails == "cubin"

    def compile_(program, count, flags):
        assert list(flags) == [b"-one", b"-two"] and count == 2
        return fails == "compile"

    library = SimpleNamespace(nvrtcGetCUBINSize=size, nvrtcGetCUBIN=take, nvrtcCompileProgram=compile_)
    library.nvrtcCreateProgram = lambda program, code, *_: fails == "create" or code != b"code"
    monkeypatch.setattr(nvrtc_process.ctypes, "CDLL", {"/libnvrtc.so": library}.get)
    kept = tmp_path / "kept.cubin"
    monkeypatch.setattr(sys, "argv", ["nvrtc_process.py", "/libnvrtc.so", str(kept), "-one", "-two"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=SimpleNamespace(read=lambda: b"code")))
    if fails:
        with pytest.raises(SystemExit):
            nvrtc_process.main()
    else:
        nvrtc_process.main()
        assert kept.read_bytes() == b"cubin"
    assert list(tmp_path.iterdir()) == ([] if fails else [kept])


def test_constants_that_python_and_files_share_agree(gpu):
    products = importlib.import_module("mgclust.kernels.pairs.products.gpu_products")
    assert f"#define STAYING {products.STAYING} " in (FOLDER / "pairs/products/split_products.cuh").read_text()
