"""All files of a result as one ZIP file, made while it is sent: no copy is stored."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterator, Sequence

from fastapi.responses import StreamingResponse

from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.results import list_files

__all__ = ["send_archive", "zipped"]

CHUNK_BYTES = 1 << 20


class _Written(io.RawIOBase):
    """The bytes that were written since the last `taken`."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def writable(self) -> bool:
        return True

    def write(self, data: bytes) -> int:  # type: ignore[override]
        self._parts.append(bytes(data))
        return len(data)

    def taken(self) -> bytes:
        found, self._parts = b"".join(self._parts), []
        return found


def zipped(result: RootedFile, names: Sequence[str], folder: str) -> Iterator[bytes]:
    """Yield the parts of a ZIP file that contains files of a result, without compressing them.

    Parameters
    ----------
    result : RootedFile
        The result directory.
    names : sequence of str
        Paths of the files in the result.
    folder : str
        Folder of the files in the archive.
    """
    out = _Written()
    with zipfile.ZipFile(out, "w") as archive:
        for name in names:
            entry = zipfile.ZipInfo(f"{folder}/{name}")
            entry.external_attr = 0o600 << 16
            with result.open_inside(name) as file, archive.open(entry, "w", force_zip64=True) as target:
                while part := file.read(CHUNK_BYTES):
                    target.write(part)
                    yield out.taken()
    yield out.taken()


def send_archive(result: RootedFile, name: str) -> StreamingResponse:
    """Return an answer that sends all files of a result as a ZIP file. The folder in it has the same name."""
    content = zipped(result, [each["name"] for each in list_files(result)], name)
    headers = {"Content-Disposition": f'attachment; filename="{name}.zip"'}
    return StreamingResponse(content, media_type="application/octet-stream", headers=headers)
