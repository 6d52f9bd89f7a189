"""mgclust uses no private interface of a dependency: what is private changes without notice, and nobody answers for it.

The check reads the syntax alone, so it knows no types. It takes an attribute such as ``x._name`` for mgclust's own if a
class of mgclust near the file defines ``_name``; what it cannot see, reviewers do.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "mgclust"

# Each name that is used all the same, and why. No entry is left when its use has gone.
ALLOWED = {
    "numba.core.event": "Numba's manual documents its events under this name, and under no other.",
    "numba.config.CACHE_DIR": "Numba reads NUMBA_CACHE_DIR when it is imported; a fork sets its own folder later.",
    "_nrt=": "Numba has no public option that leaves out reference counts; without it inner loops take longer.",
    "traceback.extract_stack": "A warning points at the caller's line; Python 3.12 has `skip_file_prefixes` for it.",
    "os._exit": "The documentation of `os` names it for children after a fork.",
    "os.environ": "The documentation of `os` has programs change it.",
    "sys.argv": "A script that is run for a user finds its own arguments there, as the interpreter would set them.",
    "sys.excepthook": "The documentation of `sys` has programs replace it.",
    "warnings.showwarning": "The documentation of `warnings` has programs replace it.",
    "tempfile.tempdir": "The documentation of `tempfile` has programs set it.",
    "ssl.SSLContext.sslsocket_class": "The documentation of `ssl` has programs replace it by a class of their own.",
}

# Packages whose projects call these parts internal, though no name begins with an underscore.
INTERNAL = ("cupy_backends", "numba.core", "numba.cpython", "numba.misc", "numba.np", "numba.parfors", "zarr.core")
FRAMES = {
    "gc.get_objects", "gc.get_referents", "gc.get_referrers", "inspect.currentframe", "inspect.getouterframes",
    "inspect.getframeinfo", "inspect.getinnerframes", "inspect.stack", "inspect.trace", "sys._current_frames",
    "sys._getframe", "traceback.extract_stack", "traceback.walk_stack",
}  # fmt: skip
FRAME_ATTRIBUTES = {"f_back", "f_globals", "f_locals"}
NAMED_TUPLE = {"_asdict", "_field_defaults", "_fields", "_make", "_replace"}  # documented
NEVER = {"_NVRTCProgram"}
BY_NAME = {"delattr", "getattr", "hasattr", "setattr"}
GETTERS = {"operator.attrgetter", "operator.methodcaller"}
CHANGES_OF_MODULES = {"__delitem__", "__setitem__", "clear", "pop", "popitem", "setdefault", "update"}
DOTTED_OR_NEVER = re.compile("|".join([r"[a-z]\w*(\.\w+)+", *NEVER]))


def is_private(name: str) -> bool:
    return name.startswith("_") and name != "_" and not (name.startswith("__") and name.endswith("__"))


def is_internal(dotted: str) -> bool:
    parts = dotted.split(".")
    return any(map(is_private, parts)) or any(f"{dotted}.".startswith(f"{part}.") for part in INTERNAL)


@dataclass
class Module:
    """Names that a module defines for objects of its own, and uses that may be of others."""

    folder: str
    attributes: Counter[str] = field(default_factory=Counter)  # in how many classes
    arguments: set[str] = field(default_factory=set)
    imported: dict[str, str] = field(default_factory=dict)  # full name by name here; of mgclust: empty
    nodes: list[ast.AST] = field(default_factory=list)


def read_module(source: str, folder: str) -> Module:
    module = Module(folder)
    for node in ast.walk(ast.parse(source)):
        kind = type(node)
        if kind is ast.ClassDef:
            module.attributes.update(set(names_of_class(node)))
        elif kind is ast.Import:
            for alias in node.names:
                top = alias.name.partition(".")[0]
                module.imported[alias.asname or top] = "" if top == "mgclust" else alias.name if alias.asname else top
            module.nodes.append(node)
        elif kind is ast.ImportFrom:
            own = node.level or node.module.partition(".")[0] == "mgclust"
            for alias in node.names:
                module.imported[alias.asname or alias.name] = "" if own else f"{node.module}.{alias.name}"
            module.nodes.append(node)
        elif kind is ast.arg:
            module.arguments.add(node.arg)
        elif kind is ast.Attribute:
            if type(node.value) is ast.Name and node.value.id in ("self", "cls") and type(node.ctx) is ast.Store:
                module.attributes[node.attr] += 1
            module.nodes.append(node)
        elif kind in (ast.Call, ast.Subscript, ast.Assign, ast.NamedExpr):
            module.nodes.append(node)
        elif kind is ast.Name:
            if node.id in NEVER:
                module.nodes.append(node)
        elif kind is ast.Constant and type(node.value) is str and DOTTED_OR_NEVER.fullmatch(node.value):
            module.nodes.append(node)
    return module


def names_of_class(node: ast.ClassDef) -> Iterator[str]:
    for each in node.body:
        if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield each.name
        elif isinstance(each, ast.AnnAssign | ast.Assign):
            for target in [each.target] if isinstance(each, ast.AnnAssign) else each.targets:
                yield from (part.id for part in ast.walk(target) if isinstance(part, ast.Name))


class Own:
    """Names that modules of mgclust define."""

    def __init__(self, modules: list[Module]) -> None:
        self.attributes = {name for module in modules for name in module.attributes}
        self.arguments = {name for module in modules for name in module.arguments}
        self._of_folders: dict[str, Counter[str]] = {}
        for module in modules:
            self._of_folders.setdefault(module.folder, Counter()).update(module.attributes)

    def near(self, folder: str) -> Counter[str]:
        """In how many classes of a folder, and of those above it, each attribute is defined."""
        total: Counter[str] = Counter()
        for other, names in self._of_folders.items():
            if f"{folder}/".startswith(f"{other}/"):
                total.update(names)
        return total


def private_uses(module: Module, own: Own) -> Iterator[tuple[int, str]]:
    """Line and name of each use of what is private elsewhere."""
    near, everywhere, arguments = own.near(module.folder), own.attributes, own.arguments

    def full_name(node: ast.AST) -> str:
        """Name of what belongs to a dependency, as it is imported; empty for all else."""
        if isinstance(node, ast.Name):
            return module.imported.get(node.id, "")
        if isinstance(node, ast.Attribute):
            owner = full_name(node.value)
            return owner and f"{owner}.{node.attr}"
        if isinstance(node, ast.Subscript) and full_name(node.value) == "sys.modules":
            return node.slice.value if isinstance(node.slice, ast.Constant) else "sys.modules[...]"
        return ""

    def of_an_object(node: ast.Attribute) -> bool:
        """Whether a private attribute is one that no class of mgclust has."""
        if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
            return node.attr not in everywhere
        if isinstance(node.value, ast.Name) and node.value.id in module.imported:
            return False  # a module, class or function of mgclust
        if isinstance(node.value, ast.Call) and getattr(node.value.func, "id", "") == "super":
            return near[node.attr] < 2  # this class's own, and that of its base
        return node.attr not in near and node.attr not in NAMED_TUPLE

    for node in module.nodes:
        changed = isinstance(getattr(node, "ctx", None), ast.Store | ast.Del)
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if is_internal(alias.name))
        elif isinstance(node, ast.ImportFrom):
            names = {module.imported[alias.asname or alias.name] for alias in node.names}
            yield from ((node.lineno, name) for name in sorted(names) if is_internal(name))
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            name = full_name(node)
            if name and (changed or name in FRAMES or is_internal(name)):
                yield node.lineno, name
            elif not name and is_private(node.attr) and of_an_object(node):
                yield node.lineno, f"._{node.attr[1:]}"
            elif node.attr in FRAME_ATTRIBUTES:
                yield node.lineno, f".{node.attr}"
        elif isinstance(node, ast.Subscript):
            if changed and full_name(node.value) == "sys.modules":
                yield node.lineno, "sys.modules"
            key = node.slice.value if isinstance(node.slice, ast.Constant) else None
            if isinstance(key, str) and is_private(key) and is_namespace(node.value) and key not in everywhere:
                yield node.lineno, f"[{key!r}]"
        elif isinstance(node, ast.Assign | ast.NamedExpr):
            if full_name(node.value) == "sys.modules":
                yield node.lineno, "sys.modules"  # another name for it would hide what changes it
        elif isinstance(node, ast.Constant):
            text = node.value
            if text in NEVER or (is_internal(text) and not text.startswith("mgclust.")):
                yield node.lineno, text
        elif isinstance(node, ast.Call):
            called = full_name(node.func)
            if called in FRAMES and isinstance(node.func, ast.Name):
                yield node.lineno, called
            if called in GETTERS:
                names = {getattr(each, "value", None) for each in node.args}
                yield from ((node.lineno, f"._{name[1:]}") for name in names if name and is_private(name))
            if called.startswith("sys.modules.") and node.func.attr in CHANGES_OF_MODULES:
                yield node.lineno, "sys.modules"
            for each in node.keywords:
                if each.arg and is_private(each.arg) and each.arg not in arguments:
                    yield node.lineno, f"{each.arg}="
            if isinstance(node.func, ast.Name) and node.func.id in BY_NAME and len(node.args) > 1:
                attribute = getattr(node.args[1], "value", None)
                if isinstance(attribute, str) and is_private(attribute) and attribute not in everywhere:
                    yield node.lineno, f"{node.func.id} {attribute}"
                if node.func.id in ("setattr", "delattr") and (owner := full_name(node.args[0])):
                    yield node.lineno, f"{owner}.{attribute}"


def is_namespace(node: ast.AST) -> bool:
    """Whether this is ``vars(...)`` or ``x.__dict__``."""
    if isinstance(node, ast.Call):
        return getattr(node.func, "id", "") == "vars"
    return isinstance(node, ast.Attribute) and node.attr == "__dict__"


def is_allowed(name: str) -> bool:
    return any(f"{name}.".startswith(f"{allowed}.") for allowed in ALLOWED)


@pytest.fixture(scope="module")
def uses() -> dict[str, list[tuple[int, str]]]:
    files = {str(path.relative_to(ROOT)): path for path in sorted(ROOT.rglob("*.py"))}
    modules = {
        name: read_module(path.read_text(), "/".join(("mgclust", *Path(name).parts[:-1])))
        for name, path in files.items()
    }
    own = Own(list(modules.values()))
    return {name: list(private_uses(module, own)) for name, module in modules.items()}


def test_no_private_interface_of_a_dependency_is_used(uses):
    found = [f"{file}:{line} {name}" for file, each in uses.items() for line, name in each if not is_allowed(name)]
    assert not found, "use a public interface, or give the reason in ALLOWED:\n" + "\n".join(found)


def test_what_is_allowed_is_used(uses):
    names = {f"{name}." for each in uses.values() for _, name in each}
    assert not [allowed for allowed in ALLOWED if not any(name.startswith(f"{allowed}.") for name in names)]


def found_in(source: str) -> list[str]:
    own = read_module("class Own:\n    _mine: int\n    def _method(self, *, _given): ...", "mgclust")
    module = read_module(textwrap.dedent(source), "mgclust/part")
    return [name for _, name in private_uses(module, Own([own, module]))]


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("import numba._helperlib", "numba._helperlib"),
        ("from sklearn.cluster import _affinity_propagation", "sklearn.cluster._affinity_propagation"),
        ("from numba.core import caching", "numba.core.caching"),
        ("import numba\nnumba.core.config.X", "numba.core"),
        ("def f():\n    from distributed.worker import _worker_cvar", "distributed.worker._worker_cvar"),
        ("import distributed\nlist(distributed.Worker._instances)", "distributed.Worker._instances"),
        ("import numpy as np\nnp.core._internal.f()", "numpy.core._internal"),
        ("import traceback\ntraceback.walk_stack(None)", "traceback.walk_stack"),
        ("import inspect\ninspect.trace()", "inspect.trace"),
        ("def f(array): return array._meta", "._meta"),
        ("class A(Base):\n    def f(self): return self._hidden", "._hidden"),
        ("class A(Base):\n    def _start(self): return super()._start()", "._start"),
        ("compile(f, _nrt=False)", "_nrt="),
        ("getattr(array, '_meta', None)", "getattr _meta"),
        ("vars(worker)['_client']", "['_client']"),
        ("import importlib\nimportlib.import_module('skfuzzy.cluster._cmeans')", "skfuzzy.cluster._cmeans"),
        ("import sys\nsys.modules['pandas'] = None", "sys.modules"),
        ("import sys\nsys.modules.pop('pandas')", "sys.modules"),
        ("from sys import modules\ndel modules['pandas']", "sys.modules"),
        ("import sys\nknown = sys.modules\nknown['pandas'] = None", "sys.modules"),
        ("from numba.core.caching import *", "numba.core.caching.*"),
        ("from operator import attrgetter\nattrgetter('_meta')(array)", "._meta"),
        ("import sys\nsys.modules['distributed']._thing", "distributed._thing"),
        ("import sys\nsys._getframe(1)", "sys._getframe"),
        ("from inspect import currentframe\ncurrentframe()", "inspect.currentframe"),
        ("import inspect\ninspect.stack()", "inspect.stack"),
        ("def f(frame): return frame.f_back", ".f_back"),
        ("import gc\ngc.get_objects()", "gc.get_objects"),
        ("import dask\ndask.compute = None", "dask.compute"),
        ("from distributed import Worker\nWorker.run = None", "distributed.Worker.run"),
        ("import dask\nsetattr(dask, 'compute', None)", "dask.compute"),
        ("getattr(compiler, '_NVRTCProgram')", "_NVRTCProgram"),
        ("from cupy.cuda.compiler import _NVRTCProgram", "cupy.cuda.compiler._NVRTCProgram"),
    ],
)  # fmt: skip
def test_a_use_is_found(source, name):
    assert name in found_in(source)


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\nimport sys\nsys.modules.get('dask')",
        "from mgclust.part import _helper, thing\n_helper(thing._x)",
        "def f(own): return own._mine, own._method(_given=1), getattr(own, '_mine')",
        "def f(pair): return pair._replace(x=1)._asdict()",
        "class A:\n    def __init__(self):\n        self._kept = 1\n    def f(self, other): return other._kept",
        "class A:\n    def _f(self): ...\nclass B(A):\n    def _f(self): return super()._f()",
        "import numpy as np\nnp.ndarray.__array_ufunc__",
        "def f(self): self.thing.name = 1",
        "name = 'mgclust.part._module', 'no._sentence, but words'",
    ],
)
def test_other_uses_pass(source):
    assert not found_in(source)
