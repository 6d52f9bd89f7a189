"""Conditions on values of parameters: the check, the conversion from text, and the error for invalid values."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile

__all__ = ["Constraint", "nearest_word", "plain", "shown"]


class Constraint:
    """Condition on the value of a parameter.

    Parameters
    ----------
    optional : bool
        Whether None is allowed. On the command line it is written ``none``.
    help : str
        One sentence for ``--help``.
    remedy : str, optional
        End of the message for an invalid value. The default is to give an allowed value or, if None is allowed, to
        leave the parameter out.

    Attributes
    ----------
    type : str
        Kind of the value, as shown by the command line: "number", "integer", "choice", "flag", ...
    choices : tuple of str
        Allowed values of a `Choice`; empty for all other conditions.
    """

    type = "value"
    choices: tuple[str, ...] = ()

    def __init__(self, *, optional: bool = False, help: str = "", remedy: str | None = None) -> None:
        self.optional = optional
        self.help = help
        self._remedy = remedy

    @property
    def expected(self) -> str:
        """Description of the allowed values, which follows "should be" in messages."""
        return f"a {self.type}"

    def check(self, name: str, value: Any) -> Any:
        """Return the value in its plain Python type.

        Parameters
        ----------
        name : str
            Name of the parameter, for the message.
        value : object
            The value from the user. NumPy scalars are accepted like Python numbers.

        Raises
        ------
        InputError
            The value is not allowed. The message states the value, the condition and the remedy.
        """
        if value is None:
            if self.optional:
                return None
            raise self.refuse(name, value)
        return self._check(name, plain(value))

    def parse(self, text: str | RootedFile, name: str = "value") -> Any:
        """Convert text of the command line, or the content of a file under a root folder, then `check` the value.

        Parameters
        ----------
        text : str or RootedFile
            Text of the value, or the file with the value.
        name : str
            Name of the parameter, for the message.

        Returns
        -------
        object
            Return value of `check`.
        """
        if isinstance(text, RootedFile):
            return self.check(name, self._read(name, text))
        if self.optional and text.strip().lower() == "none":
            return None
        return self.check(name, self._convert(name, text.strip()))

    def refuse(self, name: str, value: Any) -> InputError:
        """Make the error for a value that is not allowed.

        Parameters
        ----------
        name : str
            Name of the parameter.
        value : object
            The invalid value.

        Returns
        -------
        InputError
            Error that the caller raises.
        """
        return InputError(f"{name}={shown(value)} should be {self.expected}; {self._advice(value)}")

    def _advice(self, value: Any) -> str:
        leave = " or leave it out" if self.optional else ""
        return f"{self._remedy or 'give an allowed value' + leave}."

    def _check(self, name: str, value: Any) -> Any:
        raise NotImplementedError

    def _convert(self, name: str, text: str) -> Any:
        # Text that cannot be converted stays text, so that `check` makes the error.
        return text

    def _read(self, name: str, file: RootedFile) -> Any:
        # By default, a parameter cannot be read from a file, and `check` makes the error for the path.
        return file.path


def plain(value: Any) -> Any:
    """Convert a scalar or 0-dimensional array of NumPy or CuPy to a Python number; return other values unchanged."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def shown(value: Any) -> str:
    """Return the value as text for a message, shortened to 80 characters."""
    try:
        text = repr(plain(value))
    except ValueError:  # Python does not write out integers of thousands of digits
        return "..."
    return text if len(text) <= 80 else text[:77] + "..."


def nearest_word(value: Any, known: Iterable[str]) -> str:
    """Return ``did you mean 'x'?`` with the most similar known word, or "" if none is similar."""
    if not isinstance(value, str):
        return ""
    near = difflib.get_close_matches(value.strip().lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""
