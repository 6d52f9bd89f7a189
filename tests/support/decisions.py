"""The table of docs/design/decisions/index.md, from the records beside it; a script that writes it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

FOLDER = Path(__file__).parents[2] / "docs" / "design" / "decisions"
PAGE = FOLDER / "index.md"
BEGIN = re.compile(r"# (?P<number>\d+)\. (?P<title>\S.*)\n\nStatus: (?P<status>\S.*)\n\n")


class Record(NamedTuple):
    """How a record begins."""

    file: str
    number: int
    title: str
    status: str


def records() -> list[Record]:
    """All records, in the order of their numbers."""
    found = []
    for path in sorted(FOLDER.glob("*.md")):
        if path != PAGE:
            begin = BEGIN.match(path.read_text(encoding="utf-8"))
            assert begin, f"{path.name} begins with '# N. Title' and 'Status: ...'"
            found.append(Record(path.name, int(begin["number"]), begin["title"], begin["status"]))
    return found


def with_table(page: str) -> str:
    """The page with its table replaced."""
    rows = [f"| {each.number} | [{each.title}]({each.file}) | {each.status} |\n" for each in records()]
    return page[: page.index("| number ")] + "| number | decision | status |\n|---|---|---|\n" + "".join(rows)


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
