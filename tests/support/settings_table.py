"""The table of deploy/SETTINGS.md, from the fields of the settings and their docstring; a script that writes it."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

from mgclust.service.settings import PREFIX, Settings

PAGE = Path(__file__).parents[2] / "deploy" / "SETTINGS.md"
ENTRY = re.compile(r"^    (?P<names>\w+(?:, \w+)*)(?: : \w+)?\n(?P<text>(?:        .*\n)+)", re.MULTILINE)


def meanings() -> dict[str, str]:
    """What the docstring says of each setting, in one line."""
    said = {}
    for entry in ENTRY.finditer(Settings.__doc__ or ""):
        said |= dict.fromkeys(entry["names"].split(", "), " ".join(entry["text"].split()))
    return said


def table() -> str:
    """One row a setting, in the order of the fields."""
    lines, said = ["| variable | default | meaning |", "|---|---|---|"], meanings()
    for field in dataclasses.fields(Settings):
        known = "" if field.default is dataclasses.MISSING else field.default
        shown = f"`{str(known).lower()}`" if known != "" else ""
        lines.append(f"| `{PREFIX}{field.name.upper()}` | {shown} | {said[field.name]} |")
    return "\n".join(lines) + "\n"


def with_table(page: str) -> str:
    """The page with its table replaced."""
    return page[: page.index("| variable ")] + table()


if __name__ == "__main__":
    PAGE.write_text(with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
