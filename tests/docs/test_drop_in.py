"""Other projects' tests with our names, and the page that says how many pass."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from support import others_tests

PAGE = Path(__file__).parents[2] / "docs/drop-in.md"


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize("module", others_tests.MODULES)
def test_what_does_not_pass_is_known(module):
    counts = others_tests.judge(module)
    assert counts.total and not {name: error for name, error in counts.failed.items() if not others_tests.reason(name)}
    told = re.search(rf"`{re.escape(module)}` \((.*?)\) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|", PAGE.read_text())
    if told[1] == counts.version:
        found = (counts.total, len(counts.passed), len(counts.other_words), len(counts.failed))
        assert found == tuple(map(int, told.groups()[1:]))


def test_the_page_names_what_does_not_pass():
    assert all(f"`{name}`" in PAGE.read_text() for name in others_tests.KNOWN)
