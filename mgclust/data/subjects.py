"""Subjects of BOLD files, from their BIDS names."""

from __future__ import annotations

import os
import re
import unicodedata
from pathlib import PurePosixPath
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlparse

if TYPE_CHECKING:
    from mgclust.data.location import Location

__all__ = ["subject_at", "subject_of"]


def subject_of(path: str) -> str | None:
    """Return the subject of a file by its BIDS name, such as ``sub-01``.

    The name of the file is searched first, then its folders, the nearest first. The case of ``sub-`` does not matter,
    and the letters after it may be of any alphabet.

    Parameters
    ----------
    path : str
        Path or URL.

    Returns
    -------
    str or None
        The subject, which begins with ``sub-`` in lower case; None if neither the name nor a folder states a subject.

    Examples
    --------
    >>> from mgclust.data.subjects import subject_of
    >>> subject_of("study/sub-01/func/sub-01_task-rest_bold.nii.gz"), subject_of("study/sub-02/rest.nii.gz")
    ('sub-01', 'sub-02')
    >>> subject_of("SUB-4_bold.nii.gz")
    'sub-4'
    """
    plain = unicodedata.normalize("NFC", unquote(urlparse(path).path) if "://" in path else path)
    found = (re.search(r"(?:^|_)sub-([^\W_]+)", part, re.IGNORECASE) for part in reversed(PurePosixPath(plain).parts))
    return next((f"sub-{match[1]}" for match in found if match), None)


def subject_at(location: Location) -> str | None:
    """Return the subject of a file by its path or, if it is a local link, by the path to which the link leads.

    Parameters
    ----------
    location : Location
        Location of the file. The links of a file below a root are not followed.

    Returns
    -------
    str or None
        See `subject_of`.
    """
    found = subject_of(location.path)
    if found is None and location.beneath is None and location.content is None and not location.remote:
        found = subject_of(os.path.realpath(location.path))
    return found
