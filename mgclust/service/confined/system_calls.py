"""A filter of the system calls of confined processes (seccomp; Linux on x86-64 and aarch64).

Landlock restricts paths, TCP, signals, and the memory of other processes. With other system calls, a process may act on
other processes and files of its account, whatever their paths:

- limit processes (``prlimit``) and reschedule them;
- change modes, owners, times and attributes of files;
- use keys, message queues and System V memory of processes, and connect to their sockets;
- watch folders that it cannot open, and so learn the names of files in them (inotify, fanotify).

Code that reads or clusters data does not need these calls, so they fail with EPERM. Other calls that give
access to more of the kernel (namespaces, BPF, io_uring, which also circumvents the filter) fail as on a kernel that
lacks them.

The filter is a program for the kernel's BPF machine: a list of instructions (operation, jump if true, jump if false,
constant). A jump is the number of instructions to skip. The input of the filter is the number of the call, the
architecture and six arguments of 64 bits; it cannot follow pointers. Threads, children and the programs that they start
inherit the filter.
"""

from __future__ import annotations

import ctypes
import errno
import functools
import os
import platform
import struct
import sys
from collections.abc import Iterable
from typing import Any

__all__ = ["call", "filter_calls", "is_filtered", "libc"]

# Numbers of the calls on x86-64 and aarch64; -1 if the architecture lacks the call.
_FORBIDDEN = {
    "chmod": (90, -1), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, -1), "lchown": (94, -1), "fchown": (93, 55), "fchownat": (260, 54),
    "utime": (132, -1), "utimes": (235, -1), "futimesat": (261, -1), "utimensat": (280, 88),
    "setxattr": (188, 5), "lsetxattr": (189, 6), "fsetxattr": (190, 7), "setxattrat": (463, 463),
    "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16), "removexattrat": (466, 466),
    "file_setattr": (469, 469),
    "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "shmget": (29, 194), "shmctl": (31, 195), "shmat": (30, 196),
    "semget": (64, 190), "semctl": (66, 191), "semtimedop": (220, 192), "semop": (65, 193),
    "msgget": (68, 186), "msgctl": (71, 187), "msgrcv": (70, 188), "msgsnd": (69, 189),
    "mq_open": (240, 180), "mq_unlink": (241, 181),
    "inotify_init": (253, -1), "inotify_init1": (294, 26), "inotify_add_watch": (254, 27),
    "fanotify_init": (300, 262), "fanotify_mark": (301, 263),
    "ioprio_set": (251, 30), "open_by_handle_at": (304, 265), "unshare": (272, 97), "setns": (308, 268),
}  # fmt: skip
_MISSING = {
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425), "io_uring_enter": (426, 426), "io_uring_register": (427, 427),
    "clone3": (435, 435),  # the filter cannot read its flags; the C library then uses clone
}  # fmt: skip
# Forbidden unless these arguments are 0, by which a process or thread refers to itself.
_OF_ITSELF = {
    "prlimit64": (302, 261, (0,)), "setpriority": (141, 140, (0, 1)), "migrate_pages": (256, 238, (0,)),
    "move_pages": (279, 239, (0,)), "sched_setparam": (142, 118, (0,)), "sched_setscheduler": (144, 119, (0,)),
    "sched_setattr": (314, 274, (0,)),
}  # fmt: skip
# Threads set the affinity of threads that they start by number, e.g. in OpenMP. The call succeeds without an effect.
_AFFINITY = (203, 122)
_CLONE, _SOCKET = (56, 220), (41, 198)
_NEW_NAMESPACES = 0x7E020000  # flags of clone
_FAMILIES = (2, 10, 16)  # sockets of IPv4, IPv6, and netlink, by which the C library lists the machine's addresses
_UNIX = 1
_ARCHITECTURES = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column of the tables, name in the input
_X32 = 0x40000000  # flag of the numbers of another interface of x86-64

_LOAD, _IS, _AT_LEAST, _HAS, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # operations; _LOAD loads a word of the input
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16  # offsets in the input; both architectures are little-endian
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # _FAIL plus the number of the error
_SECCOMP = (317, 277)
_SET_FILTER, _GET_ACTION, _ALL_THREADS = 1, 2, 1

_Instruction = tuple[int, int, int, int]


class _Instructions(ctypes.Structure):
    _fields_ = (("count", ctypes.c_ushort), ("encoded", ctypes.c_char_p))


def filter_calls(*, sockets: bool, unix_sockets: bool) -> None:
    """Filter the system calls of this process and of all processes that it starts, if `is_filtered`.

    Parameters
    ----------
    sockets : bool
        Whether sockets of IPv4, IPv6 and netlink may be created, in addition to connected pairs.
    unix_sockets : bool
        Whether Unix sockets may also be created. Landlock does not restrict their paths.
    """
    if not is_filtered():
        return
    families = () if not sockets else (*_FAMILIES, _UNIX) if unix_sockets else _FAMILIES
    program = _program(*_ARCHITECTURES[platform.machine()], families)
    encoded = b"".join(struct.pack("=HBBI", *each) for each in program)
    given = _Instructions(len(program), encoded)
    if call(_seccomp(), ctypes.c_uint(_SET_FILTER), ctypes.c_uint(_ALL_THREADS), ctypes.byref(given)):
        raise OSError(errno.ESRCH, "a thread has another filter of system calls")


@functools.cache
def is_filtered() -> bool:
    """Return whether system calls can be filtered on this machine."""
    if not sys.platform.startswith("linux") or platform.machine() not in _ARCHITECTURES or sys.maxsize < 1 << 32:
        return False
    try:
        call(_seccomp(), ctypes.c_uint(_GET_ACTION), ctypes.c_uint(0), ctypes.byref(ctypes.c_uint32(_FAIL)))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EPERM):
            return False
        raise
    return True


def _program(column: int, architecture: int, families: Iterable[int]) -> list[_Instruction]:
    """Make the filter: a block per call that ends with a return; the number of the call stays loaded between blocks."""
    program = [
        (_LOAD, 0, 0, _ARCHITECTURE), (_IS, 1, 0, architecture), _failing(errno.EPERM),
        (_LOAD, 0, 0, _NUMBER), (_AT_LEAST, 0, 1, _X32), _failing(errno.EPERM),
    ]  # fmt: skip
    for numbers, code in ((_FORBIDDEN, errno.EPERM), (_MISSING, errno.ENOSYS)):
        for each in numbers.values():
            program += _block(each[column], [_failing(code)])
    program += _block(_AFFINITY[column], _unless_zero((0,), 0))
    for *own, arguments in _OF_ITSELF.values():
        program += _block(own[column], _unless_zero(arguments, errno.EPERM))
    program += _block(
        _CLONE[column], [_argument(0), (_HAS, 0, 1, _NEW_NAMESPACES), _failing(errno.EPERM), (_RETURN, 0, 0, _ALLOW)]
    )
    allowed = [each for family in families for each in ((_IS, 0, 1, family), (_RETURN, 0, 0, _ALLOW))]
    program += _block(_SOCKET[column], [_argument(0), *allowed, _failing(errno.EPERM)])
    return [*program, (_RETURN, 0, 0, _ALLOW)]


def _block(number: int, instructions: list[_Instruction]) -> list[_Instruction]:
    return [(_IS, 0, len(instructions), number), *instructions] if number >= 0 else []


def _unless_zero(arguments: Iterable[int], code: int) -> list[_Instruction]:
    checks = [each for index in arguments for each in (_argument(index), (_IS, 1, 0, 0), _failing(code))]
    return [*checks, (_RETURN, 0, 0, _ALLOW)]


def _argument(index: int) -> _Instruction:
    """Load the lower half of an argument, which holds all bits of an int."""
    return (_LOAD, 0, 0, _ARGUMENTS + 8 * index)


def _failing(code: int) -> _Instruction:
    return (_RETURN, 0, 0, _FAIL | code)


def _seccomp() -> int:
    return _SECCOMP[_ARCHITECTURES[platform.machine()][0]]


def call(number: int, *arguments: Any) -> int:
    """Make a system call.

    Raises
    ------
    OSError
        The call failed.
    """
    answer = libc().syscall(ctypes.c_long(number), *arguments)
    if answer < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return int(answer)


@functools.cache
def libc() -> Any:
    """Return the C library of this process."""
    return ctypes.CDLL(None, use_errno=True)
