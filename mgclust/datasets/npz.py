"""Writing of generated data to a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np

from mgclust.base.errors import InputError

__all__ = ["write_npz"]


def write_npz(path: str | os.PathLike[str], **arrays: Any) -> Path:
    """Write named arrays to a file, whose name must end in ``.npz``, and return its path."""
    path = Path(path)
    if path.suffix != ".npz":
        raise InputError(f"path={str(path)!r} should end in .npz.")
    np.savez(path, **arrays)
    return path
