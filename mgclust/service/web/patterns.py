"""Patterns of texts in requests, and what a message says if a text does not match."""

from __future__ import annotations

__all__ = ["DIGEST", "ID_START", "ONE_LINE", "POSITION", "PRINTABLE", "SAYS", "SORT", "TAG"]

ONE_LINE = r"^[^\x00-\x1f\x7f-\x9f]*$"  # terminals interpret control characters
PRINTABLE = r"^[^\x00-\x1f\x7f]*$"  # a database may end a text at a control character, or reject it
TAG = r"^[^\s\x00-\x1f\x7f-\x9f#,]{1,32}$"
SORT = "^-?(name|method|state|owner|seconds|score:[A-Za-z0-9_. -]{1,64})$"
ID_START = "^[0-9a-f]{4,32}$"
DIGEST = "^[0-9a-f]{64}$"
POSITION = r"^[0-9]{1,12}(\.[0-9]{1,9})?,[0-9a-f]{32}$"

SAYS = {
    ONE_LINE: "it should be one line, without control characters",
    PRINTABLE: "it should be one line, without control characters",
    TAG: "a tag should have 1 to 32 characters, without spaces, commas and #",
    SORT: "it should be name, method, state, owner, seconds or score:NAME, with - before it for descending order",
    ID_START: "it should be an id, or at least its first 4 digits: 0-9 and a-f",
    DIGEST: "it should be a SHA-256 digest: 64 digits 0-9 and a-f",
    POSITION: "it should be the creation time and the id of a job, with a comma between them",
}
