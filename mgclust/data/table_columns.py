"""Detection of the header and the index of a table. `graphs.edge_roles` finds columns of nodes and weights.

Names take precedence over positions. If a table can be read in two ways, the more likely way is taken, and a warning
names the option that selects the other way.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import numpy as np

from mgclust.outside.quoting import shortened

__all__ = [
    "MISSING",
    "NAMES",
    "NUMBERS",
    "SAMPLE_LINES",
    "TIMES",
    "find_header",
    "holds_times",
    "index_columns",
    "index_content",
    "is_number",
    "is_running",
    "is_text_id",
    "left_out",
    "numbers_rows",
    "with_points",
    "with_row_names",
]

SAMPLE_LINES = 1000
NUMBERS, TIMES, NAMES = "numbers the rows", "holds dates or times", "names the rows"  # kinds of index columns
MISSING = ("", "na", "n/a", "null", "#n/a", "nan", "none")
_READ_AS_NAMES = "the first line ({}) was read as names of columns; header=False (--no-header) reads it as data."
_INTEGER = re.compile(r"[+-]?\d+")
_DECIMAL_COMMA = re.compile(r"[+-]?\d*,\d+(e[+-]?\d+)?", re.IGNORECASE)
_INDEX = re.compile(r"|unnamed: ?[\d.]+|index|level_0|__index_level_\d+__|row\.?names|\.\.\.1", re.IGNORECASE)
_TIME = re.compile(r"\d{4}-\d\d-\d\d([T ].*)?|\d+ days.*|\d{1,2}[/.]\d{1,2}[/.]\d{4}.*|\d{1,2}:\d\d(:\d\d.*)?")
_EPOCHS = ((10**9, 5 * 10**9), (10**12, 5 * 10**12), (19000101, 21001231))  # seconds, milliseconds, 20200131
_ID = re.compile(r"(edge|link|row|record|sample)?_?(id|no|nr)", re.IGNORECASE)


def is_number(text: str, missing: bool = False) -> bool:
    """Return whether a field is a number or, if `missing` is True, a missing value."""
    if missing and text.strip().lower() in MISSING:
        return True
    try:
        float(text)
    except ValueError:
        return False
    return "_" not in text


@np.errstate(invalid="ignore")  # infinite numbers
def find_header(first: Sequence[str], below: Sequence[Sequence[str]], header: bool | None) -> tuple[bool, str]:
    """Decide whether the first line of a table of numbers names its columns.

    Parameters
    ----------
    first : sequence of str
        Fields of the first line.
    below : sequence of sequence of str
        Fields of lines below the first line.
    header : bool or None
        The user's choice. None: decide by the fields.

    Returns
    -------
    is_header : bool
        Whether the first line names the columns.
    doubt : str
        A warning if the line may also be read in the other way, else an empty string.
    """
    if header is not None:
        return header, ""
    if not any(is_number(field) for field in first):
        return any(field.strip().lower() not in MISSING for field in first), ""
    rows = [row for row in below if len(row) == len(first)]
    numeric = [j for j in range(len(first)) if rows and all(is_number(row[j], missing=True) for row in rows)]
    words = [j for j in numeric if not is_number(first[j], missing=True)]
    if words and (words[0] == (first[0].strip() == "") or 2 * len(words) > len(first)):
        return True, _READ_AS_NAMES.format(shortened(", ".join(first), 40))
    # The index column that pandas writes has no name.
    unnamed = first[0].strip() == "" and 0 in numeric and _counts([row[0] for row in rows])
    named = [j for j in numeric if not (j == 0 and unnamed)]
    if not named or not rows or any(not is_number(first[j]) for j in named):
        return False, ""
    columns = [np.array([float(row[j]) for row in rows if is_number(row[j])]) for j in named]
    values = np.array([float(first[j]) for j in named])
    integers = all(_INTEGER.fullmatch(first[j].strip()) for j in named)
    whole = bool((values == np.floor(values)).all())
    fractions = [len(c) and np.mean(c != np.floor(c)) for c in columns]  # NaN and infinity count as fractions
    steps = np.diff(values)
    monotonic = bool(len(values) > 1 and ((steps > 0).all() or (steps < 0).all()))
    running = whole and values[0] in (0, 1) and bool((steps == 1).all())
    outside = all(len(c) and not c.min() <= v <= c.max() for v, c in zip(values, columns, strict=True))
    far = outside and all(max(c.min() - v, v - c.max()) > np.ptp(c) for v, c in zip(values, columns, strict=True))
    even = bool(monotonic and np.ptp(steps) <= 0.01 * abs(steps.mean()))
    if (
        unnamed
        or (running and integers and len(values) >= 4)
        or (running and len(values) > 1 and all(fractions))
        or (integers and outside and len(values) > 1 and min(fractions) >= 0.9)
        or (len(values) >= 3 and monotonic and outside and (even or (whole and all(fractions))))
    ):
        return True, _READ_AS_NAMES.format(shortened(", ".join(first), 40))
    # A line of whole numbers may be 0, 1, ... by chance, but this is rare if hundreds of other lines are possible.
    doubtful = running and len(values) > 1 and np.prod([np.ptp(c) + 1 for c in columns if len(c)]) >= 100
    doubtful |= integers and len(values) == 1 and min(fractions) >= 0.9
    if (
        doubtful
        or (outside and ((monotonic and whole) or even or (integers and min(fractions) >= 0.9)))
        or (far and len(rows) >= 10)
    ):
        return False, (
            f"the first line ({shortened(', '.join(first), 40)}) was read as data, but may name columns; "
            "header=True (--header) reads it as names."
        )
    return False, ""


def _counts(values: Sequence[str]) -> bool:
    """Return whether the fields of a column are 0, 1, ... or 1, 2, ...; one or two fields are enough."""
    return is_running(values) or (0 < len(values) < 3 and [*map(float, values)] in ([0], [1], [0, 1], [1, 2]))


def with_row_names(first: Sequence[str], below: Sequence[Sequence[str]]) -> list[str]:
    """Return the fields of a header. If R left out the field above the names of rows, an empty field is inserted."""
    left_out = len(below) > 1 and all(len(row) == len(first) + 1 for row in below) and not any(map(is_number, first))
    return ["", *first] if left_out else list(first)


def with_points(rows: Sequence[Sequence[str]], delimiter: str) -> tuple[bool, list[list[str]]]:
    """Return whether the numbers of some lines have decimal commas, and their fields with decimal points."""
    fields = [field for row in rows for field in row]
    commas = delimiter != "," and any(map(_DECIMAL_COMMA.fullmatch, fields))
    if not commas or any("." in field and is_number(field) for field in fields):
        return False, [list(row) for row in rows]
    swap = {field: field.replace(",", ".") for field in fields if _DECIMAL_COMMA.fullmatch(field)}
    return True, [[swap.get(field, field) for field in row] for row in rows]


def index_columns(names: Sequence[str]) -> int:
    """Return how many of the first columns are named like an index; at least one column is never counted."""
    count = 0
    while count < len(names) - 1 and _INDEX.fullmatch(str(names[count]).strip().strip('"')):
        count += 1
    return count


def is_running(values: Any) -> bool:
    """Return whether values are 0, 1, ... or 1, 2, ... in any order, like row numbers."""
    if len(values) < 3:
        return False
    try:
        numbers = np.asarray(values, np.float64)
    except (TypeError, ValueError):
        return False
    least = numbers.min()
    if least not in (0, 1) or numbers.max() != least + len(numbers) - 1:
        return False
    return bool((np.sort(numbers) == np.arange(len(numbers)) + least).all())


def numbers_rows(name: str, values: Any) -> bool:
    """Return whether a column holds running numbers, or distinct numbers under a name such as ``id``."""
    if is_running(values):
        return True
    if len(values) < 3 or _ID.fullmatch(str(name).strip().strip('"')) is None:
        return False
    numbers = np.asarray(values)
    if numbers.dtype.kind in "OUST":
        if not all(_INTEGER.fullmatch(str(value)) for value in values):
            return False
    elif numbers.dtype.kind not in "iuf" or not (numbers == np.floor(numbers)).all():
        return False
    return len(np.unique(numbers.astype(str) if numbers.dtype.kind == "O" else numbers)) == len(numbers)


def holds_times(values: Any) -> bool | None:
    """Return whether the fields or numbers of a column are times; None if they are numbers that may be times."""
    values = np.asarray(values)
    if values.dtype.kind in "OUST":
        fields = [str(value).strip() for value in values.tolist() if str(value).strip().lower() not in MISSING]
        if not fields or not all(map(_INTEGER.fullmatch, fields)) or max(map(len, fields)) > 18:
            return bool(fields) and all(map(_TIME.fullmatch, fields))
        values = np.array(fields, np.int64)
    if values.dtype.kind not in "iu" or len(values) < 2:
        return values.dtype.kind in "mM"
    low, high = int(values.min()), int(values.max())
    return None if low < high and any(a <= low and high <= b for a, b in _EPOCHS) else False


def is_text_id(name: str, values: Any) -> bool:
    """Return whether a column is named like an id and holds text or times; for `values`, see `index_content`."""
    if _ID.fullmatch(str(name).strip().strip('"')) is None:
        return False
    values = np.asarray(values)
    numbers = len(values) and all(is_number(str(value), missing=True) for value in values)
    text = values.dtype.kind in "OUST" and not numbers
    return text or values.dtype.kind in "mM"


def index_content(values: Any) -> str:
    """Return the kind of an index for `left_out`, from some of its values or an empty array of their type."""
    values = np.asarray(values)
    whole = values.dtype.kind in "OUST" and len(values) and all(_INTEGER.fullmatch(str(value)) for value in values)
    if whole or is_running(values) or values.dtype.kind in "iu":
        return NUMBERS
    return TIMES if holds_times(values) else NAMES


def left_out(name: str, source: str, what: str) -> str:
    """Return the warning that a column was taken as an index of kind `what`: ``NUMBERS``, ``TIMES`` or ``NAMES``."""
    called = repr(shortened(name, 30)) if name else "without a name"
    return (
        f"the first column of {shortened(source, 60)} ({called}) {what} and is left out as an index; "
        "index=False (--no-index) keeps it."
    )
