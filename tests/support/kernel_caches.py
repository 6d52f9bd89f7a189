"""Compiled kernels of this process's mgclust for others that have a cache folder of their own."""

from __future__ import annotations

import contextlib
import hashlib
import shutil
from pathlib import Path

import mgclust


def give_kernels(folder: Path) -> None:
    """Copy what is compiled already to a folder that a process will have as NUMBA_CACHE_DIR.

    Numba keeps the kernels of a folder of code in a folder whose name has the hash of its path. If another version of
    Numba has other names, it does not find the copies, and compiles.
    """
    for cache in Path(mgclust.__file__).parent.rglob("__pycache__"):
        files = list(cache.glob("*.nb[ci]"))
        own = folder / f"{cache.parent.name}_{hashlib.sha1(str(cache.parent).encode()).hexdigest()}"
        if files and not own.exists():
            own.mkdir(parents=True, mode=0o700)
            for file in files:
                with contextlib.suppress(FileNotFoundError):  # another process has replaced it
                    shutil.copyfile(file, own / file.name)
