"""Uploads of files to the service, which recognizes a file by its content, so that each file is sent only once."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mgclust.base.errors import InputError
from mgclust.data.subjects import subject_of
from mgclust.service.client.connection import CHUNK_BYTES, ServiceConnection, check_id

__all__ = ["Uploads", "with_subject"]

STORE_SECONDS = 3600.0  # time limit of the service's reading of an object
MIN_ASKED_BYTES = 1 << 20  # smaller files are sent without asking whether the service has them


class Uploads(ServiceConnection):
    """Methods of `mgclust.Service` for files."""

    def upload(self, path: str | os.PathLike[str]) -> str:
        """Upload a file.

        If only a folder of a BOLD file states the subject, the name of the upload begins with the subject:
        ``sub-01/bold.nii.gz`` becomes ``sub-01_bold.nii.gz``.

        Parameters
        ----------
        path : path-like
            Path of a file; folders cannot be uploaded.

        Returns
        -------
        str
            Id of the upload.

        Raises
        ------
        InputError
            The path is not a file, or the service rejects it.
        """
        return self._upload(path, [])

    def _upload(self, path: str | os.PathLike[str], made: list[str]) -> str:
        """Upload a file, and append the id of a new upload to `made`."""
        if re.match("[A-Za-z][A-Za-z0-9+.-]+://", given := os.fspath(path)):
            raise InputError(
                f"{given[:200]!r} is a URL, which the service does not read; give a file of this machine, "
                "store:NAME/PATH, or with --remote (Python: remote=True) a file or folder on the service's machine."
            )
        if os.path.isdir(given):
            raise InputError(
                f"{given[:200]!r} is a folder, and only files are uploaded; put the folder (zarr) where the service "
                "may read it, and give its path there with --remote (Python: remote=True)."
            )
        if not os.path.isfile(given):
            raise InputError(f"{given[:200]!r} is not a file; give the path of a file on this machine.")
        path = Path(path)

        def parts() -> Iterator[bytes]:
            with open(path, "rb") as file:
                while part := file.read(CHUNK_BYTES):
                    yield part

        return self._put(with_subject(path), parts, made)

    def _put(self, name: str, parts: Callable[[], Iterator[bytes]], made: list[str]) -> str:
        """Upload the parts of a file, unless the service has a file with this name and content."""
        name, digest, size = _safe_name(name), hashlib.sha256(), 0
        for part in parts():
            digest.update(part)
            size += len(part)
        if size >= MIN_ASKED_BYTES:
            known = []
            with contextlib.suppress(InputError):  # the token may not read
                known = self.call("GET", "/uploads", params={"sha256": digest.hexdigest(), "name": name})
            if known:
                return str(known[0]["id"])
        answer = self.call("PUT", f"/uploads/{name}", parts=parts)
        if answer.get("new"):
            made.append(str(answer["id"]))
        return str(answer["id"])

    def _read_stored(self, path: str, made: list[str]) -> str:
        """Let the service read ``store:NAME/PATH``, and return the id of the upload."""
        name, slash, rest = path.removeprefix("store:").partition("/")
        if not (name and slash and rest):
            raise InputError(f"source={path[:200]!r} should be store:NAME/PATH.")
        answer = self.call("POST", "/uploads", json={"store": name, "path": rest}, timeout=STORE_SECONDS)
        if answer.get("new"):
            made.append(str(answer["id"]))
        return str(answer["id"])

    def uploads(self, limit: int = 50) -> list[dict[str, Any]]:
        """List the latest uploads.

        Parameters
        ----------
        limit : int, default=50
            Largest number of uploads to list.

        Returns
        -------
        list of dict
            The uploads, the latest first. The keys are ``id``, ``owner``, ``name``, ``size`` (bytes), ``sha256`` and
            ``created`` (seconds since 1970).
        """
        return list(self.call("GET", "/uploads", params={"limit": limit}))

    def delete_upload(self, id_: str) -> dict[str, Any]:
        """Delete an upload.

        Parameters
        ----------
        id_ : str
            Id of the upload.

        Returns
        -------
        dict
            The deleted upload, as in `uploads`.

        Raises
        ------
        InputError
            The upload does not exist, or a waiting or running job needs it.
        """
        return dict(self.call("DELETE", f"/uploads/{check_id(id_, 'mgclust uploads')}"))


def with_subject(path: Path) -> str:
    """Return the name of a file; the subject comes first if only a folder or link of a BOLD series states it."""
    if path.name.lower().endswith((".nii", ".nii.gz")) and subject_of(path.name) is None:
        subject = subject_of(os.path.abspath(path)) or subject_of(os.path.realpath(path))
        return path.name if subject is None else f"{subject}_{path.name}"
    return path.name


def _safe_name(name: str) -> str:
    """Return a file name that the service accepts, with the same suffix."""
    safe = re.sub("[^A-Za-z0-9._-]+", "_", name)[-190:]
    return safe if safe[:1].isalnum() else f"data{safe}"
