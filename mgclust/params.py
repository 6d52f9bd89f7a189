"""Declarative checks of parameters.

An algorithm declares each of its parameters once::

    constraints = {
        "n_clusters": Integer(at_least=1, optional=True, remedy="give their number or leave it out"),
        "metric": Choice("euclidean", "manhattan", help="Distance between rows."),
    }

and gets from it the check (`check_parameters`), the command line's option (`Constraint.type`, `.choices`,
`.help`, `.parse`) and the sentence when a value is wrong::

    n_clusters=0 should be an integer >= 1; give their number or leave it out.
    metric='manhatan' should be one of 'euclidean', 'manhattan'; did you mean 'manhattan'?
"""

from __future__ import annotations

import difflib
import math
import numbers
import operator
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mgclust.array_files import read_npy_parameter
from mgclust.beneath import Beneath
from mgclust.errors import InputError
from mgclust.quoting import shortened

__all__ = [
    "Anything",
    "Boolean",
    "Bytes",
    "Choice",
    "Constraint",
    "Integer",
    "IntegerOrWord",
    "Option",
    "Range",
    "Real",
    "RealOrPerRow",
    "RealOrWord",
    "RowNumbers",
    "Seed",
    "check_parameters",
]

_HOLDS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}
_POWER_OF_PREFIX = {None: 0, "k": 1, "m": 2, "g": 3, "t": 4}


class Constraint:
    """Condition on a parameter's value.

    Parameters
    ----------
    optional : bool
        Whether None is allowed; the command line writes it ``none``.
    help : str
        One sentence for ``--help``.
    remedy : str, optional
        What to do about a wrong value; by default to give one within the bounds, or to leave it out
        where None is allowed.

    Attributes
    ----------
    type : str
        What the command line shows in place of a value: "number", "integer", "choice", "flag", ...
    choices : tuple of str
        The values of a `Choice`; else empty.
    """

    type = "value"
    choices: tuple[str, ...] = ()

    def __init__(self, *, optional: bool = False, help: str = "", remedy: str | None = None) -> None:
        self.optional = optional
        self.help = help
        self._remedy = remedy

    @property
    def expected(self) -> str:
        """The allowed values in words, as in "should be ..."."""
        return f"a {self.type}"

    def check(self, name: str, value: Any) -> Any:
        """Return the value in its plain Python type.

        Parameters
        ----------
        name : str
            Of the parameter, for the message.
        value : object
            As the user gave it; NumPy scalars are fine where Python numbers are.

        Raises
        ------
        InputError
            A sentence with the value, the bound and the remedy.
        """
        if value is None:
            if self.optional:
                return None
            raise self.refuse(name, value)
        return self._check(name, _plain(value))

    def parse(self, text: str | Beneath, name: str = "value") -> Any:
        """Convert what was written on the command line, or a file beneath a root, then `check` it.

        Parameters
        ----------
        text : str or Beneath
            Its text, or the file that holds the value.
        name : str
            Of the parameter, for the message.

        Returns
        -------
        object
            What `check` returns.
        """
        if isinstance(text, Beneath):
            return self.check(name, self._read(text))
        if self.optional and text.strip().lower() == "none":
            return None
        return self.check(name, self._convert(text.strip()))

    def refuse(self, name: str, value: Any) -> InputError:
        """Make the error for a value that is not allowed.

        Parameters
        ----------
        name : str
            Of the parameter.
        value : object

        Returns
        -------
        InputError
            To be raised.
        """
        return InputError(f"{name}={_shown(value)} should be {self.expected}; {self._advice(value)}")

    def _advice(self, value: Any) -> str:
        leave = " or leave it out" if self.optional else ""
        return f"{self._remedy or 'give such a value' + leave}."

    def _check(self, name: str, value: Any) -> Any:
        raise NotImplementedError

    def _convert(self, text: str) -> Any:
        # What cannot be converted stays text, so that `check` words the refusal.
        return text

    def _read(self, file: Beneath) -> Any:
        # Where a parameter is not read from files, `check` words the refusal.
        return file.path


class _Bounded(Constraint):
    """A number with bounds; ``above`` and ``below`` exclude the bound itself."""

    noun = "number"

    def __init__(
        self,
        *,
        above: float | None = None,
        at_least: float | None = None,
        below: float | None = None,
        at_most: float | None = None,
        optional: bool = False,
        help: str = "",
        remedy: str | None = None,
    ) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        bounds = ((">", above), (">=", at_least), ("<", below), ("<=", at_most))
        self._bounds = [(sign, bound) for sign, bound in bounds if bound is not None]

    @property
    def expected(self) -> str:
        """The noun and its bounds."""
        return " ".join([self.noun, " and ".join(f"{sign} {bound}" for sign, bound in self._bounds)]).strip()

    def _within(self, value: float) -> bool:
        return all(_HOLDS[sign](value, bound) for sign, bound in self._bounds)


class Real(_Bounded):
    """A finite real number.

    Parameters
    ----------
    above, at_least, below, at_most : float, optional
        Bounds; ``above`` and ``below`` exclude the bound itself.
    optional, help, remedy
        As for `Constraint`.
    """

    type = "number"
    noun = "a finite number"

    def _check(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, numbers.Real):
            raise self.refuse(name, value)
        number = _float(value)
        if not math.isfinite(number) or not self._within(number):
            raise self.refuse(name, value)
        return number

    def _convert(self, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text


class Integer(_Bounded):
    """A whole number; True and False are none, nor is 3.0.

    Parameters
    ----------
    above, at_least, below, at_most : int, optional
        Bounds; ``above`` and ``below`` exclude the bound itself.
    optional, help, remedy
        As for `Constraint`.
    """

    type = "integer"
    noun = "an integer"

    def _check(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise self.refuse(name, value)
        number = int(value)
        if not self._within(number):
            raise self.refuse(name, value)
        return number

    def _convert(self, text: str) -> Any:
        try:
            return int(text)
        except ValueError:
            return text


class _OrWord(_Bounded):
    """A number with bounds, or a word that stands for one."""

    def __init__(
        self,
        word: str,
        *,
        above: float | None = None,
        at_least: float | None = None,
        below: float | None = None,
        at_most: float | None = None,
        optional: bool = False,
        help: str = "",
        remedy: str | None = None,
    ) -> None:
        super().__init__(
            above=above, at_least=at_least, below=below, at_most=at_most, optional=optional, help=help, remedy=remedy
        )
        self.word = word
        self.type = f"{type(self).type}|{word}"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return f"{super().expected}, or {self.word!r}"

    def _check(self, name: str, value: Any) -> Any:
        return value if isinstance(value, str) and value == self.word else super()._check(name, value)


class RealOrWord(_OrWord, Real):
    """A finite number, or a word that stands for one.

    Parameters
    ----------
    word : str
        The word.
    above, at_least, below, at_most : float, optional
        Bounds of a number, as for `Real`.
    optional, help, remedy
        As for `Constraint`.
    """


class IntegerOrWord(_OrWord, Integer):
    """A whole number, or a word that stands for one.

    Parameters
    ----------
    word : str
        The word.
    above, at_least, below, at_most : int, optional
        Bounds of a number, as for `Integer`.
    optional, help, remedy
        As for `Constraint`.
    """


class Boolean(Constraint):
    """True or False.

    Parameters
    ----------
    optional, help, remedy
        As for `Constraint`.
    """

    type = "flag"

    @property
    def expected(self) -> str:
        """The two values."""
        return "True or False"

    def _check(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise self.refuse(name, value)
        return value

    def _convert(self, text: str) -> Any:
        values = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}
        return values.get(text.lower(), text)


class Choice(Constraint):
    """One of some words.

    Parameters
    ----------
    *choices : str
        The words.
    optional, help, remedy
        As for `Constraint`.
    """

    type = "choice"

    def __init__(self, *choices: str, optional: bool = False, help: str = "", remedy: str | None = None) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        self.choices = choices

    @property
    def expected(self) -> str:
        """The words."""
        quoted = [repr(choice) for choice in self.choices] + (["None"] if self.optional else [])
        return f"one of {', '.join(quoted)}" if len(quoted) > 1 else quoted[0]

    def _advice(self, value: Any) -> str:
        return _nearest(value, self.choices) or super()._advice(value)

    def _check(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise self.refuse(name, value)
        return value


class Bytes(Constraint):
    """An amount of memory: a number of bytes, or text such as ``"16 GiB"``, ``"500MB"``.

    Parameters
    ----------
    optional, help, remedy
        As for `Constraint`.
    """

    type = "size"

    @property
    def expected(self) -> str:
        """The two forms."""
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
        As for `Constraint`; None is always allowed.
    """

    type = "integer"

    def __init__(self, *, help: str = "", remedy: str | None = None) -> None:
        super().__init__(optional=True, help=help, remedy=remedy)

    @property
    def expected(self) -> str:
        """The three forms."""
        return "an integer from 0 to 4294967295, a NumPy Generator or RandomState, or None"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, numbers.Integral) and not isinstance(value, bool) and 0 <= int(value) < 2**32:
            return int(value)
        if type(value).__module__.startswith("numpy.random"):
            return value
        raise self.refuse(name, value)

    def _convert(self, text: str) -> Any:
        return int(text) if text.isdecimal() else text


def finite_array(name: str, array: np.ndarray, ndim: int, expected: str) -> np.ndarray:
    """Convert an array of finite numbers to float64; refuse any other."""
    if array.ndim != ndim or array.dtype.kind not in "iuf":
        raise InputError(
            f"{name} is an array of shape {array.shape} and dtype {shortened(array.dtype)}, it should be {expected}."
        )
    bad = np.argwhere(~np.isfinite(array))
    if len(bad):
        raise InputError(
            f"{name} holds {len(bad)} values that are NaN or infinite, the first in row {bad[0, 0]}; "
            "give finite numbers."
        )
    return array.astype(np.float64)


class RealOrPerRow(Real):
    """A finite number for all rows, or an array with one for each; the command line takes a number or a .npy file.

    Parameters
    ----------
    above, at_least, below, at_most : float, optional
        Bounds of a number for all rows, as for `Real`.
    optional, help, remedy
        As for `Constraint`.
    """

    type = "number|FILE"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return "a finite number, or a one-dimensional array (.npy on the command line) of finite numbers, one per row"

    def _check(self, name: str, value: Any) -> Any:
        if isinstance(value, (numbers.Real, str)):
            return super()._check(name, value)
        return finite_array(name, np.asarray(value.get() if hasattr(value, "get") else value), 1, self.expected)

    def _convert(self, text: str) -> Any:
        if text.endswith(".npy"):
            return read_npy_parameter(text, "a number or a .npy")
        return super()._convert(text)

    def _read(self, file: Beneath) -> Any:
        return read_npy_parameter(file, "a number or a .npy")


class Range(Constraint):
    """Two integers from 1 on, the second not below the first; as text ``5,20``.

    Parameters
    ----------
    optional, help, remedy
        As for `Constraint`.
    """

    type = "low,high"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return "two integers from 1 on, the second not below the first, such as (5, 20), or 5,20 as text"

    def _check(self, name: str, value: Any) -> tuple[int, int]:
        number = Integer(at_least=1)
        try:
            if isinstance(value, str):
                low, high = (number.parse(each, name) for each in value.split(","))
            else:
                low, high = (number.check(name, each) for each in value)
        except (TypeError, ValueError, InputError):
            raise self.refuse(name, value) from None
        if high < low:
            raise self.refuse(name, value)
        return low, high


class RowNumbers(Constraint):
    """Different row numbers, at least one.

    Parameters
    ----------
    optional, help, remedy
        As for `Constraint`.
    """

    type = "integers"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return "a list of different row numbers from 0 on, and not empty"

    def _check(self, name: str, value: Any) -> np.ndarray:
        try:
            rows = np.asarray(value)
        except ValueError:  # lists of several lengths
            raise self.refuse(name, value) from None
        numbers = rows.ndim == 1 and rows.size > 0 and rows.dtype.kind in "iu"
        if not numbers or rows.min() < 0 or np.unique(rows).size != rows.size:
            raise self.refuse(name, value)
        return rows.astype(np.int64)


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
            advice = _nearest(name, constraints) or f"known are {', '.join(constraints)}."
            raise InputError(f"{name}={_shown(value)} is not a parameter; {advice}")
        checked[name] = constraints[name].check(name, value)
    return checked


def _plain(value: Any) -> Any:
    """A NumPy or CuPy scalar (or array without dimensions) as the Python number that it holds."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def _float(value: Any) -> float:
    """The number, or infinity for a whole one that is too large for a float."""
    try:
        return float(value)
    except OverflowError:
        return math.inf


def _shown(value: Any) -> str:
    try:
        text = repr(_plain(value))
    except ValueError:  # Python does not write out integers of thousands of digits
        return "..."
    return text if len(text) <= 80 else text[:77] + "..."


def _nearest(value: Any, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or nothing if nothing is near."""
    if not isinstance(value, str):
        return ""
    near = difflib.get_close_matches(value.strip().lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""
