"""What can be said of the kernels of CUDA devices without one: their names, and when each is compiled."""

import importlib
import io
import itertools
import os
import re
import signal
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import numpy as np
import pytest

import mgclust.kernels
from mgclust.algorithms.affinity_propagation.adaptive_ranks import adaptive_affinity_propagation
from mgclust.algorithms.affinity_propagation.ranks import affinity_propagation
from mgclust.algorithms.canopy.ranks import canopy
from mgclust.algorithms.communities.estimator import detect_communities
from mgclust.algorithms.density_peaks.fraction_choice import MOST_ROWS
from mgclust.algorithms.density_peaks.pair_quantile import FIRST_ROWS
from mgclust.algorithms.density_peaks.ranks import density_peaks
from mgclust.algorithms.density_peaks.separation import MOST_NEIGHBORS
from mgclust.algorithms.fuzzy_c_means.ranks import fuzzy_c_means
from mgclust.algorithms.nearest_neighbors.ranks import search_neighbors
from mgclust.algorithms.silhouette.estimator import silhouette
from mgclust.kernels.toolkit import nvrtc_process
from mgclust.kernels.toolkit.cuda_text import KERNEL, only_kernel

FOLDER = Path(mgclust.kernels.__file__).parent
FILES = sorted(path.relative_to(FOLDER).as_posix() for path in FOLDER.glob("*/*.cu"))
LIBRARIES = ("cupy", "cupy.cuda", "cupyx", "cupy_backends", "cupy_backends.cuda", "cupy_backends.cuda.libs")
METHODS = (
    density_peaks, fuzzy_c_means, canopy, silhouette, search_neighbors, affinity_propagation,
    adaptive_affinity_propagation, detect_communities,
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
    processes, cupy_kernels = (
        importlib.import_module(f"mgclust.kernels.toolkit.{name}") for name in ("gpu_processes", "gpu_cupy_kernels")
    )
    yield SimpleNamespace(compiler=compiler, ahead=ahead, processes=processes, cupy_kernels=cupy_kernels)
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
        arguments |= {
            "metric": "precomputed" if d == 1024 else "euclidean",
            "strategy": "greedy",
            "choice": True,
            "density": "knn" if d == 8 else "gaussian",
            "n_neighbors": 10,
        }
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


def test_the_samples_of_density_peaks_are_as_large_as_lists_say(gpu):
    assert (gpu.ahead.SAMPLE, gpu.ahead.CHOICE_ROWS, gpu.ahead.NEIGHBORS) == (FIRST_ROWS, MOST_ROWS, MOST_NEIGHBORS)


def test_constants_precede_what_they_are_for(gpu):
    module = gpu.compiler.compiled("pairs/few_features.cu", "float64", "l1", DIM=3, ROWS=2)
    first = "#define REAL double\n#define NORM NORM_L1\n#define DIM 3\n#define ROWS 2\n"
    assert module._code.startswith(first)
    assert "#include" not in module._code


def test_one_module_for_the_same_constants(gpu):
    compiled = gpu.compiler.compiled
    assert compiled("pairs/many_features.cu", "float32") is compiled("pairs/many_features.cu", "float32", "l2")


class Builds:
    """Stands for a compiler."""

    def __init__(self, gate=None):
        self.codes, self.by, self.gate = [], [], gate

    def __call__(self, code, compile_):
        self.by.append(compile_)
        if self.gate is not None:
            self.gate.wait(30)
        self.codes.append(code)
        if "broken" in code:
            raise RuntimeError("broken")
        return SimpleNamespace(get_function=lambda name: f"function {name}")


CODE = "".join(f'extern "C" __global__ void {name}(int n) {{\n    n;\n}}\n' for name in ("first", "second", "broken"))


def start(gpu, *kernels, processes=1):
    """Start what the threads of `share_out` do, and return them."""
    before = set(threading.enumerate())
    gpu.processes.share_out([task for module, name in kernels for task in module.plan(name)], processes)
    return set(threading.enumerate()) - before


def wait_for(threads):
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()


def test_a_module_compiles_what_is_asked_for_once(gpu):
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    assert [module.get_function("second") for _ in range(3)] == ["function second"] * 3
    assert builds.by == [gpu.compiler._compiled_here]
    assert "first" not in builds.codes[0]


def test_what_was_compiled_ahead_is_not_compiled_again(gpu):
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    wait_for(start(gpu, *((module, name) for name in ("first", "second", "broken", "first")), processes=2))
    assert len(builds.codes) == 3
    assert gpu.compiler._compiled_here not in builds.by
    assert module.get_function("first") == "function first"
    assert module.get_function("second") == "function second"
    wait_for(start(gpu, (module, "first")))
    assert len(builds.codes) == 3
    with pytest.raises(RuntimeError, match="broken"):  # raised where it is asked for
        module.get_function("broken")


def test_what_has_not_begun_is_not_waited_for(gpu):
    gate = threading.Event()
    builds = Builds()
    module, behind = gpu.compiler.Module(CODE, Builds(gate)), gpu.compiler.Module(CODE, builds)
    threads = start(gpu, (module, "first"), (behind, "second"))
    assert behind.get_function("second") == "function second"
    gate.set()
    assert module.get_function("first") == "function first"
    wait_for(threads)
    assert len(builds.codes) == 1


PYTHON = """\
#!{python}
import os, sys
from pathlib import Path
assert sys.argv[1:3] == ["-I", "-S"] and sys.argv[4] == "/some/where/libnvrtc.so" and "SECRET" not in os.environ
assert os.environ["LD_LIBRARY_PATH"].split(":")[0] == "/some/where"
Path({folder!r}, str(os.getpid())).touch()
read = lambda: sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "little"))
while options := read():  # which is empty at a size of 0, too
    code = read()
    if code == b"end":
        sys.exit(1)
    code = b"" if code == b"refused" else options + b"|" + code.upper()
    sys.stdout.buffer.write(len(code).to_bytes(8, "little") + code)
    sys.stdout.buffer.flush()
Path({folder!r}, "ended").touch()
"""


@pytest.fixture
def python(gpu, monkeypatch, tmp_path):
    """A stand-in for the processes that compile; the folder has a file for each."""
    python, folder = tmp_path / "python", tmp_path / "started"
    folder.mkdir()
    python.write_text(PYTHON.format(python=sys.executable, folder=str(folder)))
    python.chmod(0o700)
    monkeypatch.setenv("SECRET", "key")
    monkeypatch.setattr(gpu.processes, "_library", lambda: "/some/where/libnvrtc.so")
    monkeypatch.setattr(gpu.processes.sys, "executable", str(python))
    monkeypatch.setattr(gpu.processes.os, "sched_getaffinity", lambda _: range(8))
    return folder


def test_programs_are_compiled_by_one_process_after_the_other(gpu, python):
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ("-one", "-two")) == b"-one\0-two|CODE"
        # What goes wrong is for this process to find out, and to report.
        assert process.machine_code("refused", ("-one",)) == b""
        assert process.machine_code("more " * 100_000, ["-one"]) == b"-one|" + b"MORE " * 100_000
        assert process.machine_code("end", ["-one"]) == b""
        assert process.machine_code("code", ["-one"]) == b""  # it is not started again
    assert len(list(python.iterdir())) == 1


def test_a_process_is_left_to_end_by_itself(gpu, python):
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ["-one"]) == b"-one|CODE"
        assert not (python / "ended").exists()
    assert (python / "ended").exists()  # NVRTC removes its files then


def test_what_has_not_begun_when_python_ends_is_left_out(gpu, python, monkeypatch):
    monkeypatch.setattr(gpu.processes.threading, "main_thread", lambda: SimpleNamespace(is_alive=lambda: False))
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    wait_for(start(gpu, (module, "first"), (module, "second")))
    assert not builds.codes
    assert module.get_function("first") == "function first"  # a fit in another thread goes on
    assert programs_of(gpu, "a", "b").machine_code("a", ("-one",)) == b""
    assert not list(python.iterdir())


def test_a_process_that_dies_between_programs_is_no_error(gpu, python):
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ["-one"]) == b"-one|CODE"
        process._process.kill()
        process._process.wait()
        assert process.machine_code("more " * 100_000, ["-one"]) == b""


def test_a_process_that_does_not_answer_is_ended(gpu, python, monkeypatch):
    monkeypatch.setattr(gpu.processes, "PATIENCE", 0.5)
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ["-one"]) == b"-one|CODE"
        os.kill(process._process.pid, signal.SIGSTOP)
        assert process.machine_code("more " * 100_000, ["-one"]) == b""


def test_where_no_thread_starts_nobody_waits(gpu, python, monkeypatch):
    def fail(thread):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", fail)
    builds = Builds()
    module = gpu.compiler.Module(CODE, builds)
    start(gpu, (module, "first"))
    assert module.get_function("first") == "function first"
    programs = programs_of(gpu, "a", "b")
    assert [programs.machine_code("a", ("-one",)) for _ in range(2)] == [b"", b""]


def test_an_interrupt_leaves_nothing_to_wait_for(gpu, python, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    programs = programs_of(gpu, "a", "b")
    with monkeypatch.context() as patched:
        patched.setattr(gpu.cupy_kernels, "share_out", interrupt)
        with pytest.raises(KeyboardInterrupt):
            programs.machine_code("a", ("-one",))
    assert programs.machine_code("a", ("-one",)) == b""


def test_no_process_is_started_for_nothing_or_on_few_cores(gpu, python, monkeypatch):
    with gpu.processes.Process():
        pass
    monkeypatch.setattr(gpu.processes.os, "sched_getaffinity", lambda _: range(2))
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ["-one"]) == b""
    assert not list(python.iterdir())


def test_a_process_that_cannot_be_started(gpu, python, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu.processes.sys, "executable", str(tmp_path / "missing"))
    with gpu.processes.Process() as process:
        assert process.machine_code("code", ["-one"]) == b""


def test_a_process_that_compiles(monkeypatch, capsysbinary):
    destroyed = []

    def created(program, code, *_):
        program._obj.value = 5
        return code == b"broken"

    def size(program, found):
        found._obj.value = program.value

    def take(program, buffer):
        buffer.raw = b"cubin"

    library = SimpleNamespace(
        nvrtcCreateProgram=created, nvrtcGetCUBINSize=size, nvrtcGetCUBIN=take, nvrtcDestroyProgram=destroyed.append
    )
    library.nvrtcCompileProgram = lambda program, count, flags: list(flags) != [b"-one", b"-two"] or count != 2
    monkeypatch.setattr(nvrtc_process.ctypes, "CDLL", {"/libnvrtc.so": library}.get)
    told = ((b"-one\0-two", b"code"), (b"-one\0-two", b"broken"), (b"-one", b"code"), (b"-one\0-two", b"code"))
    sizes = b"".join(len(each).to_bytes(8, "little") + each for pair in told for each in pair)
    monkeypatch.setattr(sys, "argv", ["nvrtc_process.py", "/libnvrtc.so"])
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(sizes)))
    nvrtc_process.main()
    code, nothing = (5).to_bytes(8, "little") + b"cubin", bytes(8)
    assert capsysbinary.readouterr().out == code + nothing + nothing + code
    assert len(destroyed) == 4


def programs_of(gpu, *expected):
    programs = gpu.cupy_kernels.Programs()
    programs.expect(expected)
    return programs


def test_cupys_programs_are_compiled_ahead_from_the_first_that_is_asked_for(gpu, python):
    programs = programs_of(gpu, "a", "b", "c", "d", "refused")
    assert programs.machine_code("unknown", ("-one",)) == b""
    assert not list(python.iterdir())
    assert programs.machine_code("b", ("-one",)) == b"-one|B"
    assert programs.machine_code("d", ("-one",)) == b"-one|D"
    assert programs.machine_code("b", ("-one",)) == b"-one|B"
    # Left to CuPy: what preceded, what NVRTC refuses, and what has other options.
    assert programs.machine_code("a", ("-one",)) == b""
    assert programs.machine_code("refused", ("-one",)) == b""
    assert programs.machine_code("c", ("-other",)) == b""
    programs.expect(["a", "c"])
    assert programs.machine_code("a", ("-one",)) == b"-one|A"
    assert programs.machine_code("c", ("-one",)) == b"-one|C"


def test_cupys_programs_where_no_process_starts(gpu, python, monkeypatch, tmp_path):
    monkeypatch.setattr(gpu.processes.sys, "executable", str(tmp_path / "missing"))
    assert programs_of(gpu, "a", "b").machine_code("a", ("-one",)) == b""
    monkeypatch.setattr(gpu.processes.os, "sched_getaffinity", lambda _: range(2))
    assert programs_of(gpu, "a", "b").machine_code("a", ("-one",)) == b""


def test_cupys_programs_where_threads_fail(gpu, python, monkeypatch):
    def fail(*_):
        raise RuntimeError("fails")

    monkeypatch.setattr(gpu.processes.Process, "machine_code", fail)
    programs = programs_of(gpu, "a", "b")
    assert programs.machine_code("a", ("-one",)) == b""
    assert programs.machine_code("b", ("-one",)) == b""


def test_cupy_asks_for_machine_code_before_it_compiles(gpu, python, monkeypatch):
    class Program:
        def __init__(self, src, method="cubin", name_expressions=None):
            self.src, self.method, self.name_expressions = src, method, name_expressions

        def compile(self, options=(), log_stream=None):
            return f"{self.src} by CuPy", None

    monkeypatch.setattr(gpu.cupy_kernels.compiler, "_NVRTCProgram", Program)
    key = gpu.cupy_kernels.key_of("canopy", "float64", 3)
    record = {"programs": ["a", "b"], "runs": {key: [1, 0]}}
    monkeypatch.setattr(gpu.cupy_kernels, "_record", lambda: record)
    for _ in range(2):
        gpu.cupy_kernels.begin("canopy", "float64", 3)
    assert Program("c").compile(("-one",)) == ("c by CuPy", None)
    assert Program("b", "ptx").compile(("-one",)) == ("b by CuPy", None)
    assert Program("b", name_expressions=["b"]).compile(("-one",)) == ("b by CuPy", None)
    assert Program("b").compile(("-one",)) == (b"-one|B", None)
    assert Program("a").compile(("-one",), None) == (b"-one|A", None)
    gpu.cupy_kernels.begin("canopy", "float64", 300)  # of which there is no record
    assert Program("b").compile(("-other",)) == ("b by CuPy", None)


def test_a_cupy_without_such_programs_is_left_alone(gpu, python, monkeypatch):
    monkeypatch.setattr(gpu.cupy_kernels, "compiler", SimpleNamespace())
    gpu.cupy_kernels.begin("canopy", "float64", 3)
    assert not gpu.cupy_kernels._take_part()


def test_constants_that_python_and_files_share_agree(gpu):
    text = (FOLDER / "pairs/split_products.cuh").read_text()
    assert f"#define STAYING {gpu.ahead.pair_products.STAYING} " in text
    assert gpu.cupy_kernels.FEW_FEATURES == gpu.ahead.LOW_DIMENSIONS


def test_the_record_has_runs_of_every_method(gpu):
    record = gpu.cupy_kernels._record()
    assert {key.split(",")[0] for key in record["runs"]} == {method.__name__ for method in METHODS}
    assert {number for run in record["runs"].values() for number in run} == set(range(len(record["programs"])))
    for program in record["programs"]:
        assert program.startswith("#include <cupy/")
        assert program.count("__global__") == 1
