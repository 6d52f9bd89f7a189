"""Calls of scikit-learn, scikit-fuzzy, networkx and igraph on mgclust, without a change of code.

``python -m mgclust.accel script.py`` runs a script so, ``%load_ext mgclust.accel`` a notebook; `install` does it from
Python. A call that mgclust cannot compute as its project does runs there, and `summary` tells why::

    command       the command: its options, and the summary at the end
    script        a script or a module, run as Python runs it
    installation  which calls are replaced, where, and in modules that are imported later
    calls         one call: on mgclust, or else on the original; the counts
    sklearn, skfuzzy, networkx, igraph   the calls of each project, and what mgclust does for them
    communities   what the last two have in common

None of the four projects is imported before the script imports it.
"""

from __future__ import annotations

from typing import Any

from mgclust.accel.calls import summary, totals
from mgclust.accel.installation import install, installed, uninstall

__all__ = ["install", "installed", "summary", "totals", "uninstall"]


def load_ipython_extension(shell: Any) -> None:
    """Begin: called by ``%load_ext mgclust.accel``.

    Parameters
    ----------
    shell : IPython.InteractiveShell
    """
    install()


def unload_ipython_extension(shell: Any) -> None:
    """End: called by ``%unload_ext mgclust.accel``.

    Parameters
    ----------
    shell : IPython.InteractiveShell
    """
    uninstall()
