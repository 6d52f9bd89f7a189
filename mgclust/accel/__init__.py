"""Run calls of scikit-learn, scikit-fuzzy, networkx and igraph on mgclust, without changes to your code.

``python -m mgclust.accel script.py`` does this for a script, ``%load_ext mgclust.accel`` for a notebook, and `install`
from Python. If mgclust cannot compute a call in the same way as the called project, the project's own function runs.
`summary` lists the reasons. Modules::

    command       the command: its options, and the summary at the end
    script        runs a script or a module as Python runs it
    installation  replaces calls in modules that are imported already, and in modules that are imported later
    calls         runs each call on mgclust, or else on the original, and counts the calls
    sklearn, skfuzzy, networkx, igraph   the calls of each project, and how mgclust computes them
    communities   common code of networkx and igraph

None of the four projects is imported before the script imports it.
"""

from __future__ import annotations

from typing import Any

from mgclust.accel.calls import summary, totals
from mgclust.accel.installation import install, installed, uninstall

__all__ = ["install", "installed", "summary", "totals", "uninstall"]


def load_ipython_extension(shell: Any) -> None:
    """Install the replacements; ``%load_ext mgclust.accel`` calls this function.

    Parameters
    ----------
    shell : IPython.InteractiveShell
        Not used.
    """
    install()


def unload_ipython_extension(shell: Any) -> None:
    """Remove the replacements; ``%unload_ext mgclust.accel`` calls this function.

    Parameters
    ----------
    shell : IPython.InteractiveShell
        Not used.
    """
    uninstall()
