"""Limits of the memory that a file takes, checked by its size and header before the memory is allocated."""

from __future__ import annotations

import contextlib

from mgclust.base.errors import InputError, InsufficientMemoryError

__all__ = ["LONGEST_LINE", "check_holds", "check_inflated", "check_memory"]

# Largest compression ratio of Deflate.
_MAX_DEFLATED = 1032
_MIN_INFLATED, _UNKNOWN_SIZE = 2**26, 2**30  # bytes
LONGEST_LINE = 2**28  # bytes, enough for 30 million neighbours of a node


def check_holds(name: str, wanted: int, stored: int, deflated: bool = False) -> None:
    """Reject a file that is too small for the size that its header states.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    wanted : int
        Size according to the header, in bytes, including the header.
    stored : int
        Actual size of the file in bytes.
    deflated : bool
        Whether the file is compressed (zip, gzip).

    Raises
    ------
    InputError
        The file is too small, even if it is compressed as much as Deflate can.
    """
    if wanted > stored * (_MAX_DEFLATED if deflated else 1):
        raise InputError(
            f"{name} is truncated: its header says {wanted:,} bytes, but it has {stored:,}; copy or write it again."
        )


def check_inflated(name: str, there: int, stored: int | None) -> None:
    """Reject a compressed file with a higher compression ratio than Deflate can reach.

    Files of other formats, which can reach higher ratios, are also rejected.

    Parameters
    ----------
    name : str
        Name of the file, for messages.
    there : int
        Number of bytes that were decompressed so far.
    stored : int or None
        Size of the compressed file in bytes, if it is known.

    Raises
    ------
    InputError
        The file grows too much.
    """
    if there > max(_MIN_INFLATED, (stored or _UNKNOWN_SIZE) * _MAX_DEFLATED):
        raise InputError(f"{name} grows to more than {_MAX_DEFLATED:,} times its size; decompress it first.")


def check_memory(name: str, needed: int, remedy: str = "give fewer rows, or use a machine with more memory") -> None:
    """Reject content that must be read as a whole, but does not fit into the memory that this process may still take.

    Parameters
    ----------
    name : str
        Name of the content, for messages.
    needed : int
        Memory that it needs, in bytes.
    remedy : str
        End of the message.

    Raises
    ------
    InsufficientMemoryError
        Less memory is free.
    """
    there = _free()
    if needed > there:
        raise InsufficientMemoryError(
            f"{name} needs {needed / 2**30:,.1f} GiB of memory, but {there / 2**30:,.1f} GiB are free; {remedy}."
        )


def _free() -> int:
    """Return the bytes that this process may still take: the free memory, or less if the process has a limit."""
    import psutil

    there = int(psutil.virtual_memory().available)
    with contextlib.suppress(ImportError):  # systems other than Unix have no such limits
        import resource

        used = psutil.Process().memory_info()
        for limit, taken in ((resource.RLIMIT_DATA, getattr(used, "data", 0)), (resource.RLIMIT_AS, used.vms)):
            most = resource.getrlimit(limit)[0]
            if most != resource.RLIM_INFINITY:
                there = min(there, max(0, most - taken))
    return there
