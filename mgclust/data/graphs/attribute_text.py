"""Attributes in braces at the end of a line, as networkx writes them: ``0 1 {'weight': 2.0}`` becomes ``0 1 2.0``."""

from __future__ import annotations

import re
from collections.abc import Sequence

__all__ = ["has_attributes", "numbers_among", "plain_lines"]

# The pattern is anchored at the beginning of a line, so that a search takes time linear in the length of the line.
_ATTRIBUTES = re.compile(rb"(?:(?<=[\n\r])|\A)([^{\n\r]*)\{([^\n\r]*)\}[ \t]*(?=\r|\n|\Z)")
_VALUE = rb"""["']: ?(?:np\.\w+\()?([-+.\w]+)"""
_WEIGHT = re.compile(rb"""(?:^|, )["']weight""" + _VALUE)
_NUMBER = re.compile(rb"""(?:^|, )["'](\w+)""" + _VALUE.replace(rb"\w+])", rb"\d][-+.\de]*)"))


def has_attributes(lines: Sequence[str]) -> bool:
    """Return whether the first of some lines ends with attributes."""
    return bool(lines) and lines[0].endswith("}") and "{" in lines[0]


def plain_lines(text: bytes, weighted: bool) -> bytes:
    """Return lines without their attributes, but with their weights.

    Parameters
    ----------
    text : bytes
        Whole lines.
    weighted : bool
        Whether to keep weights; a line without a weight then gets weight 1. If False, a line that has a weight is
        returned unchanged.
    """

    def plain(found: re.Match[bytes]) -> bytes:
        weight = _WEIGHT.search(found[2])
        if weighted:
            return found[1] + (weight[1] if weight else b"1")
        if weight:
            return found[0]
        fields = found[1].rstrip(b" \t")
        return fields[:-1].rstrip(b" \t") if fields.endswith((b",", b";", b"|")) else fields

    return _ATTRIBUTES.sub(plain, text)


def numbers_among(lines: Sequence[str]) -> tuple[list[str], int]:
    """Return the sorted names of numeric attributes, and the number of lines that have a weight."""
    contents = [found[2] for line in lines if (found := _ATTRIBUTES.search(line.encode()))]
    names = {name.decode() for content in contents for name, _ in _NUMBER.findall(content)}
    return sorted(names), sum(bool(_WEIGHT.search(content)) for content in contents)
