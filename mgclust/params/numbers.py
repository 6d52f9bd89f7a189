"""Numbers within bounds, words that may replace a number, and ranges of numbers."""

from __future__ import annotations

import math
import numbers
import operator
from collections import Counter
from collections.abc import Mapping
from typing import Any, TypedDict, Unpack

from mgclust.base.errors import InputError
from mgclust.params.constraint import Constraint, shown

__all__ = ["Integer", "IntegerOf", "IntegerOrWord", "Integers", "Range", "Real", "RealOrWord", "Reals"]

_HOLDS = {">": operator.gt, ">=": operator.ge, "<": operator.lt, "<=": operator.le}


class _Given(TypedDict, total=False):
    """Keyword arguments of `_Bounded`."""

    above: float | None
    at_least: float | None
    below: float | None
    at_most: float | None
    optional: bool
    help: str
    remedy: str | None


class _Bounded(Constraint):
    """A number within bounds; ``above`` and ``below`` exclude the bound itself."""

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
        """Noun of the number, followed by its bounds."""
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
        See `Constraint`.
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

    def _convert(self, name: str, text: str) -> Any:
        try:
            return float(text)
        except ValueError:
            return text


class Integer(_Bounded):
    """A whole number. True, False and 3.0 are not accepted.

    Parameters
    ----------
    above, at_least, below, at_most : int, optional
        Bounds; ``above`` and ``below`` exclude the bound itself.
    optional, help, remedy
        See `Constraint`.
    """

    type = "integer"
    noun = "an integer"

    def _check(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, numbers.Integral):
            raise self.refuse(name, value)
        number = int(value)
        if abs(number) >= 2**63:  # no number of anything is so large, and NumPy and compiled kernels hold 64 bits
            raise InputError(f"{name}={shown(value)} should be an integer of at most 64 bits; give a smaller one.")
        if not self._within(number):
            raise self.refuse(name, value)
        return number

    def _convert(self, name: str, text: str) -> Any:
        try:
            return int(text)
        except ValueError:
            return text


class IntegerOf(Integer):
    """One of a few integers.

    Parameters
    ----------
    *values : int
        The allowed integers, at least two.
    optional, help, remedy
        See `Constraint`.
    """

    def __init__(self, *values: int, optional: bool = False, help: str = "", remedy: str | None = None) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        self._values = values

    @property
    def expected(self) -> str:
        """List of the allowed integers."""
        return f"{', '.join(map(str, self._values[:-1]))} or {self._values[-1]}"

    def _within(self, value: float) -> bool:
        return value in self._values


class _OrWord(_Bounded):
    """A number within bounds, or a word instead of a number."""

    def __init__(self, word: str, **given: Unpack[_Given]) -> None:
        super().__init__(**given)
        self.word = word
        self.type = f"{type(self).type}|{word}"

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        return f"{super().expected}, or {self.word!r}"

    def _check(self, name: str, value: Any) -> Any:
        return value if isinstance(value, str) and value == self.word else super()._check(name, value)


class RealOrWord(_OrWord, Real):
    """A finite number, or a word instead of a number.

    Parameters
    ----------
    word : str
        The accepted word, such as "auto".
    **given
        Arguments of `Real`.
    """


class IntegerOrWord(_OrWord, Integer):
    """A whole number, or a word instead of a number.

    Parameters
    ----------
    word : str
        The accepted word, such as "auto".
    **given
        Arguments of `Integer`.
    """


class Range(Constraint):
    """Two integers >= 1, written as ``5,20`` in text; the second is not smaller than the first.

    Parameters
    ----------
    optional, help, remedy
        See `Constraint`.
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


class _Numbers(Constraint):
    """One number or several different ones, written with commas in text; they become a tuple."""

    _number: _Bounded
    _example: str

    @property
    def expected(self) -> str:
        """See `Constraint`."""
        listed = ", ".join(self._example.split(","))
        return f"{self._number.expected}, or several different ones, such as [{listed}], or {self._example} as text"

    def _check(self, name: str, value: Any) -> tuple[Any, ...]:
        try:
            if isinstance(value, str):
                numbers = [self._number.parse(each, name) for each in value.split(",")]
            elif isinstance(value, (bytes, bytearray, Mapping)):  # their elements may also be integers
                raise self.refuse(name, value)
            else:
                numbers = [
                    self._number.check(name, each) for each in (value if hasattr(value, "__iter__") else [value])
                ]
        except (TypeError, ValueError, InputError):
            raise self.refuse(name, value) from None
        if not numbers:
            raise self.refuse(name, value)
        repeated = [number for number, times in Counter(numbers).items() if times > 1]
        if repeated:
            raise InputError(
                f"{name}={shown(value)} should be different numbers, but {repeated[0]} is repeated; give each number "
                "once."
            )
        return tuple(numbers)


class Integers(_Numbers):
    """One integer or several different ones, written as ``50,100,200`` in text; they become an ascending tuple.

    Parameters
    ----------
    at_least : int
        Smallest value.
    optional, help, remedy
        See `Constraint`.
    """

    type = "integer,..."
    _example = "50,100"

    def __init__(self, *, at_least: int, optional: bool = False, help: str = "", remedy: str | None = None) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        self._number = Integer(at_least=at_least)

    def _check(self, name: str, value: Any) -> tuple[int, ...]:
        return tuple(sorted(super()._check(name, value)))


class Reals(_Numbers):
    """One number or several different ones, written as ``0.5,1,2`` in text; they become a tuple in the given order.

    Parameters
    ----------
    above, at_most : float
        Bounds of all numbers; see `Real`.
    optional, help, remedy
        See `Constraint`.
    """

    type = "number,..."
    _example = "0.5,1"

    def __init__(
        self,
        *,
        above: float,
        at_most: float | None = None,
        optional: bool = False,
        help: str = "",
        remedy: str | None = None,
    ) -> None:
        super().__init__(optional=optional, help=help, remedy=remedy)
        self._number = Real(above=above, at_most=at_most)


def _float(value: Any) -> float:
    """Convert a number to float; a whole number that is too large becomes infinity."""
    try:
        return float(value)
    except OverflowError:
        return math.inf
