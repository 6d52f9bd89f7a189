"""Bounds of what a file may grow to in memory, decided by its size and its header before memory is taken for it."""

from __future__ import annotations

import contextlib

from mgclust.base.errors import InputError, InsufficientMemoryError

__all__ = ["LONGEST_LINE", "check_holds", "check_inflated", "check_memory"]

# Deflate cannot make less of its input than this share.
_MAX_DEFLATED = 1032
_MIN_INFLATED, _UNKNOWN_SIZE = 2**26, 2**30  # bytes
LONGEST_LINE = 2**28  # bytes; 30 million neighbours of one node


def check_holds(name: str, wanted: int, stored: int, deflated: bool = False) -> None:
    """Refuse a file that cannot hold what its header says.

    Parameters
    ----------
    name : str
        Of the file, for messages.
    wanted : int
        Bytes that the header says, itself among them.
    stored : int
        Bytes that are there.
    deflated : bool
        Whether those are compressed (zip, gzip).

    Raises
    ------
    InputError
        They are fewer than Deflate could make of the wanted ones.
    """
    if wanted > stored * (_MAX_DEFLATED if deflated else 1):
        raise InputError(
            f"{name} is truncated: its header says {wanted:,} bytes, {stored:,} are there; copy or write it again."
        )


def check_inflated(name: str, there: int, stored: int | None) -> None:
    """Refuse a compressed file that grows beyond what Deflate could make of it; other formats have no such bound.

    Parameters
    ----------
    name : str
        The file's, for messages.
    there : int
        Bytes that came out of it.
    stored : int or None
        Bytes of the file, where they are known.

    Raises
    ------
    InputError
    """
    if there > max(_MIN_INFLATED, (stored or _UNKNOWN_SIZE) * _MAX_DEFLATED):
        raise InputError(f"{name} grows to more than {_MAX_DEFLATED:,} times its size; decompress it first.")


def check_memory(name: str, needed: int, remedy: str = "give fewer rows, or a machine with more") -> None:
    """Refuse what can only be read as a whole and does not fit into the memory that is free, or left to the process.

    Parameters
    ----------
    name : str
        Of what is read.
    needed : int
        Bytes.
    remedy : str
        Ends the sentence.

    Raises
    ------
    InsufficientMemoryError
    """
    there = _free()
    if needed > there:
        raise InsufficientMemoryError(
            f"{name} needs {needed / 2**30:,.1f} GiB of memory, {there / 2**30:,.1f} GiB are free; {remedy}."
        )


def _free() -> int:
    """Bytes that this process may still take: the machine's, and within its own limits."""
    import psutil

    there = int(psutil.virtual_memory().available)
    with contextlib.suppress(ImportError):  # not where there are no such limits
        import resource

        used = psutil.Process().memory_info()
        for limit, taken in ((resource.RLIMIT_DATA, getattr(used, "data", 0)), (resource.RLIMIT_AS, used.vms)):
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                there = min(there, max(0, most - taken))
    return there
