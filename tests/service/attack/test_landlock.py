"""What code that took over a process which reads users' data could still reach."""

from __future__ import annotations

import glob
import json
import os
import secrets
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from mgclust.algorithms.density_peaks.estimator import DensityPeaks
from mgclust.service.confined import caches
from mgclust.service.confined.confine import describe, landlock
from support.confinement import needs_landlock, needs_root, needs_seccomp

# In place of reading data: look for what is none of a job's, and tell what was found.
LOOK = """
import json, os, socket
def look(names):
    found = []
    for number, name in enumerate(names):
        try:
            if name.startswith("kill "):
                os.kill(int(name[5:]), 0)
            elif name.startswith("connect "):
                socket.create_connection(("127.0.0.1", int(name[8:])), 5).close()
            elif name.startswith("write "):
                there = os.path.exists(name[6:])
                open(name[6:], "a").close()
                there or os.remove(name[6:])
            else:
                open(name, "rb").read(1)
            found.append(number)
        except OSError:
            pass
    return found
"""
ATTEMPT = (
    LOOK
    + """
from mgclust.output import file_run
from mgclust.base.errors import InputError
from mgclust.service.runner import attempt
def fit(*_):
    raise InputError(json.dumps(look(json.loads(os.environ["LOOK_FOR"]))))
file_run.fit = fit
attempt.main()
"""
)
# Code in the main thread can have another thread call what it likes: here the one that sends heartbeats.
THREAD = (
    LOOK
    + """
import time
from mgclust.output import file_run
from mgclust.base.errors import InputError
from mgclust.service.runner import attempt
def fit(*_):
    found, send = [], attempt._send
    attempt._send = lambda *_: found.append(look(json.loads(os.environ["LOOK_FOR"])))
    while not found:
        time.sleep(0.05)
    attempt._send = send
    raise InputError(json.dumps(found[0]))
file_run.fit = fit
attempt.main()
"""
)
READER = (
    LOOK
    + """
from mgclust.service.confined import reader_process
reader_process.TASKS["preview"] = lambda order: look(json.loads(os.environ["LOOK_FOR"]))
reader_process.main()
"""
)


@pytest.fixture
def data(tmp_path):
    """A data folder with what is in one, a root beside it, and two jobs."""
    data, root = tmp_path / "data", tmp_path / "root"
    for job in ("own", "other"):
        (data / "jobs" / job / "attempt-1").mkdir(parents=True)
        (data / "jobs" / job / "attempt-1" / "log.txt").write_text("a log")
    (data / "uploads" / "1").mkdir(parents=True)
    root.mkdir()
    x = np.random.default_rng(0).normal(size=(60, 2))
    for path in (data / "uploads" / "1" / "x.npy", root / "x.npy", root / "y.npy"):
        np.save(path, x)
    for name in ("token", "service.db"):
        (data / name).write_text("secret")
    DensityPeaks(n_clusters=2, client=None, device="cpu").fit(x).result_.save(data / "jobs" / "own" / "result")
    return data


def asked(code, order, looked_for):
    environment = os.environ | {"LOOK_FOR": json.dumps(looked_for)}
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        process.stdin.write(json.dumps(order) + "\n")
        process.stdin.flush()
        for line in process.stdout:
            if not {"answer", "error"}.isdisjoint(answer := json.loads(line)):
                process.stdin.close()
                return answer
    raise AssertionError("no answer")


@needs_landlock
@pytest.mark.slow
@pytest.mark.parametrize("code", [ATTEMPT, THREAD], ids=["main thread", "heartbeats"])
def test_an_attempt_reaches_its_own_job_and_no_secret(data, code):
    """Schedulers and servers of data it does reach: it may connect."""
    own, root = data / "jobs" / "own", data.parent / "root"
    order = {
        "folder": str(own / "attempt-1"), "max_rows": 0, "place": {"cpu": True},
        "hidden": [str(data), str(root), "/etc/shadow"],
        "files": {"0": {"root": str(root), "name": "x.npy", "quotable": True}},
        "request": {"method": "density-peaks", "parameters": {}, "report": False, "sources": [{"path": "x.npy"}]},
        "checkpoint": str(own / "checkpoint" / "1"), "checkpoint_seconds": 60.0, "cache": str(data / "cache" / "ann"),
    }  # fmt: skip
    (own / "checkpoint" / "1").mkdir(parents=True)
    (own / "attempt-0").mkdir()
    (data / "cache" / "bob").mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as server:
        allowed = [
            f"connect {server.getsockname()[1]}", str(root / "x.npy"), "/etc/passwd", "write /dev/null",
            f"write {own / 'attempt-1' / 'new'}", f"write {own / 'checkpoint' / '1' / 'new'}",
            f"write {data / 'cache' / 'ann' / 'new'}", f"write /dev/shm/{secrets.token_hex(8)}",
            f"write {own / 'attempt-1' / 'tmp' / 'new'}",
        ]  # fmt: skip
        refused = [
            str(data / "token"), str(data / "service.db"), str(data / "jobs" / "other" / "attempt-1" / "log.txt"),
            str(data / "uploads" / "1" / "x.npy"), str(root / "y.npy"), "/etc/shadow", f"/proc/{os.getpid()}/environ",
            f"write {data / 'new'}", f"write {data / 'jobs' / 'other' / 'new'}", f"/proc/{os.getpid()}/root/etc/shadow",
            # What others follow, load or execute: folders of the job itself, caches, and files of the account.
            f"write {own / 'new'}", f"write {own / 'checkpoint' / 'new'}", f"write {own / 'attempt-0' / 'new'}",
            f"write {data / 'cache' / 'bob' / 'new'}", f"write {data.parent / 'new'}", f"write {Path.home() / 'new'}",
            f"write {Path(caches.__file__).parent / '__pycache__' / 'new'}", "write /tmp/new-of-an-attempt",
            f"write /proc/{os.getpid()}/oom_score_adj",
        ]  # fmt: skip
        if landlock() >= 6:
            refused.append(f"kill {os.getpid()}")
        answer = asked(code, order, allowed + refused)
    assert [(allowed + refused)[number] for number in json.loads(answer["error"])] == allowed


@needs_landlock
@pytest.mark.slow
def test_a_reader_reaches_its_own_job_and_no_network(data):
    own, root = data / "jobs" / "own", data.parent / "root"
    scratch = data / "jobs" / "own.1234"
    scratch.mkdir()
    order = {
        "do": "preview", "result": {"root": str(own), "name": "result"}, "seconds": 30.0, "memory": 1 << 30,
        "hidden": [str(data), str(root), "/etc/shadow"], "writable": [str(scratch)],
        "files": {"0": {"root": str(root), "name": "x.npy", "quotable": True}},
        "request": {"sources": [{"path": "x.npy"}]},
    }  # fmt: skip
    with socket.create_server(("127.0.0.1", 0)) as server:
        allowed = [str(own / "result" / "result.json"), str(root / "x.npy"), "/etc/passwd", f"write {scratch / 'new'}"]
        refused = [
            str(data / "token"), str(data / "service.db"), str(data / "jobs" / "other" / "attempt-1" / "log.txt"),
            str(data / "uploads" / "1" / "x.npy"), str(root / "y.npy"), "/etc/shadow", f"/proc/{os.getpid()}/environ",
            f"write {own / 'result' / 'new'}", f"write {data / 'new'}", f"write {data.parent / 'new'}",
        ]  # fmt: skip
        if landlock() >= 4:
            refused.append(f"connect {server.getsockname()[1]}")
        if landlock() >= 6:
            refused.append(f"kill {os.getpid()}")
        answer = asked(READER, order, allowed + refused)
    assert [(allowed + refused)[number] for number in answer["answer"]] == allowed


def test_the_log_says_what_protects(monkeypatch):
    monkeypatch.setattr("mgclust.service.confined.confine.landlock", lambda: 0)
    monkeypatch.setattr("mgclust.service.confined.confine.is_filtered", lambda: True)
    assert "there is no Landlock" in describe()
    assert describe().endswith("; its system calls are filtered")
    monkeypatch.setattr("mgclust.service.confined.confine.landlock", lambda: 3)
    assert "confined by Landlock 3, which lacks TCP, signals;" in describe()
    monkeypatch.setattr("mgclust.service.confined.confine.landlock", lambda: 7)
    monkeypatch.setattr("mgclust.service.confined.confine.is_filtered", lambda: False)
    assert describe().endswith("confined by Landlock 7; their system calls are not filtered (no seccomp)")


WRITE = """
import sys
from mgclust.service.confined import confine
confine._MPS = sys.argv[1]
confine.confine([])
open(f"{sys.argv[1]}/file", "w").close()
"""


@needs_landlock
@needs_root
@pytest.mark.parametrize(("owner", "given", "written"), [(65534, False, False), (65534, True, True), (0, False, True)])
def test_a_folder_of_mps_that_another_account_has_made(owner, given, written, tmp_path, monkeypatch):
    """In /tmp, any account may be the first to make it."""
    folder = tmp_path / "nvidia-mps"
    folder.mkdir(0o777)
    os.chown(folder, owner, owner)
    folder.chmod(0o777)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(folder) if given else "")
    ran = subprocess.run([sys.executable, "-c", WRITE, str(folder)], capture_output=True, text=True)
    assert (folder / "file").exists() == written, ran.stderr


TRY = """
import glob, json, os, resource, socket, sys, threading
from mgclust.service.confined.confine import confine
confine([], reading_only=sys.argv[1] == "reader")
failed = []
for each in json.loads(sys.argv[2]):
    try:
        eval(each)
    except OSError:
        failed.append(each)
print(json.dumps(failed))
"""


@needs_landlock
@needs_seccomp
@pytest.mark.parametrize("role", ["attempt", "reader"])
def test_other_processes_and_files_of_the_account(role, tmp_path):
    """What the kernel allows to all processes of an account, and Landlock does not restrict."""
    (tmp_path / "file").touch()
    pid, file, affinity = os.getpid(), str(tmp_path / "file"), os.sched_getaffinity(0)
    terminal, of_terminal = os.openpty()
    refused = [
        f"resource.prlimit({pid}, resource.RLIMIT_CORE, (0, 0))",
        f"os.setpriority(os.PRIO_PROCESS, {pid}, {os.getpriority(os.PRIO_PROCESS, 0)})",
        f"os.sched_setscheduler({pid}, os.SCHED_OTHER, os.sched_param(0))",
        f"os.chmod({file!r}, 0o777)", f"os.chown({file!r}, -1, -1)", f"os.utime({file!r})",
        f"os.chmod(os.open({file!r}, os.O_RDONLY), 0o777)", f"os.setxattr({file!r}, 'user.a', b'b')",
        f"os.open({os.ttyname(of_terminal)!r}, os.O_RDONLY | os.O_NOCTTY | os.O_NONBLOCK)",
        "socket.socket(socket.AF_PACKET, socket.SOCK_DGRAM)", "socket.socket(socket.AF_VSOCK)",
    ]  # fmt: skip
    allowed = [
        "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))", "os.nice(1)", "os.sched_setaffinity(0, {0})",
        f"os.sched_setaffinity({pid}, {{{min(affinity)}}})",  # it has no effect
        "socket.socketpair()", "threading.Thread(target=int).start()", "os.open('/dev/urandom', os.O_RDONLY)",
        "os.listdir('/dev')", "os.waitpid(os.fork() or os._exit(0), 0)",
    ]  # fmt: skip
    sockets = ["socket.socket()", "socket.socket(type=socket.SOCK_DGRAM)", "socket.socket().listen()"]
    (refused if role == "reader" else allowed).extend(sockets)
    if role == "reader" or not glob.glob("/dev/nvidia*"):
        refused.append("socket.socket(socket.AF_UNIX)")
    ran = subprocess.run(
        [sys.executable, "-c", TRY, role, json.dumps(allowed + refused)], capture_output=True, text=True
    )
    os.close(terminal), os.close(of_terminal)
    assert json.loads(ran.stdout) == refused, ran.stderr
    assert os.sched_getaffinity(0) == affinity


CUDA = """
import json, subprocess, sys
from mgclust.service.confined import confine
if sys.argv[1] == "without rights":
    confine._drop_capabilities()
confine.confine([], cuda_processes=sys.argv[1] != "one")
code = '''
import json, sys
failed = []
for name in json.loads(sys.argv[1]):
    try:
        open(name, "r+b", buffering=0).close()
    except OSError:
        failed.append(name)
print(json.dumps(failed))
'''
print(subprocess.run([sys.executable, "-c", code, sys.argv[2]], capture_output=True, text=True, check=True).stdout)
"""


@needs_landlock
@pytest.mark.parametrize("gpus", ["one", "several"])
def test_what_cuda_writes_in_proc(gpus):
    """The names of threads, in the processes of a job on several GPUs; nothing of the kernel or of other memory."""
    name, refused = "/proc/self/comm", [f"/proc/{os.getpid()}/mem", "/proc/sys/kernel/core_pattern", "/etc/hostname"]
    ran = subprocess.run(
        [sys.executable, "-c", CUDA, gpus, json.dumps([name, *refused])], capture_output=True, text=True
    )
    assert json.loads(ran.stdout) == ([name, *refused] if gpus == "one" else refused), ran.stderr


@needs_landlock
@needs_root
def test_settings_of_the_kernel_that_cannot_be_closed():
    ran = subprocess.run([sys.executable, "-c", CUDA, "without rights", "[]"], capture_output=True, text=True)
    assert "cannot be made read-only for root; run the service as another account, or give the job one" in ran.stderr


WATCHES = """
import ctypes, errno, os, sys
from mgclust.service.confined.confine import confine
confine([sys.argv[1]], reading_only=sys.argv[2] == "reader")
libc = ctypes.CDLL(None, use_errno=True)
for name, arguments in (("inotify_init1", (0,)), ("inotify_add_watch", (0, sys.argv[1].encode(), 0x100)),
                        ("fanotify_init", (0, 0)), ("fanotify_mark", (0, 1, ctypes.c_uint64(0x100), -100, b"/"))):
    assert getattr(libc, name)(*arguments) == -1, name
    assert ctypes.get_errno() == errno.EPERM, (name, ctypes.get_errno())
"""


@needs_seccomp
@pytest.mark.parametrize("role", ["reader", "attempt"])
def test_nothing_watches_folders(role, tmp_path):
    """A watch needs no right to open a folder, and would tell the names of other users' uploads."""
    (tmp_path / "data").mkdir()
    code = [sys.executable, "-c", WATCHES, str(tmp_path / "data"), role]
    assert subprocess.run(code, capture_output=True, text=True, timeout=60, check=False).stderr == ""
