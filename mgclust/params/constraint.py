"""A condition on the value of a parameter: its check, its text on the command line, and the refusal."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from typing import Any

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile

__all__ = ["Constraint", "nearest_word", "plain", "shown"]


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
        return self._check(name, plain(value))

    def parse(self, text: str | RootedFile, name: str = "value") -> Any:
        """Convert what was written on the command line, or a file beneath a root, then `check` it.

        Parameters
        ----------
        text : str or RootedFile
            Its text, or the file that holds the value.
        name : str
            Of the parameter, for the message.

        Returns
        -------
        object
            What `check` returns.
        """
        if isinstance(text, RootedFile):
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
        return InputError(f"{name}={shown(value)} should be {self.expected}; {self._advice(value)}")

    def _advice(self, value: Any) -> str:
        leave = " or leave it out" if self.optional else ""
        return f"{self._remedy or 'give such a value' + leave}."

    def _check(self, name: str, value: Any) -> Any:
        raise NotImplementedError

    def _convert(self, text: str) -> Any:
        # What cannot be converted stays text, so that `check` words the refusal.
        return text

    def _read(self, file: RootedFile) -> Any:
        # Where a parameter is not read from files, `check` words the refusal.
        return file.path


def plain(value: Any) -> Any:
    """A NumPy or CuPy scalar (or array without dimensions) as the Python number that it holds."""
    if getattr(value, "ndim", None) == 0 and hasattr(value, "item"):
        return value.item()
    return value


def shown(value: Any) -> str:
    """The value as a sentence shows it: not too long."""
    try:
        text = repr(plain(value))
    except ValueError:  # Python does not write out integers of thousands of digits
        return "..."
    return text if len(text) <= 80 else text[:77] + "..."


def nearest_word(value: Any, known: Iterable[str]) -> str:
    """``did you mean 'x'?``, or nothing if nothing is near."""
    if not isinstance(value, str):
        return ""
    near = difflib.get_close_matches(value.strip().lower(), list(known), n=1, cutoff=0.6)
    return f"did you mean {near[0]!r}?" if near else ""
