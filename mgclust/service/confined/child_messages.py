"""Messages of attempts and readers, which are parsed as messages of processes that may be hostile.

The data that such a process reads may have taken it over. Its messages go into the database, the log and the answers of
the web process. So lines are limited in length and number, and values that one of the three cannot hold are replaced or
rejected.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from mgclust.base.errors import InputError, printable
from mgclust.outside.json_text import parse_json

__all__ = [
    "MAX_ERROR_CHARACTERS", "MAX_LINE_BYTES", "MAX_READING_BYTES", "TOO_LARGE",
    "AttemptMessages", "Findings", "check_findings", "first_warnings", "parse_object",
]  # fmt: skip

MAX_LINE_BYTES = 64 << 10  # a genuine line has a few hundred bytes, a line with an error a few thousand
MAX_READING_BYTES = 1 << 20  # limit of a reader's answer; a preview of a hundred thousand clusters exceeds it
MAX_ERROR_CHARACTERS = 4096  # as JSON (up to 12 bytes per character), this fits into a line
MAX_WARNINGS, MAX_WARNING_CHARACTERS = 8, 500  # per result; together at most about as long as an error
MAX_DEPTH = 16  # nesting of dicts and lists
MAX_MESSAGES = 1000  # limit per read of the pipe, without heartbeats; a genuine attempt writes a few per second
MAX_PROGRESS_NAMES = 40  # number of names in a progress event
MAX_TEXT_CHARACTERS = 200  # length of a name or a value in a progress event
TOO_LARGE = "the file is too large to be read here: reading it {}."
HEARTBEAT = b"{}"
FAULTS = ("input", "memory", "cluster", "mgclust")
_FIGURES = ("fraction", "elapsed", "stage_rate", "stage_eta")


class AttemptMessages:
    """Parser of the messages of an attempt, which `mgclust.service.runner.attempt` writes.

    The runner passes the result of one read of the pipe per step. So even a process that writes without end
    causes only this work per step.
    """

    def __init__(self) -> None:
        self._rest = b""  # the beginning of a line; if the process is killed, it is discarded
        self._answered = False

    def parse(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Parse the bytes of one read.

        Yields
        ------
        dict
            One of ``{}`` (a heartbeat), ``{"progress": dict}``,
            ``{"scores": dict, "warnings": list, "facts": dict}`` and
            ``{"error": str, "fault": str, "facts": dict}``. The last two are final, and come at most once.

        Raises
        ------
        InputError
            A message violates the protocol.
        """
        *lines, self._rest = (self._rest + data).split(b"\n")
        if max(map(len, (*lines, self._rest))) >= MAX_LINE_BYTES:
            raise _violation(f"a line of more than {MAX_LINE_BYTES} bytes")
        if len(lines) - lines.count(HEARTBEAT) > MAX_MESSAGES:
            raise _violation(f"more than {MAX_MESSAGES} messages at once")
        for line in lines:
            try:
                value = {} if line == HEARTBEAT else _check(parse_object(line))
            except (ValueError, KeyError):
                raise _violation("an invalid line") from None
            if value and "progress" not in value:
                if self._answered:
                    raise _violation("two answers")
                self._answered = True
            yield value


def parse_object(text: bytes) -> dict[str, Any]:
    """Parse a JSON object; replace numbers and characters that other JSON parsers reject.

    Raises
    ------
    ValueError
        The text is not an object, or is nested deeper than `MAX_DEPTH`.
    """
    hooks = {"parse_constant": lambda name: None, "parse_float": _finite, "parse_int": _integer}
    value = parse_json(text.decode(), MAX_DEPTH, **hooks)
    if not isinstance(value, dict):
        raise ValueError("no JSON object")
    if b"\\u" in text:  # perhaps a lone surrogate, which UTF-8 cannot encode
        value = parse_json(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))
    return value


class Findings(NamedTuple):
    """Scores and warnings of a result."""

    scores: dict[str, Any]
    warnings: list[str]


def check_findings(value: dict[str, Any]) -> Findings:
    """Return the scores and warnings in an answer or a result file; too many or too long warnings are cut.

    Raises
    ------
    ValueError, KeyError
        The scores are missing or too long, or the warnings are not a list of texts.
    """
    scores = value["scores"]
    if not isinstance(scores, dict) or len(json.dumps(scores)) > MAX_LINE_BYTES:
        raise ValueError("no scores")
    warnings = value.get("warnings", [])
    if not isinstance(warnings, list) or not all(isinstance(text, str) for text in warnings):
        raise ValueError("no warnings")
    return Findings(scores, first_warnings(warnings))


def first_warnings(warnings: list[str]) -> list[str]:
    """Return the first warnings, each cut to its limit, with printable characters only."""
    return [printable(text[:MAX_WARNING_CHARACTERS]) for text in warnings[:MAX_WARNINGS]]


def _check(value: dict[str, Any]) -> dict[str, Any]:
    if not value:
        return value
    if "progress" in value:
        return {"progress": _progress(value["progress"])}
    facts = value.get("facts", {})
    if not isinstance(facts, dict):
        raise ValueError("no facts")
    known = {"facts": {"shape": _shape(facts.get("shape")), "peak_bytes": _number(facts.get("peak_bytes"))}}
    if "scores" in value:
        return {**check_findings(value)._asdict(), **known}
    if not isinstance(value["error"], str) or value["fault"] not in FAULTS:
        raise ValueError("no error")
    return {"error": printable(value["error"][:MAX_ERROR_CHARACTERS]), "fault": value["fault"], **known}


def _progress(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict) or not isinstance(event.get("stage"), str | None):
        raise ValueError("no progress")
    for name in _FIGURES:
        _number(event.get(name))
    plain = {
        printable(name): printable(value[:MAX_TEXT_CHARACTERS]) if isinstance(value, str) else value
        for name, value in event.items()
        if len(name) <= MAX_TEXT_CHARACTERS and isinstance(value, bool | int | float | str | None)
    }
    return dict(itertools.islice(plain.items(), MAX_PROGRESS_NAMES))


def _number(value: Any) -> float | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError("no number")
    return value


def _shape(value: Any) -> list[float | None] | None:
    if value is None:
        return None
    if not isinstance(value, list) or len(value) > 4:
        raise ValueError("no shape")
    return [_number(each) for each in value]


def _finite(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def _integer(text: str) -> int | float | None:
    return int(text) if len(text) < 19 else _finite(text)  # 64 bits


def _violation(what: str) -> InputError:
    return InputError(
        f"the attempt's process sent the runner {what}, as if its data had taken control; it was killed with all "
        "processes that it had started."
    )
