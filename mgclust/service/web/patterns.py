"""Patterns of texts in requests, and what a message says if a text does not match."""

from __future__ import annotations

__all__ = ["DIGEST", "ID_START", "NAME", "POSITION", "PRINTABLE", "SAYS", "SORT", "TAG"]

# Terminals interpret control characters, and marks of the writing direction reorder the text around them. The other
# characters separate lines or have no width. U+200C and U+200D are allowed: Persian words and emoji need them.
HIDDEN = r"\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff"
# Characters that show nothing if they are alone. The last of them are written without escapes, because engines of
# regular expressions differ in these escapes.
BLANK = (
    r"\s\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200c\u200d\u2800\u3164\ufe00-\ufe0f\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
NAME = rf"^([^{HIDDEN}]*[^{HIDDEN}{BLANK}][^{HIDDEN}]*)?$"
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"  # a database may end a text at a control character, or reject it
TAG = rf"^[^{HIDDEN}{BLANK}#,][^{HIDDEN}\s#,]{{0,31}}$"
SORT = "^-?(name|method|state|owner|seconds|score:[A-Za-z0-9_. -]{1,64})$"
ID_START = "^[0-9a-f]{4,32}$"
DIGEST = "^[0-9a-f]{64}$"
POSITION = r"^[0-9]{1,12}(\.[0-9]{1,9})?,[0-9a-f]{32}$"

SAYS = {
    NAME: "a name should be one line of visible characters; leave out control characters and marks of the writing "
    "direction",
    PRINTABLE: "it should be one line, without control characters",
    TAG: "a tag should have 1 to 32 visible characters, without spaces, commas and #",
    SORT: "it should be name, method, state, owner, seconds or score:NAME, with - before it for descending order",
    ID_START: "it should be an id, or at least its first 4 digits: 0-9 and a-f",
    DIGEST: "it should be a SHA-256 digest: 64 digits 0-9 and a-f",
    POSITION: "it should be the creation time and the id of a job, with a comma between them",
}
