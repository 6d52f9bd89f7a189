"""Decision records: their numbers, their status, the table of them, and links to them."""

from __future__ import annotations

import re
from pathlib import Path

from support import decisions

ROOT = Path(__file__).parents[2]
LINK = r"\[(?:record )?(?P<number>\d+)\]\((?P<file>[\w.-]+)\)"
STATUS = re.compile(rf"accepted|(?:partly )?superseded by (?:{LINK}|records .* and .*)")


def test_records_are_numbered_and_have_a_status():
    records = decisions.records()
    assert [each.number for each in records] == list(range(1, len(records) + 1))
    assert [each.file[:5] for each in records] == [f"{each.number:04d}-" for each in records]
    names = {str(each.number): each.file for each in records}
    for each in records:
        linked = re.findall(LINK, each.status)
        assert STATUS.fullmatch(each.status) and (linked or each.status == "accepted"), each
        assert all(names.get(number) == file and int(number) > each.number for number, file in linked), each


def test_the_table_is_that_of_the_records():
    """`python tests/support/decisions.py` writes it."""
    page = decisions.PAGE.read_text(encoding="utf-8")
    assert page == decisions.with_table(page)


def test_links_to_records_lead_to_the_record_of_that_number():
    pages = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "deploy").rglob("*.md")]
    for page in (page for page in pages if "_build" not in page.parts):
        text = page.read_text(encoding="utf-8")
        assert "decisions.md" not in text, page
        for number, file in re.findall(r"\[(?:(?:record|decision) )?(\d+)\]\(([^)#]*\d{4}-[^)#]*\.md)\)", text):
            assert Path(file).name.startswith(f"{int(number):04d}-") and (page.parent / file).is_file(), (page, file)
