"""Parameters that have no effect because of other parameters.

A method declares which of its parameters have no effect if other parameters have certain values::

    ignored_when = (
        Ignored("n_clusters", {"n_clusters_range": GIVEN}),
        Ignored("criterion", {"n_clusters_range": LEFT_OUT}, values=("xie_beni",)),
        Ignored("dc", {"density": "knn", "halo": False}),
    )

If the user gives a parameter that has no effect, the result has a warning::

    n_clusters=5 has no effect with n_clusters_range=(2, 10): leave one of them out.

A parameter counts as given if it differs from its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgclust.params.constraint import shown

__all__ = ["GIVEN", "LEFT_OUT", "SEVERAL", "Ignored", "Unlike", "ignored_parameters"]


class Unlike:
    """Condition for `mgclust.params.relations.Ignored`: any value except the listed values.

    Parameters
    ----------
    *values : object
        The excluded values. An array never equals one of them.
    """

    def __init__(self, *values: Any) -> None:
        self._values = values

    def holds(self, value: Any) -> bool:
        """Return whether a value is not one of the excluded values.

        Parameters
        ----------
        value : object
            Value of the parameter.
        """
        return not _is_one(value, self._values)


class _Several(Unlike):
    """Condition for `mgclust.params.relations.Ignored`: a tuple of at least two values."""

    def holds(self, value: Any) -> bool:
        return isinstance(value, tuple) and len(value) > 1


SEVERAL = _Several()
GIVEN = Unlike(None)
LEFT_OUT = (None,)


@dataclass(frozen=True)
class Ignored:
    """A parameter that has no effect if other parameters have certain values.

    Attributes
    ----------
    name : str
        Name of the parameter without effect.
    beside : mapping of str to object
        Condition for each of the other parameters, by name; all conditions must hold. A condition is a value, a tuple
        of allowed values, `Unlike`, ``GIVEN``, ``LEFT_OUT`` or ``SEVERAL``.
    values : tuple of object
        Values of the parameter `name` that have no effect; if empty, all values.
    remedy : str, optional
        Advice at the end of the warning; by default, to leave one of the parameters out.
    """

    name: str
    beside: Mapping[str, Any]
    values: tuple[Any, ...] = ()
    remedy: str = "leave one of them out"

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether the parameter has no effect.

        Parameters
        ----------
        parameters : mapping of str to object
            Checked values of all parameters.
        """
        own = not self.values or parameters[self.name] in self.values
        return own and all(_meets(parameters[other], wanted) for other, wanted in self.beside.items())

    def sentence(self, parameters: Mapping[str, Any]) -> str:
        """Return the text of the warning.

        Parameters
        ----------
        parameters : mapping of str to object
            Checked values of all parameters.
        """
        parts = [
            f"without {other}" if wanted is LEFT_OUT else f"with {other}={_briefly(parameters[other])}"
            for other, wanted in self.beside.items()
        ]
        given = f"{self.name}={shown(parameters[self.name])}"
        return f"{given} has no effect {' and '.join(parts)}: {self.remedy}."


def ignored_parameters(
    ignored_when: tuple[Ignored, ...], parameters: Mapping[str, Any], defaults: Mapping[str, Any]
) -> list[str]:
    """Find the parameters that were given and have no effect, and return a warning for each.

    Parameters
    ----------
    ignored_when : tuple of Ignored
        Declarations of the method. If several declarations hold for a parameter, the warning uses the first.
    parameters : mapping of str to object
        Checked values of all parameters.
    defaults : mapping of str to object
        Default values of all parameters.

    Returns
    -------
    list of str
        One sentence per parameter.
    """
    said: dict[str, str] = {}
    for void in ignored_when:
        given = parameters[void.name] != defaults[void.name]
        if given and void.name not in said and void.holds(parameters):
            said[void.name] = void.sentence(parameters)
    return list(said.values())


def _meets(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, Unlike):
        return wanted.holds(value)
    return _is_one(value, wanted if isinstance(wanted, tuple) else (wanted,))


def _is_one(value: Any, values: tuple[Any, ...]) -> bool:
    return not _is_array(value) and value in values


def _is_array(value: Any) -> bool:
    return getattr(value, "ndim", 0) > 0


def _briefly(value: Any) -> str:
    return f"an array of shape {value.shape}" if _is_array(value) else shown(value)
