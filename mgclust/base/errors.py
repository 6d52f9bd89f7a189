"""Errors that can occur, as one tree, and the kinds of warnings.

::

    MgclustError
    ├── InputError (ValueError)                  bad data or parameters; the command line exits with 2
    │   ├── DeviceUnavailableError               a GPU was asked for and there is none
    │   └── ClusterUnavailableError              no scheduler answers, or it has too few workers
    ├── InsufficientMemoryError (MemoryError)    needed, there, and what would fit
    ├── RunFailed (RuntimeError)                 a run that started could not finish
    │   ├── WorkerLost                           a worker died; the sentence names it
    │   └── CollectiveTimeout                    a rank did not answer within the deadline
    └── RunCancelled                             the run was cancelled

Every message is a sentence that helps to fix the error: ``name=value``, the bound, the remedy. A warning of a result
is a ``Doubt``: one sentence of at most ``MAX_SENTENCE`` characters and its kind, the class of the Python warning that
`fit` makes::

    ClusteringWarning (UserWarning)
    ├── AmbiguousCountWarning           the data do not show the number of clusters clearly
    ├── WeakStructureWarning            clusters overlap, are unstable, or do not separate the rows
    ├── MergedClustersWarning           groups that the data show apart share a cluster, or one of them is cut
    ├── DegenerateClustersWarning       clusters of no row, of a row or two, or equal to others
    ├── PoorOptimumWarning              the same parameters have a better solution
    ├── PrecisionWarning                rounding or sampling may change the result
    ├── DataWarning                     the data may mean something else than mgclust assumed
    ├── ParameterWarning                a parameter has no effect, was not met, or does not suit the data
    └── algorithms.base.UnconvergedWarning (sklearn.exceptions.ConvergenceWarning)

A `WorkerWarning` (UserWarning) is about the workers of a cluster instead: results do not depend on them.
A `RetryWarning` (UserWarning) says that a run lost a worker and was tried again: the result is the same.
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
    "printable",
    "warn_caller",
]


BETWEEN = ("mgclust", "sklearn", "joblib")  # packages between the user's line and the place of a warning
MAX_SENTENCE = 200  # characters of a warning


class MgclustError(Exception):
    """Root of every error that mgclust raises on purpose."""

    def __reduce__(self) -> tuple[type[MgclustError], tuple[object, ...]]:
        # Errors travel between processes. Left to themselves, pickling aids would rebuild one that is also a
        # MemoryError as a bare MemoryError, and fail.
        return type(self), self.args


class InputError(MgclustError, ValueError):
    """Data or parameters that cannot be clustered as given."""


class DeviceUnavailableError(InputError):
    """A device was asked for that this machine does not offer."""


class ClusterUnavailableError(InputError):
    """No scheduler answers at the address, or it has fewer workers than were asked for."""


class InsufficientMemoryError(MgclustError, MemoryError):
    """The estimate before a run exceeds the memory that is free."""


class RunFailed(MgclustError, RuntimeError):
    """A run started and could not finish."""


class WorkerLost(RunFailed):
    """A worker of the run died or left the cluster."""


class CollectiveTimeout(RunFailed):
    """A rank waited for another one longer than the deadline."""


class RunCancelled(MgclustError):
    """The run was told to stop."""


class ClusteringWarning(UserWarning):
    """A fit ended, but its result should not be used unseen: the sentence says why, and what helps."""


class AmbiguousCountWarning(ClusteringWarning):
    """The data do not show the number of clusters clearly."""


class WeakStructureWarning(ClusteringWarning):
    """The clusters overlap, are unstable, or do not separate the rows."""


class MergedClustersWarning(ClusteringWarning):
    """Groups that the data show apart share a cluster, or clusters cut such a group."""


class DegenerateClustersWarning(ClusteringWarning):
    """Some clusters have no row, a row or two, or coincide with others."""


class PoorOptimumWarning(ClusteringWarning):
    """The same parameters have a solution with a better objective."""


class PrecisionWarning(ClusteringWarning):
    """Rounding or sampling may change the result."""


class DataWarning(ClusteringWarning):
    """The data may mean something else than mgclust assumed when it read them, or do not suit the method."""


class ParameterWarning(ClusteringWarning):
    """A parameter has no effect, could not be met, or does not suit the data."""


class WorkerWarning(UserWarning):
    """Workers of a cluster are left out, or keep a run waiting: the sentence names them, and what helps."""


class RetryWarning(UserWarning):
    """A run lost a worker and is tried again, as `retries` allows; its result is the same."""


class Doubt(str):
    """A warning of a result: the sentence, and the class of the Python warning that `fit` gives.

    Parameters
    ----------
    text : str
        One sentence of at most ``MAX_SENTENCE`` characters: what is wrong, then the remedy.
    kind : type of Warning
    """

    kind: type[Warning]

    def __new__(cls, text: str, kind: type[Warning] = ClusteringWarning) -> Doubt:  # noqa: D102
        made = super().__new__(cls, text)
        made.kind = kind
        return made


def warn_caller(text: str, category: type[Warning] | None = None) -> None:
    """Make a Python warning that points at the line of a user: the first one outside mgclust and scikit-learn.

    Parameters
    ----------
    text : str
        The sentence.
    category : type, optional
        Class of the warning; by default the kind of a ``Doubt``, else `ClusteringWarning`.
    """
    # Python 3.12 does this by `skip_file_prefixes`.
    files = [str(sys.modules[name].__file__) for name in BETWEEN if name in sys.modules]
    between = (*(os.path.dirname(file) + os.sep for file in files), contextlib.__file__)
    callers = [each.filename for each in reversed(traceback.extract_stack()[:-1])]
    outside = (level for level, file in enumerate(callers, 2) if not file.startswith(between))
    kind = category or getattr(text, "kind", ClusteringWarning)
    warnings.warn(str(text), kind, stacklevel=next(outside, len(callers) + 1))


def printable(text: str, keep: str = "") -> str:
    """Escape control sequences and characters that a terminal cannot show, but for the characters to keep.

    Parameters
    ----------
    text : str
        For a terminal or a log.
    keep : str
        Characters that stay as they are.
    """

    def escape(found: re.Match[str]) -> str:
        return "".join(c if c.isprintable() or c in keep else ascii(c)[1:-1] for c in found.group())

    return re.sub("[^ -~]+", escape, text)
