"""Flags, words, sizes, seeds, and values that are checked elsewhere."""

from __future__ import annotations

import math
import numbers
import re
from typing import Any

from mgclust.params.constraint import Constraint, nearest_word

__all__ = ["Anything", "Boolean", "Bytes", "Choice", "Seed"]

_POWER_OF_PREFIX = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Boolean(Constraint):
    """True or False; 1 and 0 are also accepted.

    Parameters
    ----------
    optional, help, remedy
        See `Constraint`.
    """

    type = "flag"

    @property
    def expected(self) -> str:
        """Description of the allowed values."""
        return "True or False, or 1 or 0"

    def _check(self, name: str, value: Any) -> bool:
        if not isinstance(value, (bool, int)) or value not in (0, 1):
            raise self.refuse(name, value)
        return bool(value)

    def _convert(self, name: str, text: str) -> Any:
        values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return values.get(text.lower(), text)


class Choice(Constraint):
    """One word of a list of words.

    Parameters
    ----------
    *choices : str
        The allowed words.
    optional, help, remedy
        See `Constraint`.
    synonyms : dict of str to str, optional
        Names in other projects, each with the corresponding allowed word. These names are rejected, and the message
        names the allowed word.
    """

    type = "choice"

    def __init__(
        self,
        *choices: str,
        optional: bool = False,
        help: str = "",
        remedy: str | None = None,
        synonyms: dict[str, str] | None = None,
    ) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        self.choices, self._synonyms = choices, synonyms or {}

    @property
    def expected(self) -> str:
        """List of the allowed words."""
        quoted = [repr(choice) for choice in self.choices] + (["None"] if self.optional else [])
        return f"one of {', '.join(quoted)}" if len(quoted) > 1 else quoted[0]

    def _advice(self, value: Any) -> str:
        meant = self._synonyms.get(value.strip().lower()) if isinstance(value, str) else None
        if meant is not None:
            return f"use {meant!r}, the nearest value in mgclust."
        return nearest_word(value, self.choices) or super()._advice(value)

    def _check(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self.refuse(name, value)
        return value


class Bytes(Constraint):
    """An amount of memory: a number of bytes, or text such as ``"16 GiB"``, ``"500MB"``.

    Parameters
    ----------
    optional, help, remedy
        See `Constraint`.
    """

    type = "size"

    @property
    def expected(self) -> str:
        """Description of the two allowed forms."""
        return "a positive number of bytes or a size such as '16 GiB'"

    def _check(self, name: str, value: Any) -> int:
        if isinstance(value, str):
            size = self._size(value)
        elif isinstance(value, bool) or not isinstance(value, numbers.Integral):
            size = 0
        else:
            size = int(value)
        if size <= 0:
            raise self.refuse(name, value)
        return size

    def _size(self, text: str) -> int:
        match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(?:([kmgt])(i?))?b?", text.strip().lower())
        if match is None:
            return 0
        number, prefix, binary = match.groups()
        size = float(number) * (1024 if binary else 1000) ** _POWER_OF_PREFIX[prefix]
        return int(size) if math.isfinite(size) else 0


class Seed(Constraint):
    """A source of random numbers: an integer from 0 to 2**32 - 1, a NumPy Generator or RandomState, or None.

    Parameters
    ----------
    help, remedy
        See `Constraint`. None is always allowed.
    """

    type = "integer"

    def __init__(self, *, help: str = "", remedy: str | None = None) -> None:
        super().__init__(optional=True, help=help, remedy=remedy)

    @property
    def expected(self) -> str:
        """Description of the three allowed forms."""
        return "an integer from 0 to 4294967295, a NumPy Generator or RandomState, or None"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, numbers.Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**32:
            return int(value)
        if type(value).__module__.startswith("numpy.random"):
            return value
        raise self.refuse(name, value)

    def _convert(self, name: str, text: str) -> Any:
        return int(text) if text.isdecimal() and len(text) < 20 else text


class Anything(Constraint):
    """A value that is checked elsewhere, such as a Dask client.

    Parameters
    ----------
    help : str
        One sentence for ``--help``.
    """

    type = "text"

    def __init__(self, *, help: str = "") -> None:
        super().__init__(optional=True, help=help)

    def _check(self, name: str, value: Any) -> Any:
        return value
