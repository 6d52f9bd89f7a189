"""Parsing of untrusted JSON with a limit of nesting."""

from __future__ import annotations

import json
from typing import Any

__all__ = ["parse_json"]

MAX_DEPTH = 64  # nested dicts and lists


def parse_json(text: str | bytes, depth: int = MAX_DEPTH, **hooks: Any) -> Any:
    """Parse JSON.

    Parameters
    ----------
    text : str or bytes
        Text to parse.
    depth : int
        Maximum depth of nested dicts and lists, far below the recursion limit of Python.
    **hooks : callable
        Further arguments of `json.loads`.

    Raises
    ------
    ValueError
        The text is not valid JSON, or is nested too deeply.
    """
    too_deep = ValueError(f"it should have at most {depth} levels of nested lists and objects")
    try:
        value = json.loads(text, **hooks)  # noqa: TID251
    except RecursionError:
        raise too_deep from None
    level = [value]
    for _ in range(depth + 1):
        lists = [each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list)]
        if not lists:
            return value
        level = [each for those in lists for each in those]
    raise too_deep
