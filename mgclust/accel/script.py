"""Run a script or a module as the interpreter would run it.

The script is the module ``__main__``: pickle refers to its objects by that name, and spawned processes read its file.
Tracebacks do not show the frames of mgclust.accel.
"""

from __future__ import annotations

import builtins
import importlib.util
import io
import os
import pkgutil
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType, TracebackType
from typing import Any

from mgclust.base.errors import InputError

__all__ = ["Run", "module_run", "script_run"]

OURS = str(Path(__file__).parent) + os.sep
Run = Callable[[], None]


def script_run(path: str, arguments: Sequence[str]) -> Run:
    """Prepare the run of ``python path arguments``.

    Parameters
    ----------
    path : str
        A file, or a folder or archive with a ``__main__.py``.
    arguments : sequence of str
        Arguments of the script.

    Returns
    -------
    callable
        Runs the script when called.

    Raises
    ------
    InputError
        The file does not exist or cannot be read.
    """
    sys.argv = [path, *arguments]
    found: Any = pkgutil.get_importer(path)
    if found is not None:
        _begin_path_with(path)
        spec = found.find_spec("__main__")
        if spec is None:
            raise InputError(f"{path!r} has no __main__.py; give the file to run.")
        return _run_of(spec)
    try:
        with io.open_code(os.path.abspath(path)) as file:
            source = file.read()
    except OSError as error:
        raise InputError(f"{path!r} cannot be opened: {error.strerror}.") from None
    _begin_path_with(os.path.dirname(os.path.realpath(path)))
    main = _new_main()
    main.__file__ = os.path.abspath(path)
    main.__loader__ = SourceFileLoader("__main__", main.__file__)
    main.__dict__["__cached__"] = None
    return partial(_execute, main, source)


def module_run(name: str, arguments: Sequence[str]) -> Run:
    """Prepare the run of ``python -m name arguments``; if the module is in a package, the package is imported now.

    Parameters
    ----------
    name : str
        A module, or a package with a ``__main__``.
    arguments : sequence of str
        Arguments of the module.

    Returns
    -------
    callable
        Runs the module when called.

    Raises
    ------
    InputError
        The module does not exist or cannot be run.
    """
    sys.argv = ["-m", *arguments]
    spec = _spec_of(name)
    if spec is not None and spec.submodule_search_locations is not None:
        name = f"{name}.__main__"
        spec = _spec_of(name)
    if spec is None or spec.loader is None:
        raise InputError(f"no module named {name!r}.")
    sys.argv[0] = str(spec.origin)
    return _run_of(spec)


def _spec_of(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:  # a parent package may be missing
        if error.name is not None and name.startswith(error.name):
            return None
        raise
    except ValueError:  # the module has no spec
        return None


def _run_of(spec: ModuleSpec) -> Run:
    loader: Any = spec.loader
    code = loader.get_code(spec.name) if hasattr(loader, "get_code") else None
    if code is None:
        raise InputError(f"{spec.name!r} is not written in Python; run it without mgclust.accel.")
    main = _new_main()
    main.__spec__, main.__loader__, main.__package__ = spec, loader, spec.parent
    main.__file__ = str(spec.origin)
    main.__dict__["__cached__"] = spec.cached
    return partial(_execute, main, code)


def _begin_path_with(folder: str) -> None:
    """Make the script's folder the first entry of ``sys.path``, as Python does."""
    if not sys.flags.safe_path:
        sys.path[0] = folder


def _new_main() -> ModuleType:
    """Empty the module ``__main__`` for the script, and return it; the running code is in other modules."""
    main = sys.modules["__main__"]
    main.__dict__.clear()
    main.__dict__.update(
        {
            "__name__": "__main__", "__doc__": None, "__package__": None, "__loader__": None, "__spec__": None,
            "__annotations__": {}, "__builtins__": builtins,
        }
    )  # fmt: skip
    return main


def _execute(main: ModuleType, source: bytes | CodeType) -> None:
    try:
        code = (
            source if isinstance(source, CodeType) else compile(source, str(main.__file__), "exec", dont_inherit=True)
        )
        exec(code, main.__dict__)
    except BaseException as error:
        if not isinstance(error, SystemExit):
            sys.excepthook = _without_our_frames(sys.excepthook)
        raise


def _without_our_frames(show: Any) -> Any:
    """Return a `sys.excepthook` that shows the traceback without frames of mgclust.accel."""

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        seen: set[int] = set()
        left: list[BaseException | None] = [error]
        while left:
            each = left.pop()
            if each is not None and id(each) not in seen:
                seen.add(id(each))
                each.__traceback__ = _shortened(each.__traceback__)
                left += [each.__cause__, each.__context__]
        show(kind, error, error.__traceback__)

    return hook


def _shortened(trace: TracebackType | None) -> TracebackType | None:
    frames = []
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if not (file.startswith(OURS) or file == "<frozen runpy>"):
            frames.append(trace)
        trace = trace.tb_next
    short: TracebackType | None = None
    for each in reversed(frames):
        short = TracebackType(short, each.tb_frame, each.tb_lasti, each.tb_lineno)
    return short
