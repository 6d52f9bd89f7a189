"""Replacement of functions in the modules that define or import them, at once or when a module is imported later."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from mgclust.accel import igraph, networkx, skfuzzy, sklearn
from mgclust.accel.calls import AccelSettings, Call, replacement
from mgclust.base.errors import InputError

__all__ = ["CALLS", "install", "installed", "uninstall"]

CALLS: tuple[Call, ...] = (*sklearn.CALLS, *skfuzzy.CALLS, *networkx.CALLS, *igraph.CALLS)
_MISSING = object()


class Installation:
    """Replaced calls, and how to restore the originals.

    Parameters
    ----------
    calls : sequence of Call
    settings : AccelSettings
    """

    def __init__(self, calls: Sequence[Call], settings: AccelSettings) -> None:
        self._settings = settings
        self._homes: dict[str, list[Call]] = {}
        for call in calls:
            self._homes.setdefault(call.home, []).append(call)
        self._undo: list[Callable[[], None]] = []
        self._looking: set[str] = set()

    def begin(self) -> None:
        """Replace calls in the imported modules, and watch for later imports."""
        sys.meta_path.insert(0, self)
        for name in self._homes:
            if name in sys.modules:
                self._replace(sys.modules[name])

    def end(self) -> None:
        """Restore the originals."""
        sys.meta_path.remove(self)
        for undo in reversed(self._undo):
            undo()

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        """Find a module as usual, and let its loader replace the module's calls after the import.

        Parameters
        ----------
        name, path, target
            Arguments of the import system.
        """
        if name not in self._homes or name in self._looking:
            return None
        self._looking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._looking.discard(name)
        loader: Any = spec and spec.loader
        if hasattr(loader, "exec_module"):
            execute = loader.exec_module

            def execute_and_replace(module: ModuleType) -> None:
                execute(module)
                if self in sys.meta_path:
                    self._replace(module)

            loader.exec_module = execute_and_replace
        return spec

    def _replace(self, module: ModuleType) -> None:
        for call in self._homes[module.__name__]:
            *owners, name = call.path.split(".")
            owner: Any = module
            for each in owners:
                owner = getattr(owner, each, None)
            original = getattr(owner, name, None)
            if original is None:
                continue  # this version of the project does not have the function
            ours = replacement(call, original, self._settings)
            if owner is module:
                _exchange(name, original, ours)
                self._undo.append(
                    partial(_exchange, name, ours, original)
                )  # also in modules that have imported the replacement since
            else:
                self._set(owner, name, ours)
                for beside, value in call.beside.items():
                    self._set(owner, beside, value)

    def _set(self, owner: Any, name: str, value: Any) -> None:
        before = vars(owner).get(name, _MISSING)
        setattr(owner, name, value)

        def undo() -> None:
            if vars(owner).get(name) is value:
                if before is _MISSING:
                    delattr(owner, name)
                else:
                    setattr(owner, name, before)

        self._undo.append(undo)


def _exchange(name: str, old: Any, new: Any) -> None:
    """Exchange a function in all modules that have it under this name: its own module, and modules that import it."""
    for module in list(sys.modules.values()):
        if isinstance(module, ModuleType) and vars(module).get(name) is old:
            setattr(module, name, new)


_installation: Installation | None = None


def install(
    *,
    only: Iterable[str] = (),
    exclude: Iterable[str] = (),
    seeded: bool = False,
    device: str = "auto",
    client: Any = None,
    verbose: bool = False,
) -> None:
    """Run calls of scikit-learn, scikit-fuzzy, networkx and igraph on mgclust from now on.

    Functions are also replaced in modules that are already imported, and in modules that have imported a function by
    its name. A second call of `install` replaces the choices of the first call.

    Parameters
    ----------
    only : iterable of str
        Calls to replace, by default all. A name is a project (``"igraph"``), a function, method or class
        (``"silhouette_score"``), or a full name (``"igraph.Graph.community_leiden"``).
    exclude : iterable of str
        Calls or projects that are not replaced.
    seeded : bool
        Whether to replace also calls that pass a seed, although mgclust and the original then find different
        communities.
    device : {"auto", "cpu", "cuda"}
        Device of the computation. "auto": a GPU if there is one, else the CPU.
    client : None, address or distributed.Client
        Where to run. None: in this process, on one GPU or all cores. An address or a client: on the workers of that
        Dask cluster.
    verbose : bool
        Whether to print a line on stderr for each call.

    Raises
    ------
    InputError
        `only` or `exclude` names an unknown call or project, or `device` is not one of its values.

    See Also
    --------
    uninstall : Restores the originals.
    summary : Lists the calls that ran on mgclust, and reasons why others did not.

    Examples
    --------
    >>> from mgclust import accel
    >>> accel.install(only=["silhouette_score"])
    >>> from sklearn.metrics import silhouette_score
    >>> round(silhouette_score([[0.0], [1.0], [10.0], [11.0]], [0, 0, 1, 1]), 3)
    0.9
    >>> accel.uninstall()
    """
    global _installation
    only, exclude = _known(only), _known(exclude)
    calls = [call for call in CALLS if (not only or call.names & only) and not call.names & exclude]
    if device not in ("auto", "cpu", "cuda"):
        raise InputError(f"device={device!r} should be 'auto', 'cpu' or 'cuda'.")
    uninstall()
    _installation = Installation(calls, AccelSettings(device, client, seeded, verbose))
    _installation.begin()


def uninstall() -> None:
    """Restore the calls of all projects; does nothing if nothing is installed."""
    global _installation
    if _installation is not None:
        _installation.end()
        _installation = None


def installed() -> bool:
    """Return whether calls are replaced now."""
    return _installation is not None


def _known(names: Iterable[str]) -> set[str]:
    """Return names of calls or projects as a set; reject unknown names."""
    every = {name for call in CALLS for name in call.names}
    asked = {names} if isinstance(names, str) else set(names)
    for name in sorted(asked - every, key=str):
        short = sorted(name for name in every if "." not in name)
        raise InputError(f"call={name!r} should be one of {', '.join(map(repr, short))}.")
    return asked
