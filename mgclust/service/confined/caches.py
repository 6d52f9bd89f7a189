"""Cache folders of libraries, for the processes that compute and read.

Numba, CuPy, CUDA and matplotlib keep caches in the home folder or next to the code, and execute what they find there.
Jobs must not write to these folders. Each user's jobs keep compiled kernels in a folder of this user, which jobs of
other users can neither read nor write. The home folder of a service account may be read-only, or hidden from the
processes of jobs. The service then uses folders in the data folder instead.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterable

from mgclust.service.settings import Settings

__all__ = ["cache_folders", "set_cache_folders", "use_private_caches"]

VARIABLES = {
    "NUMBA_CACHE_DIR": "numba", "CUPY_CACHE_DIR": "cupy", "CUDA_CACHE_PATH": "cuda", "MPLCONFIGDIR": "matplotlib",
}  # fmt: skip


def set_cache_folders(settings: Settings) -> None:
    """Set cache folders in the environment, which child processes inherit, if the home folder cannot be used.

    Variables that are already set stay unchanged.
    """
    hidden = [os.path.realpath(path) for path in settings.concealed]
    if all(_usable(place, hidden) for place in _home()):
        return
    for variable, name in VARIABLES.items():
        if not os.environ.get(variable):
            folder = settings.data.absolute() / "cache" / name
            with contextlib.suppress(OSError):  # no space: libraries report it
                folder.mkdir(mode=0o700, parents=True, exist_ok=True)
                os.environ[variable] = str(folder)


def cache_folders(hidden: Iterable[str]) -> list[str]:
    """Return the folders of `set_cache_folders` that are inside hidden paths, so that they can be made readable.

    All other folders are either readable already, or must not be readable: a folder that contains a hidden path stays
    hidden.
    """
    concealed = [os.path.realpath(path) + "/" for path in hidden]
    found = []
    for variable, name in VARIABLES.items():
        path = os.path.realpath(os.environ.get(variable) or "/")
        if path.endswith(f"/cache/{name}") and not any(each.startswith(f"{path}/") for each in concealed):
            found.append(path)
    return found


def use_private_caches(folder: str) -> None:
    """Keep compiled kernels of this process and its children in a given folder."""
    import numba

    os.makedirs(folder, mode=0o700, exist_ok=True)
    variables = ("NUMBA_CACHE_DIR", "CUPY_CACHE_DIR", "CUDA_CACHE_PATH")
    os.environ |= {variable: os.path.join(folder, VARIABLES[variable]) for variable in variables}
    numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]  # Numba read the variable when the fork server imported it


def _home() -> list[str]:
    home = os.path.expanduser("~")  # "~" itself if there is no home folder
    return [
        os.environ.get("XDG_CACHE_HOME") or os.path.join(home, ".cache"),
        os.environ.get("XDG_CONFIG_HOME") or os.path.join(home, ".config"),
        home,
    ]


def _usable(place: str, hidden: list[str]) -> bool:
    if not os.path.isabs(place):
        return False
    real = os.path.realpath(place)
    if any(real == path or real.startswith(path.rstrip("/") + "/") for path in hidden):
        return False
    try:
        os.makedirs(real, mode=0o700, exist_ok=True)
        tempfile.TemporaryFile(dir=real).close()
    except OSError:
        return False
    return True
