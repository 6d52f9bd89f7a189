"""Error classes and warning classes of mgclust.

::

    MgclustError
    ├── InputError (ValueError)                  bad data or parameters; the command line exits with 2
    │   ├── DeviceUnavailableError               a GPU was requested, but there is none
    │   └── ClusterUnavailableError              no scheduler answers, or it has too few workers
    ├── InsufficientMemoryError (MemoryError)    too little memory; the message states remedies
    ├── RunFailed (RuntimeError)                 a run that started could not finish
    │   ├── WorkerLost                           a worker died; the message names it
    │   └── CollectiveTimeout                    a rank did not answer within the deadline
    └── RunCancelled                             the run was cancelled

Every message is a sentence that helps to fix the error: ``name=value``, the bound, the remedy. A warning about a
result is a ``Doubt``: one sentence of at most ``MAX_SENTENCE`` characters, and the class of the Python warning that
`fit` issues::

    ClusteringWarning (UserWarning)
    ├── AmbiguousCountWarning           the data do not show the number of clusters clearly
    ├── WeakStructureWarning            clusters overlap, are unstable, or do not separate the rows
    ├── MergedClustersWarning           groups that are separate in the data share a cluster, or a group is split
    ├── DegenerateClustersWarning       clusters are empty, have only one or two rows, or coincide
    ├── PoorOptimumWarning              the same parameters have a better solution
    ├── PrecisionWarning                rounding or sampling may change the result
    ├── DataWarning                     the data may not mean what mgclust assumed
    ├── ParameterWarning                a parameter has no effect, was not met, or does not suit the data
    └── algorithms.base.UnconvergedWarning (sklearn.exceptions.ConvergenceWarning)

A `WorkerWarning` (UserWarning) is about the workers of a cluster; the result does not depend on them.
A `RetryWarning` (UserWarning) reports that a run lost a worker and was tried again; the result is the same.
"""

from __future__ import annotations

import contextlib
import os
import re
import sys
import traceback
import warnings

__all__ = [
    "AmbiguousCountWarning",
    "ClusterUnavailableError",
    "ClusteringWarning",
    "CollectiveTimeout",
    "DataWarning",
    "DegenerateClustersWarning",
    "DeviceUnavailableError",
    "Doubt",
    "InputError",
    "InsufficientMemoryError",
    "MergedClustersWarning",
    "MgclustError",
    "ParameterWarning",
    "PoorOptimumWarning",
    "PrecisionWarning",
    "RetryWarning",
    "RunCancelled",
    "RunFailed",
    "WeakStructureWarning",
    "WorkerLost",
    "WorkerWarning",
    "described",
    "printable",
    "warn_caller",
]


BETWEEN = ("mgclust", "sklearn", "joblib")  # packages whose lines a warning must not point at
MAX_SENTENCE = 200  # largest number of characters in a warning


class MgclustError(Exception):
    """Base class of all errors that mgclust raises on purpose."""

    def __reduce__(self) -> tuple[type[MgclustError], tuple[object, ...]]:
        # Errors are sent between processes. Without this method, libraries that help with pickling try to rebuild an
        # error that is also a MemoryError as a plain MemoryError, and fail.
        return type(self), self.args


class InputError(MgclustError, ValueError):
    """Data or parameters that cannot be clustered as given."""


class DeviceUnavailableError(InputError):
    """The requested device is not available on this machine."""


class ClusterUnavailableError(InputError):
    """No scheduler answers at the address, or it has fewer workers than requested."""


class InsufficientMemoryError(MgclustError, MemoryError):
    """A run is estimated to need more memory than is free."""


class RunFailed(MgclustError, RuntimeError):
    """A run started and could not finish."""


class WorkerLost(RunFailed):
    """A worker of the run died or left the cluster."""


class CollectiveTimeout(RunFailed):
    """A rank waited for another rank beyond the deadline."""


class RunCancelled(MgclustError):
    """The run was cancelled or stopped."""


class ClusteringWarning(UserWarning):
    """The result of a fit should be checked before it is used; the message states the reason and a remedy."""


class AmbiguousCountWarning(ClusteringWarning):
    """The data do not show the number of clusters clearly."""


class WeakStructureWarning(ClusteringWarning):
    """The clusters overlap, are unstable, or do not separate the rows."""


class MergedClustersWarning(ClusteringWarning):
    """Groups that are separate in the data share a cluster, or a group is split into several clusters."""


class DegenerateClustersWarning(ClusteringWarning):
    """Some clusters are empty, have only one or two rows, or coincide with other clusters."""


class PoorOptimumWarning(ClusteringWarning):
    """The same parameters have a solution with a better objective."""


class PrecisionWarning(ClusteringWarning):
    """Rounding or sampling may change the result."""


class DataWarning(ClusteringWarning):
    """The data may not mean what mgclust assumed when it read them, or do not suit the method."""


class ParameterWarning(ClusteringWarning):
    """A parameter has no effect, could not be met, or does not suit the data."""


class WorkerWarning(UserWarning):
    """Workers of a cluster are left out or keep a run waiting; the message names the workers and a remedy."""


class RetryWarning(UserWarning):
    """A run lost a worker and is tried again, as `retries` allows; its result is the same."""


class Doubt(str):
    """A warning about a result: its text, and the class of the Python warning that `fit` issues.

    Parameters
    ----------
    text : str
        One sentence of at most ``MAX_SENTENCE`` characters: the problem, then the remedy.
    kind : type of Warning
        Class of the Python warning.
    """

    kind: type[Warning]

    def __new__(cls, text: str, kind: type[Warning] = ClusteringWarning) -> Doubt:  # noqa: D102
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def warn_caller(text: str, category: type[Warning] | None = None) -> None:
    """Issue a Python warning that points at the user's line: the first caller outside mgclust and scikit-learn.

    Parameters
    ----------
    text : str
        Text of the warning.
    category : type, optional
        Class of the warning. The default is the kind of `text` if `text` is a ``Doubt``, else `ClusteringWarning`.
    """
    # From Python 3.12 on, the argument `skip_file_prefixes` of `warnings.warn` does this.
    files = [str(sys.modules[name].__file__) for name in BETWEEN if name in sys.modules]
    between = (*(os.path.dirname(file) + os.sep for file in files), contextlib.__file__)
    callers = [each.filename for each in reversed(traceback.extract_stack()[:-1])]
    outside = (level for level, file in enumerate(callers, 2) if not file.startswith(between))
    kind = category or getattr(text, "kind", ClusteringWarning)
    warnings.warn(str(text), kind, stacklevel=next(outside, len(callers) + 1))


def described(error: BaseException) -> str:
    """Return the class and the text of an error, which another process may have sent.

    When Dask unpickles errors of syntax and of Unicode, they lose their text, but keep the arguments that make it.
    """
    if isinstance(error, (SyntaxError, UnicodeError)):
        with contextlib.suppress(TypeError):  # a subclass may have other arguments
            error = type(error)(*error.args)
    return f"{type(error).__name__}: {error}"


def printable(text: str, keep: str = "") -> str:
    """Escape control sequences and characters that a terminal cannot show, except the characters to keep.

    Parameters
    ----------
    text : str
        Text for a terminal or a log.
    keep : str
        Characters that are not escaped.
    """

    def escape(found: re.Match[str]) -> str:
        return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in found.group())

    return re.sub("[^ -~]+", escape, text)
