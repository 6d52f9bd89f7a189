"""The declared parameters of a method: their description for users, and the check of all values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgclust.base.errors import InputError
from mgclust.params.constraint import Constraint, nearest_word, shown

__all__ = ["Option", "check_parameters"]


@dataclass(frozen=True)
class Option:
    """A parameter of a method, described for the command line and the service.

    Attributes
    ----------
    name : str
        Name in Python, with underscores.
    default : object
        Value that is used if the user does not give the parameter.
    constraint : Constraint
        Condition that checks and parses the value; it also has the type, the choices and the help text.
    """

    name: str
    default: Any
    constraint: Constraint

    def describe(self) -> dict[str, Any]:
        """Describe the parameter and its allowed values as a dict that can be written as JSON."""
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
        A value is invalid (the message is about the first invalid value), or a name was not declared.
    """
    checked = {}
    for name, value in params.items():
        if name not in constraints:
            advice = nearest_word(name, constraints) or f"known parameters are {', '.join(constraints)}."
            raise InputError(f"{name}={shown(value)} is not a parameter; {advice}")
        checked[name] = constraints[name].check(name, value)
    return checked
