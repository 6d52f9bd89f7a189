"""Faults of prose that a pattern finds with few false alarms: their counts may only fall."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("docs", "docs/design", "docs/methods", "docs/service", "deploy")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *(page for each in FOLDERS for page in (ROOT / each).glob("*.md")),
]
# Patterns of a sentence.
RULES = {
    "begins with Of": r"^(\*\*.*?\*\* )?Of (?!course\b)",
    "begins with What": r"^What(ever)?\b(?!.*\?)",
    "is no NOUN": r"(?<!there )(?<!There )\b(is|are) no (?!longer|more|less|better|worse|larger|smaller)\w+",
    "each other one": r"\beach other one\b",
    "in place of": r"\bin place of\b",
    "by hand": r"\bby hand\b",
    "longer than 40 words": r"^(\S+\s+){40,}",
}
# They may only fall: the change that lowers a count lowers its limit.
LIMITS = {
    "begins with Of": 0,
    "begins with What": 0,
    "is no NOUN": 0,
    "each other one": 0,
    "in place of": 0,
    "by hand": 0,
    "longer than 40 words": 0,
    "paragraph over 120 words": 0,
    "dangling Of in a docstring": 2,
}
MAX_WORDS = 120  # of a paragraph
# Description of a parameter that begins with a preposition that hangs in the air.
DANGLING = re.compile(r"^ {8,12}(?:Of|As of) (?!course)", re.M)


def paragraphs(text):
    text = re.sub(r"^(```|~~~).*?^\1", "", text, flags=re.M | re.S)
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d+\.) )", text):
        # Tables, headings, pictures and diagrams are not sentences.
        lines = [line for line in block.split("\n") if not re.match(r" {4}|\s*(\||#|!\[|\{)", line)]
        block = " ".join(lines)
        if block.strip():
            yield re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(block.split()))


def sentences(text):
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`*\"(])", text)


def counts():
    found = dict.fromkeys([*RULES, "paragraph over 120 words"], 0)
    for page in PAGES:
        for paragraph in paragraphs(page.read_text("utf-8")):
            found["paragraph over 120 words"] += len(paragraph.split()) > MAX_WORDS
            for name, pattern in RULES.items():
                found[name] += sum(bool(re.search(pattern, each)) for each in sentences(paragraph))
    modules = (ROOT / "mgclust").rglob("*.py")
    found["dangling Of in a docstring"] = sum(len(DANGLING.findall(each.read_text("utf-8"))) for each in modules)
    return found


def test_faults_of_prose_become_fewer():
    found = counts()
    assert not {name: (count, LIMITS[name]) for name, count in found.items() if count > LIMITS[name]}
