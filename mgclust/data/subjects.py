"""Subjects of BOLD files, from their BIDS names."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from urllib.parse import unquote, urlparse

__all__ = ["subject_of"]


def subject_of(path: str) -> str | None:
    """Return the subject of a file by its BIDS name, such as ``sub-01``.

    The name of the file is searched first, then its folders, the nearest first.

    Parameters
    ----------
    path : str
        Path or URL.

    Returns
    -------
    str or None
        None if neither the name nor a folder states a subject.

    Examples
    --------
    >>> from mgclust.data.subjects import subject_of
    >>> subject_of("study/sub-01/func/sub-01_task-rest_bold.nii.gz"), subject_of("study/sub-02/rest.nii.gz")
    ('sub-01', 'sub-02')
    """
    parts = PurePosixPath(unquote(urlparse(path).path) if "://" in path else path).parts
    found = (re.search(r"(?:^|_)(sub-[A-Za-z0-9]+)", part) for part in reversed(parts))
    return next((match[1] for match in found if match), None)
