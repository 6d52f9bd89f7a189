"""Confinement of processes that read users' data, in case the data takes them over.

Parsers of many formats read the data. Before that, a process gives up all rights that reading does not need:

- all paths except the listed ones (Landlock, Linux 5.13);
- signals and abstract sockets to other processes, and their memory and environment in ``/proc`` (scopes of Landlock,
  Linux 6.12);
- system calls that act on other processes and files of the account (`mgclust.service.confined.system_calls`);
- capabilities of root beyond its own files, privileges of programs that it starts, and core dumps.

Its children inherit the confinement.

Hidden paths are the data folder, the roots, files of secrets, and devices such as disks and terminals. Everything else
on the machine can still be read and executed, because an attempt needs drivers, libraries and shared folders that no
list could name in advance.

Landlock needs a list of the paths that are reachable. So the siblings of the hidden paths are listed, at every level on
the way to them. An entry that is created later directly in one of these parent folders is not reachable.

A process may write to the job's own folders, devices of GPUs and networks, shared memory and the pipes of CUDA MPS.
Jobs on several GPUs may also write to files of the account's processes in ``/proc``. The environment has only the
variables of a list (`environment`).

Limits. The process has the user of the service, so without Landlock it may read all files that this user may read. With
a kernel before 6.12, it may send signals to the service. An attempt may use the network for schedulers and data and, if
there are GPUs, Unix sockets for CUDA and NCCL. Threads of libraries that run already keep access to their paths, but
they run no parser. A second mount of a hidden folder elsewhere is not hidden. A vulnerability of the kernel circumvents
all this.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import functools
import glob
import os
import resource
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from mgclust.base.errors import RunFailed
from mgclust.outside.rooted_files import protection
from mgclust.service.confined.system_calls import call, filter_calls, is_filtered, libc

__all__ = ["become_subreaper", "confine", "describe", "environment", "exit_with_parent", "landlock"]

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # system calls
_EXECUTE_RIGHT = 1 << 0
_LIST_RIGHT = 1 << 3
_READ_RIGHTS = 1 << 2 | _LIST_RIGHT  # files, folders
_WRITE_RIGHTS = 1 << 1 | 1 << 14  # write files; truncate files
_FILE_RIGHTS = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # execute, write, read, truncate, ioctl
_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version of Landlock
_NETWORK = 1 << 0 | 1 << 1  # TCP: bind, connect; from version 4 on
_SCOPES = 1 << 0 | 1 << 1  # abstract sockets, signals; from version 6 on
_NO_NEW_PRIVS, _DUMPABLE, _DEATH, _ADOPT = 38, 4, 1, 36  # prctl
# Capabilities of root that are kept: own files whatever their mode, signals to children, pinned memory, priorities.
# CAP_PERFMON, for example, is not kept: it would allow reading the environment of processes that Landlock protects.
_CAPABILITIES = sum(1 << bit for bit in (1, 2, 3, 5, 14, 23))
_CAPABILITY_VERSION = 0x20080522
_NEW_MOUNTS = 0x20000  # flag of unshare
_MS_RDONLY, _MS_REMOUNT, _MS_BIND, _MS_REC, _MS_SLAVE = 1, 32, 1 << 12, 1 << 14, 1 << 19  # flags of mount
_MAX_BESIDE = 100_000  # largest number of entries in folders on the way to hidden paths
_DEVICES, _PROCESSES = "/dev", "/proc"
_NULL_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
_GPUS = ("/dev/nvidia*", "/dev/dxg")
# Attempts may also write to these paths outside their folders: null devices, shared memory, semaphores, GPUs and
# InfiniBand.
_WRITABLE = (*_NULL_DEVICES, "/dev/shm", *_GPUS, "/dev/gdrdrv", "/dev/infiniband")
_MPS = "/tmp/nvidia-mps"  # default folder of the pipes of CUDA MPS
# Names and prefixes of variables that confined processes inherit. All other variables may hold secrets, such as
# PGPASSWORD, AWS_SECRET_ACCESS_KEY or a proxy's URL: no list could name these in advance.
_VARIABLES = {
    "PATH", "HOME", "USER", "LOGNAME", "LANG", "LANGUAGE", "TZ", "TZDIR", "TERM", "TMPDIR", "VIRTUAL_ENV",
    "CONDA_PREFIX", "SSL_CERT_FILE", "SSL_CERT_DIR", "GLIBC_TUNABLES", "MATPLOTLIBRC", "MGCLUST_DEBUG",
}  # fmt: skip
_PREFIXES = (
    "LC_", "LD_", "DYLD_", "PYTHON", "XDG_", "MPL", "NUMBA_", "OMP_", "GOMP_", "KMP_", "OPENBLAS_", "MKL_", "BLIS_",
    "MALLOC_", "CUDA_", "NVIDIA_", "CUPY_", "NCCL_", "UCX_", "DASK_CONFIG", "DASK_DISTRIBUTED_", "MGCLUST_TLS_",
)  # fmt: skip


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _Capabilities(ctypes.Structure):
    _fields_ = (("effective", ctypes.c_uint32), ("permitted", ctypes.c_uint32), ("inheritable", ctypes.c_uint32))


class _Rule(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("number", ctypes.c_int32))


def confine(
    hidden: Iterable[str | Path],
    readable: Iterable[str | Path | int] = (),
    writable: Iterable[str | Path | int] = (),
    *,
    reading_only: bool = False,
    cuda_processes: bool = False,
) -> None:
    """Confine this thread and all threads and processes that it starts.

    Parameters
    ----------
    hidden : iterable of path
        Paths to hide. They need not exist.
    readable : iterable of path or int
        Exceptions to `hidden` that may be read. Use a file descriptor for a path that could be replaced.
    writable : iterable of path or int
        Exceptions to `hidden` that may be read and written: existing folders.
    reading_only : bool
        Whether to forbid devices, programs and sockets.
    cuda_processes : bool
        Whether to allow CUDA also in the processes that this process starts. CUDA writes the names of its threads to
        the folder of its process in ``/proc``, which no rule can name before the process exists. So the folders of all
        processes can be written, as far as the kernel allows the account to do so.

    Raises
    ------
    OSError
        The kernel has Landlock and rejects the rules. Without Landlock, there is no error: the paths stay reachable.
    RunFailed
        `cuda_processes` was requested for root, whose processes could write settings of the kernel in ``/proc``, and
        the settings cannot be made read-only.
    """
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if not sys.platform.startswith("linux"):
        return
    if cuda_processes and landlock() and not os.geteuid():
        _close_settings()
    _prctl(_NO_NEW_PRIVS, 1)
    _drop_capabilities()
    filter_calls(sockets=not reading_only, unix_sockets=any(map(glob.glob, _GPUS)))
    version = landlock()
    if not version:
        return
    rights = max(bits for since, bits in _RIGHTS.items() if since <= version)
    network = _NETWORK if reading_only and version >= 4 else 0
    ruleset = _Ruleset(rights, network, _SCOPES if version >= 6 else 0)
    size = ctypes.sizeof(ruleset) if version >= 6 else 16 if version >= 4 else 8
    number = call(_CREATE, ctypes.byref(ruleset), ctypes.c_size_t(size), ctypes.c_uint32(0))
    try:
        for path in _reachable("/", {_DEVICES, *(os.path.realpath(path) for path in hidden)}):
            _allow(number, path, _READ_RIGHTS if reading_only else _READ_RIGHTS | _EXECUTE_RIGHT)
        _allow(number, _DEVICES, _LIST_RIGHT)
        for path in _NULL_DEVICES:
            _allow(number, path, _READ_RIGHTS)
        for each in readable:
            _allow(number, each, _READ_RIGHTS)
        for each in writable:
            _allow(number, each, rights)
        if not reading_only:
            found = (path for each in _WRITABLE for path in glob.glob(each))
            for path in (f"/proc/{os.getpid()}", *found, *_mps_folder()):
                _allow(number, path, rights)
        if cuda_processes:
            _allow(number, _PROCESSES, _READ_RIGHTS | _WRITE_RIGHTS & rights)
        call(_RESTRICT, ctypes.c_int(number), ctypes.c_uint32(0))
    finally:
        os.close(number)


def environment() -> dict[str, str]:
    """Return the environment of confined processes and fork servers: only variables that cannot hold secrets."""
    return {name: value for name, value in os.environ.items() if name in _VARIABLES or name.startswith(_PREFIXES)}


def exit_with_parent(parent: int, *, hide: bool = True) -> None:
    """Tell the kernel to kill this process when its parent ends; `hide` hides its memory from the user's processes."""
    if sys.platform.startswith("linux"):
        _prctl(_DEATH, 9)
        if hide:
            _prctl(_DUMPABLE, 0)
    if os.getppid() != parent:
        os._exit(1)


def become_subreaper() -> None:
    """Become the parent of descendants whose own parent ends (Linux)."""
    _prctl(_ADOPT, 1)


@functools.cache
def landlock() -> int:
    """Return the version of the kernel's Landlock; 0 if there is none."""
    if not sys.platform.startswith("linux"):
        return 0
    try:
        return call(_CREATE, ctypes.c_void_p(), ctypes.c_size_t(0), ctypes.c_uint32(1))
    except OSError as error:
        if error.errno in (errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM):
            return 0
        raise


def describe() -> str:
    """Describe the protection on this machine and its gaps, for the log of the service."""
    version, how = landlock(), protection()
    calls = "system calls are filtered" if is_filtered() else "system calls are not filtered (no seccomp)"
    if not version:
        return (
            f"files are opened below their roots by {how}; there is no Landlock (Linux 5.13), so a process that a "
            f"user's data takes over could read the data folder; its {calls}"
        )
    missing = {4: "TCP", 6: "signals"}
    lacks = ", ".join(what for since, what in missing.items() if version < since)
    return (
        f"files are opened below their roots by {how}; processes that read data are confined by Landlock {version}"
        + (f", which lacks {lacks}" if lacks else "")
        + f"; their {calls}"
    )


def _reachable(folder: str, hidden: set[str], left: list[int] | None = None) -> Iterator[str]:
    """Yield the largest subtrees that contain no hidden path."""
    left = left or [_MAX_BESIDE]
    if folder in hidden:
        return
    prefix = folder.rstrip("/") + "/"
    if not any(path.startswith(prefix) for path in hidden):
        yield folder
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            left[0] -= 1
            if left[0] > 0 and not entry.is_symlink():  # the target of a link is listed at its own place
                yield from _reachable(prefix + entry.name, hidden, left)


def _allow(ruleset: int, path: str | Path | int, rights: int) -> None:
    try:
        number = os.dup(path) if isinstance(path, int) else os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # it has vanished, or is not reachable anyway
    try:
        folder = stat.S_ISDIR(os.fstat(number).st_mode)
        rule = _Rule(rights if folder else rights & _FILE_RIGHTS, number)
        call(_ADD, ctypes.c_int(ruleset), ctypes.c_int(1), ctypes.byref(rule), ctypes.c_uint32(0))
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.EBADF, errno.EBADFD):  # this type of file has no rules
            raise
    finally:
        os.close(number)


def _close_settings() -> None:
    """Make ``/proc`` read-only in this process's view of the file system, except for the folders of processes."""
    paths = [entry.path for entry in os.scandir(_PROCESSES) if not entry.name.isdigit() and not entry.is_symlink()]
    if not libc().unshare(_NEW_MOUNTS) and not libc().mount(None, b"/", None, _MS_REC | _MS_SLAVE, None):
        for name in map(os.fsencode, paths):
            if not libc().mount(name, name, None, _MS_BIND | _MS_REC, None):
                libc().mount(None, name, None, _MS_BIND | _MS_REMOUNT | _MS_RDONLY, None)
    for path in paths:  # without the rights to do so, e.g. in a container, check that they are read-only
        if os.access(path, os.W_OK) and not os.statvfs(path).f_flag & os.ST_RDONLY:
            raise RunFailed(
                f"a job on several GPUs writes to /proc, where {path} cannot be made read-only for root; run the "
                "service as another account, or give the job one GPU."
            )


def _mps_folder() -> list[str]:
    """Return the folder of CUDA MPS: the folder that is set, else the default unless another account created it."""
    if given := os.environ.get("CUDA_MPS_PIPE_DIRECTORY"):
        return [given]
    with contextlib.suppress(OSError):
        if os.lstat(_MPS).st_uid in (0, os.geteuid()):
            return [_MPS]
    return []


def _drop_capabilities() -> None:
    header = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0)  # 0: this thread
    sets = (_Capabilities * 2)()
    if libc().capget(header, sets):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for word, each in enumerate(sets):
        kept = _CAPABILITIES >> 32 * word & 0xFFFFFFFF
        each.effective, each.permitted, each.inheritable = each.effective & kept, each.permitted & kept, 0
    if libc().capset(header, sets):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def _prctl(what: int, value: int) -> None:
    if libc().prctl(ctypes.c_int(what), *(ctypes.c_ulong(v) for v in (value, 0, 0, 0))):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
