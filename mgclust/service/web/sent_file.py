"""A file of a result as an answer; not in `results`, because the runner imports `results` without web packages."""

from __future__ import annotations

import mimetypes

from fastapi.responses import FileResponse
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope, Send

from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile

__all__ = ["SentFile"]


class SentFile(FileResponse):
    """A response with a file of a result, or a range of it, sent from an open descriptor.

    Parameters
    ----------
    result : RootedFile
    name : str
        Path of the file in the result.

    Raises
    ------
    FileNotFoundError
        There is no such file.
    """

    def __init__(self, result: RootedFile, name: str) -> None:
        self._file = result.inside(name)  # keeps the descriptor until the response is sent
        try:
            if not name.strip("/") or name.startswith("/") or self._file.is_directory():
                raise FileNotFoundError(name)
            status = self._file.status()
        except (OSError, InputError):
            raise FileNotFoundError(name) from None
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        self._size = status.st_size
        super().__init__(f"/dev/fd/{self._file.descriptor()}", media_type=kind, stat_result=status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file; raise an error if a requested range does not exist."""

        async def send_checked(message: Message) -> None:
            if message.get("status") in (400, 416):
                sentence = f"Range should be bytes=FIRST-LAST with FIRST <= LAST < {self._size}, the size of the file"
                raise HTTPException(416, sentence, {"Content-Range": f"bytes */{self._size}"})
            await send(message)

        await super().__call__(scope, receive, send_checked)
