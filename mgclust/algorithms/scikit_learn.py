"""Scikit-learn, as far as estimators are derived from it and use its checks, imported in a third of the time.

`sklearn.base` imports all of `scipy.stats`, pandas where that is installed, and, by ``from numpy import *``,
`numpy.f2py` and `numpy.testing`, of which it uses nothing before a function is called that no estimator here calls.
They have stand-ins while it is imported, and are removed from `sys.modules` afterwards: a later ``import`` of them is
an ordinary one.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = [
    "BaseEstimator",
    "ClassNamePrefixFeaturesOutMixin",
    "ClusterMixin",
    "ConvergenceWarning",
    "TransformerMixin",
    "available_if",
    "check_is_fitted",
    "validate_data",
]


class _StandIn(types.ModuleType):
    """A module that is imported when something of it is asked for."""

    def __getattr__(self, name: str) -> Any:
        _withdraw(self)
        module = importlib.import_module(self.__name__)
        self.__dict__.update(vars(module))  # which is asked no more
        return getattr(module, name)


def _withdraw(module: _StandIn) -> None:
    """Let the next import of it be an ordinary one."""
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
    package, _, name = module.__name__.rpartition(".")
    if package and vars(sys.modules[package]).get(name) is module:
        delattr(sys.modules[package], name)


@contextmanager
def deferred(*names: str) -> Iterator[None]:
    """Let modules that are imported meanwhile, and were not before, wait until something of them is used.

    Parameters
    ----------
    *names : str
        Of modules that are installed or not.
    """
    missing = [name for name in names if name not in sys.modules and importlib.util.find_spec(name) is not None]
    stand_ins = [_StandIn(name) for name in missing]
    for each in stand_ins:
        sys.modules[each.__name__] = each
        package, _, name = each.__name__.rpartition(".")
        if package:
            setattr(sys.modules[package], name, each)  # as an import does
    try:
        yield
    finally:
        for each in stand_ins:
            _withdraw(each)


with deferred("pandas", "scipy.stats", "numpy.f2py", "numpy.testing"):
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.utils.metaestimators import available_if
    from sklearn.utils.validation import check_is_fitted, validate_data
