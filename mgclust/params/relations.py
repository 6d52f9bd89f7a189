"""Parameters that others make void, as a method declares them.

A method says once which of its parameters have no effect where others have certain values::

    ignored_when = (
        Ignored("n_clusters", {"n_clusters_range": GIVEN}),
        Ignored("criterion", {"n_clusters_range": LEFT_OUT}, values=("xie_beni",)),
        Ignored("dc", {"density": "knn", "halo": False}),
    )

and each that a user has given nevertheless becomes a warning of the result::

    n_clusters=5 has no effect with n_clusters_range=(2, 10): leave one of them out.

A parameter counts as given where it differs from its default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mgclust.params.constraint import shown

__all__ = ["GIVEN", "LEFT_OUT", "Ignored", "Unlike", "ignored_parameters"]


class Unlike:
    """Any value except the given values: a condition of `mgclust.params.relations.Ignored`.

    Parameters
    ----------
    *values : object
        The excepted values; an array is never one of them.
    """

    def __init__(self, *values: Any) -> None:
        self._values = values

    def holds(self, value: Any) -> bool:
        """Return whether a value is none of them.

        Parameters
        ----------
        value : object
        """
        return not _is_one(value, self._values)


GIVEN = Unlike(None)
LEFT_OUT = (None,)


@dataclass(frozen=True)
class Ignored:
    """A parameter without effect beside others.

    Attributes
    ----------
    name : str
        Of the parameter.
    beside : mapping of str to object
        The others, and what each has to be, all at once: a value, one of a tuple, `Unlike` some, ``GIVEN`` or
        ``LEFT_OUT``.
    values : tuple of object
        Its own values that are void; by default all.
    remedy : str, optional
        By default to leave one of them out.
    """

    name: str
    beside: Mapping[str, Any]
    values: tuple[Any, ...] = ()
    remedy: str = "leave one of them out"

    def holds(self, parameters: Mapping[str, Any]) -> bool:
        """Return whether the parameter is void.

        Parameters
        ----------
        parameters : mapping of str to object
            All of them, checked.
        """
        own = not self.values or parameters[self.name] in self.values
        return own and all(_meets(parameters[other], wanted) for other, wanted in self.beside.items())

    def sentence(self, parameters: Mapping[str, Any]) -> str:
        """Word the warning.

        Parameters
        ----------
        parameters : mapping of str to object
            All of them, checked.
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
    """Find the parameters that were given and have no effect; a sentence for each.

    Parameters
    ----------
    ignored_when : tuple of Ignored
        What the method declares; of several that hold for one parameter, the first is said.
    parameters : mapping of str to object
        All of them, checked.
    defaults : mapping of str to object

    Returns
    -------
    list of str
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
