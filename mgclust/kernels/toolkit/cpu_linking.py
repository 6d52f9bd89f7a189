"""A shorter way through Numba: what only kernels call becomes machine code as a part of them, and not for itself too.

Numba optimises every function, makes machine code of it and keeps that on disk, and does the same again wherever
another function contains it. Functions without an entry from Python need none of that for themselves. Here they stay
as they were translated, and each kernel takes those that it reaches, once, before it is optimised as a whole. The
optimisation is Numba's own, so results keep their bits.

This overrides what Numba keeps to itself, so `cpu_compiler` does it with the version alone that all tests have run
with; others compile in Numba's own way, which takes longer.
"""

from __future__ import annotations

import contextlib
import functools
import gc
from collections.abc import Iterator
from typing import Any

from numba.core import codegen, compiler
from numba.core.environment import lookup_environment

__all__ = ["Pipeline"]

# Passes for what kernels do not have: closures, blocks of Python, array expressions, loops over tuples of unlike types.
UNNEEDED = frozenset({
    "DumpParforDiagnostics", "FindLiterallyCalls", "InlineClosureLikes", "InlineInlinables", "InlineOverloads",
    "LiteralPropagationSubPipelinePass", "LiteralUnroll", "MakeFunctionToJitFunction",
    "NoPythonSupportedFeatureValidation", "NopythonRewrites", "RewriteDynamicRaises", "RewriteSemanticConstants",
    "WithLifting",
})  # fmt: skip
NOT_INHERITED = ("forceinline", "no_cfunc_wrapper", "no_cpython_wrapper", "release_gil")
ENVIRONMENT = "_ZN08NumbaEnv"  # how the names of environments begin


class Pipeline(compiler.Compiler):  # type: ignore[misc]  # Numba has no types
    """Numba's own, less some passes, with other libraries for what it compiles, and cheap look-ups by options."""

    def __init__(
        self, typingctx: Any, targetctx: Any, library: Any, args: Any, return_type: Any, flags: Any, locals: Any
    ) -> None:
        super().__init__(typingctx, targetctx, library, args, return_type, _Flags(flags), locals)

    def compile_extra(self, func: Any) -> Any:
        """Compile a function."""
        with _uncollected():
            return super().compile_extra(func)

    def define_pipelines(self) -> Any:
        """Choose the passes, and the library that they write into."""
        state = self.state
        if state.library is None:
            kind = _Part if state.flags.no_cpython_wrapper else _Whole
            state.library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
            state.library.enable_object_caching()
        pipelines = super().define_pipelines()
        for each in pipelines:
            each.passes = [item for item in each.passes if item[0].__name__ not in UNNEEDED]
            each.finalize()
        return pipelines


class _Flags(compiler.Flags):  # type: ignore[misc]
    """Options of a function of this package.

    A copy is what Numba goes by while it compiles the function: it looks each operator up under these options, compares
    all thirty at every look-up, and compiles what it finds once more for each difference. So copies are one object for
    all functions with the same options, without those that nothing else inherits.
    """

    __slots__ = ()

    def copy(self) -> Any:
        inherited = _Inherited(self)
        for name in NOT_INHERITED:
            inherited.discard(name)
        return _the_same(inherited)


class _Inherited(compiler.Flags):  # type: ignore[misc]
    __slots__ = ("_hash",)
    __eq__ = compiler.Flags.__eq__

    def __hash__(self) -> int:
        if not hasattr(self, "_hash"):
            self._hash: int = super().__hash__()
        return self._hash

    def copy(self) -> Any:
        return compiler.Flags(self)  # may be changed


@functools.cache
def _the_same(flags: _Inherited) -> _Inherited:
    """The first that was equal."""
    return flags


class _Library(codegen.JITCodeLibrary):  # type: ignore[misc]
    _linking_libraries: list[Any]
    _shared_module: Any

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave that to the optimisation of the whole, which begins with the same."""
        ll_module.data_layout = self._codegen._data_layout


class _Part(_Library):
    """A function that others contain: neither optimised for itself nor made machine code."""

    def finalize(self) -> None:
        self._raise_if_finalized()
        self._finalized = True

    def _get_module_for_linking(self) -> Any:
        if self._shared_module is None:
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == codegen.ll.Linkage.external:
                    function.linkage = "linkonce_odr"  # may be in several
            self._shared_module = self._final_module
        return self._shared_module

    def get_pointer_to_function(self, name: str) -> int:
        return 0  # as of any function without an entry from Python

    @property
    def codegen(self) -> Any:
        return _NoEnvironments


class _NoEnvironments:
    @staticmethod
    def set_env(name: str, environment: Any) -> None:
        """Nothing: there is no machine code that would read it; a whole sets those of its parts."""


class _Whole(_Library):
    """A function with an entry from Python, and all parts that it reaches."""

    def finalize(self) -> None:
        reached: dict[Any, None] = {}
        for library in self._linking_libraries:
            _reach(library, reached)
        self._linking_libraries = list(reached)[::-1]  # callers first: what nothing asks for is not taken over
        super().finalize()
        for variable in self._final_module.global_variables:
            if variable.name.startswith(ENVIRONMENT) and (known := lookup_environment(variable.name)) is not None:
                self._codegen.set_env(variable.name, known)


def _reach(library: Any, reached: dict[Any, None]) -> None:
    """Enter a library behind all that it asks for."""
    if library not in reached:
        if isinstance(library, _Part):
            for other in library._linking_libraries:
                _reach(other, reached)
        reached[library] = None


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Let no garbage be collected in the block, which would look at all of Numba's objects, tens of times.

    One thread is here at a time, as Numba has a lock around what it compiles.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
