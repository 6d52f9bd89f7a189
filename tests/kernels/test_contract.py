"""Each concept's Protocol, and the functions of both devices that stand behind it; no GPU is needed to compare them.

mypy compares them, too, but does not mind other names of positional parameters.
"""

from __future__ import annotations

import ast
import inspect
import re
from pathlib import Path

import pytest

import mgclust.kernels
from mgclust.kernels import Kernels, load
from mgclust.kernels.affinity_propagation.sparse_forms.columns import ColumnPassing
from mgclust.kernels.affinity_propagation.sparse_forms.listed import ListedPassing
from mgclust.kernels.pairs.metrics import Metric

FOLDER = Path(mgclust.kernels.__file__).parent
CONCEPTS = sorted(Kernels.__annotations__)


def contract(concept):
    """The Protocol's functions: their parameters' names, in order, keyword-only ones behind a star."""
    module = __import__(f"mgclust.kernels.{concept}", fromlist=["*"])
    (name,) = module.__all__
    return functions_of(getattr(module, name))


def functions_of(protocol):
    """The functions of a Protocol, by name."""
    methods = inspect.getmembers(protocol, inspect.isfunction)
    return {name: method for name, method in methods if not name.startswith("_")}


def parameters(node):
    """The same of a function in a source file."""
    names = [each.arg for each in node.args.args]
    return [*names, "*", *(each.arg for each in node.args.kwonlyargs)]


def defaults(node):
    """Values of its parameters that may be left out, by name."""
    given = node.args
    pairs = [*zip(reversed(given.args), reversed(given.defaults), strict=False)]
    pairs += [pair for pair in zip(given.kwonlyargs, given.kw_defaults, strict=True) if pair[1] is not None]
    return {each.arg: ast.literal_eval(value) for each, value in pairs}


def written(concept, device):
    """Every function at the top of the device's files of a concept."""
    found = {}
    for path in sorted((FOLDER / concept).rglob(f"{device}*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef):
                found[path.stem, node.name] = node
    return found


def offered(concept, device, module=None):
    """The functions that the device's module offers, by name: defined there, or imported from a file beside it."""
    module = module or device
    tree = ast.parse((FOLDER / concept / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))
    functions = written(concept, device)
    out = {name: node for (stem, name), node in functions.items() if stem == module.rpartition(".")[2]}
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith(f"mgclust.kernels.{concept}."):
            stem = node.module.rpartition(".")[2]
            out |= {each.name: functions[stem, each.name] for each in node.names if (stem, each.name) in functions}
    lists = [n for n in tree.body if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"]
    public = ast.literal_eval(lists[0].value)
    return {name: node for name, node in out.items() if name in public}, set(public)


@pytest.mark.parametrize("concept", CONCEPTS)
@pytest.mark.parametrize("device", ["cpu", "gpu"])
def test_devices_have_what_the_contract_says(concept, device):
    expected = contract(concept)
    functions, public = offered(concept, device)
    functions.pop("kernels_of", None)  # of GPUs alone: `Kernels.compile_ahead`
    assert set(functions) == set(expected)
    assert public - set(expected) <= {"kernels_of", "MIN_BOXED", "MAX_OFFERED", "NEIGHBORS", "PRODUCT_REACH"}
    compare(expected, functions)


@pytest.mark.parametrize(
    ("protocol", "stem"), [(ListedPassing, "sparse_forms.cpu_listed"), (ColumnPassing, "sparse_forms.cpu_columns")]
)
def test_forms_of_messages_have_what_their_contracts_say(protocol, stem):
    functions, public = offered("affinity_propagation", "cpu", stem)
    assert set(functions) == public
    compare(functions_of(protocol), functions)


def compare(expected, functions):
    """Parameters and their defaults are the same, and documented in the contract alone."""
    assert set(expected) == set(functions)
    for name, method in expected.items():
        wanted = inspect.signature(method).parameters.values()
        positional = [each.name for each in wanted if each.kind is each.POSITIONAL_OR_KEYWORD][1:]
        keywords = [each.name for each in wanted if each.kind is each.KEYWORD_ONLY]
        assert parameters(functions[name]) == [*positional, "*", *keywords], name
        wanted = {each.name: each.default for each in wanted if each.default is not each.empty}
        assert defaults(functions[name]) == wanted, name
        assert method.__doc__, f"{name} is documented in the contract"
        assert ast.get_docstring(functions[name]) is None, f"{name} is documented in the contract alone"


def test_cuda_files_are_where_they_are_looked_for():
    for source in FOLDER.rglob("gpu*.py"):
        for name in re.findall(r'compiled\(\s*"([^"]+)"', source.read_text(encoding="utf-8")):
            assert (FOLDER / name).is_file(), f"{source.name}: {name}"


def test_a_norm_that_no_kernel_has():
    with pytest.raises(ValueError, match="norm='linf' should be 'l2' or 'l1'"):
        Metric("chebyshev", "linf")


def test_a_name_that_is_no_concept():
    with pytest.raises(AttributeError, match="no concept 'nothing'"):
        load("cpu").nothing  # noqa: B018


@pytest.mark.parametrize("path", sorted(FOLDER.rglob("*.cu")), ids=lambda path: str(path.relative_to(FOLDER)))
def test_every_cuda_kernel_is_asked_for_by_its_name(path):
    """Where a name is put together, by its beginning: rows of a graph have a kernel for each length.

    To be compiled ahead (`kernels_of`) is not to be asked for.
    """
    asked = {
        node.value
        for source in FOLDER.rglob("gpu*.py")
        for statement in ast.parse(source.read_text(encoding="utf-8")).body
        if getattr(statement, "name", "") != "kernels_of" and not ast.unparse(statement).startswith("SLOW_KERNELS")
        for node in ast.walk(statement)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    code = re.sub(r"__launch_bounds__\([^)]*\)+", "", path.read_text(encoding="utf-8"))
    kernels = re.findall(r"__global__\s+void\s+(\w+)\(", code)
    assert kernels
    unasked = [name for name in kernels if not {name, re.sub("_(short|medium|long)$", "", name)} & asked]
    assert not unasked
