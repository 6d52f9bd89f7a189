"""Parameters as a method declares them: what others are offered, and the check of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgclust.base.errors import InputError
from mgclust.params.constraint import Constraint, nearest_word, shown

__all__ = ["Option", "check_parameters"]


@dataclass(frozen=True)
class Option:
    """One parameter as the command line and the service offer it.

    Attributes
    ----------
    name : str
        As in Python, with underscores.
    default : object
    constraint : Constraint
        Checks and parses the value; knows its type, choices and help text.
    """

    name: str
    default: Any
    constraint: Constraint

    def describe(self) -> dict[str, Any]:
        """Describe the values that it takes, in plain values that fit into JSON."""
        kind = self.constraint
        values = "|".join(kind.choices) or kind.type
        return {"values": values, "choices": list(kind.choices), "default": self.default, "help": kind.help}


def check_parameters(constraints: Mapping[str, Constraint], params: Mapping[str, Any]) -> dict[str, Any]:
    """Check every parameter against its declaration.

    Parameters
    ----------
    constraints : mapping of str to Constraint
    params : mapping of str to object

    Returns
    -------
    dict
        The values in their plain Python types, in the order of ``params``.

    Raises
    ------
    InputError
        For the first wrong value, or a name that was not declared.
    """
    checked = {}
    for name, value in params.items():
        if name not in constraints:
            advice = nearest_word(name, constraints) or f"known are {', '.join(constraints)}."
            raise InputError(f"{name}={shown(value)} is not a parameter; {advice}")
        checked[name] = constraints[name].check(name, value)
    return checked
