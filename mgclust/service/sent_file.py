"""A file of a result as an answer; apart from `results`, which the runner imports without web packages."""

from __future__ import annotations

import mimetypes

from fastapi.responses import FileResponse

from mgclust.beneath import Beneath
from mgclust.errors import InputError

__all__ = ["SentFile"]


class SentFile(FileResponse):
    """A response with a file of a result, or a range of it, sent from an open descriptor.

    Parameters
    ----------
    result : Beneath
    name : str
        Path of the file in the result.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """

    def __init__(self, result: Beneath, name: str) -> None:
        self._file = result.inside(name)  # keeps the descriptor until the response is sent
        try:
            if not name.strip("/") or name.startswith("/") or self._file.is_directory():
                raise FileNotFoundError(name)
            status = self._file.status()
        except (OSError, InputError):
            raise FileNotFoundError(name) from None
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        super().__init__(f"/dev/fd/{self._file.descriptor()}", media_type=kind, stat_result=status)
