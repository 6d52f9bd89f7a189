"""What an attempt tells the runner, read as something that a hostile process may have written.

The data that an attempt reads may have taken it over. What it says goes into the database, the log and the answers of
the web process, so that its lines are bounded in length and number, and hold nothing that one of these cannot write.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator
from typing import IO, Any

from mgclust.errors import InputError, printable

__all__ = ["LONGEST_ERROR", "MOST_BYTES", "heard", "parsed", "scores_in"]

MOST_BYTES = 64 << 10  # of a line; an honest one has some hundred, and an error some thousand
LONGEST_ERROR = 4096  # characters; as JSON, which may take 12 bytes for one, still less than a line
DEEPEST = 16  # dicts and lists within each other
LINES = 1000.0  # a second; an honest attempt writes a few
# As many signs of life as fit into a pipe, which a runner finds there that was stopped for hours.
AT_ONCE = (64 << 10) / len("{}\n")
BYTES = 256 << 10  # a second; what is nested costs the runner far more to read than to receive
BYTES_AT_ONCE = 1 << 20
NAMES = 40  # in what is said of the progress
LONGEST_TEXT = 200  # characters of a name or a value there
FAULTS = ("input", "memory", "cluster", "mgclust")
_FIGURES = ("fraction", "elapsed", "stage_rate", "stage_eta")


def heard(pipe: IO[bytes]) -> Iterator[dict[str, Any]]:
    """What an attempt says, as `mgclust.service.attempt` writes it, until the end of the pipe.

    A line without an end is that of a process which was killed, and is left out.

    Yields
    ------
    dict
        ``{}``, ``{"progress": dict}``, ``{"scores": dict, "facts": dict}`` or ``{"error": str, "fault": str,
        "facts": dict}``; one of the last two at most once.

    Raises
    ------
    InputError
        It says what attempts do not say.
    """
    lines, size, before, answered = AT_ONCE, float(BYTES_AT_ONCE), time.monotonic(), False
    while (line := pipe.readline(MOST_BYTES + 1)).endswith(b"\n") or len(line) > MOST_BYTES:
        now = time.monotonic()
        lines = min(AT_ONCE, lines + LINES * (now - before)) - 1
        size = min(BYTES_AT_ONCE, size + BYTES * (now - before)) - len(line)
        before = now
        if len(line) > MOST_BYTES:
            raise _no_attempt(f"a line of more than {MOST_BYTES} bytes")
        if lines < 0:
            raise _no_attempt(f"more than {LINES:g} lines a second")
        if size < 0:
            raise _no_attempt(f"more than {BYTES >> 10} KiB a second")
        try:
            said = _checked(parsed(line))
        except (ValueError, KeyError, RecursionError):
            raise _no_attempt("a line that is none of an attempt's") from None
        if answered and said and "progress" not in said:
            raise _no_attempt("two answers")
        answered = answered or bool(said and "progress" not in said)
        yield said


def parsed(text: bytes) -> dict[str, Any]:
    """Read a JSON object, without numbers and characters that other readers of JSON do not take.

    Raises
    ------
    ValueError, RecursionError
        It is none, or more than `DEEPEST` deep.
    """
    said = json.loads(text.decode(), parse_constant=lambda name: None, parse_float=_finite, parse_int=_integer)
    if not isinstance(said, dict) or _depth(said) > DEEPEST:
        raise ValueError("no JSON object")
    if b"\\u" in text:  # perhaps half a pair of surrogates, which UTF-8 cannot say
        said = json.loads(json.dumps(said, ensure_ascii=False).encode("utf-8", "replace"))
    return said


def scores_in(said: dict[str, Any]) -> dict[str, Any]:
    """The scores in what an attempt said or left.

    Raises
    ------
    ValueError, KeyError
        There are none, or longer ones than an attempt says.
    """
    scores = said["scores"]
    if not isinstance(scores, dict) or len(json.dumps(scores)) > MOST_BYTES:
        raise ValueError("no scores")
    return scores


def _checked(said: dict[str, Any]) -> dict[str, Any]:
    if not said:
        return said
    if "progress" in said:
        return {"progress": _progress(said["progress"])}
    facts = said.get("facts", {})
    if not isinstance(facts, dict):
        raise ValueError("no facts")
    known = {"facts": {"shape": _shape(facts.get("shape")), "peak_bytes": _number(facts.get("peak_bytes"))}}
    if "scores" in said:
        return {"scores": scores_in(said), **known}
    if not isinstance(said["error"], str) or said["fault"] not in FAULTS:
        raise ValueError("no error")
    return {"error": printable(said["error"][:LONGEST_ERROR]), "fault": said["fault"], **known}


def _progress(event: Any) -> dict[str, Any]:
    if not isinstance(event, dict) or not isinstance(event.get("stage"), str | None):
        raise ValueError("no progress")
    for name in _FIGURES:
        _number(event.get(name))
    plain = {
        printable(name): printable(value[:LONGEST_TEXT]) if isinstance(value, str) else value
        for name, value in event.items()
        if len(name) <= LONGEST_TEXT and isinstance(value, bool | int | float | str | None)
    }
    return dict(itertools.islice(plain.items(), NAMES))


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


def _depth(value: Any) -> int:
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return 0 if parts is None else 1 + max(map(_depth, parts), default=0)


def _no_attempt(what: str) -> InputError:
    return InputError(
        f"the attempt's process told the runner {what}, as if its data had taken it over; it was ended with all that "
        "it had started."
    )
