"""Readers that are stopped, results that hold FIFOs, sources that became unreadable, and jobs of very many files."""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import numpy as np
import psutil
import pytest

from mgclust.algorithms.density_peaks.estimator import DensityPeaks
from mgclust.base.errors import InputError
from mgclust.outside.rooted_files import RootedFile
from mgclust.results.result import load_result
from mgclust.service.confined import fork_server
from mgclust.service.confined.reader_pool import Busy, LimitExceeded, Readers
from mgclust.service.settings import Settings
from mgclust.service.web import errors
from support.service_process import Running, command_line, has_ended
from support.waiting import wait_for

SECONDS = 60.0  # within which a request is answered, on a busy machine
# Readers that may not read any source, or meet a mistake of mgclust itself.
FAULTY_READER = """
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined import fork_server
from mgclust.service.confined import reader_process
real = FAIL
def fail(given, *others):
    if NAME in str(given):
        raise FAULT
    return real(given, *others)
FAIL = fail
fork_server.run_child(reader_process.main)
"""
# One that is stopped, before or after it reads its order.
STOPPED_READER = """
import os, signal
from mgclust.service.confined import fork_server
from mgclust.service.confined import reader_process
def stop(*given):
    os.kill(os.getpid(), signal.SIGSTOP)
reader_process.WHERE = stop
fork_server.run_child(reader_process.main)
"""


@pytest.fixture
def order(tmp_path):
    """The order for the points of a result whose one source is points.npy."""
    rows = np.random.default_rng(0).normal(size=(60, 2))
    np.save(tmp_path / "points.npy", rows)
    DensityPeaks(2, client=None, device="cpu").fit(rows).result_.save(tmp_path / "result")
    return {
        "do": "points", "result": RootedFile(str(tmp_path), "result").order(), "refused": None,
        "files": {"0": RootedFile(str(tmp_path), "points.npy").order()},
        "request": {"method": "density-peaks", "parameters": {}, "sources": [{"upload": "x"}]},
    }  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def one_reader():
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("mgclust.service.confined.reader_pool.READERS", 1)
        yield


@contextlib.contextmanager
def opened(folder):
    pool = Readers(Settings(data=folder / "data", reader_seconds=SECONDS))
    yield pool
    pool.close()


@pytest.fixture
def readers(tmp_path):
    with opened(tmp_path) as pool:
        yield pool


@pytest.fixture(scope="module")
def lasting_readers(tmp_path_factory):
    """One pool for the tests after which its reader is as it was."""
    with opened(tmp_path_factory.mktemp("readers")) as pool:
        yield pool


def start_instead(monkeypatch, code, log=None):
    popen = psutil.Popen
    monkeypatch.setattr(
        fork_server.psutil,
        "Popen",
        lambda command, **options: popen([sys.executable, "-c", code, *command[4:]], **({"stderr": log} | options)),
    )


def saved(readers, order, folder):
    """Save other centres, as the service does."""
    (folder / "saved").mkdir()
    given = {"do": "save", "centers": {"n_clusters": 3}, "folder": str(folder / "saved")}
    return readers.serve(order | given, dict, writable=[folder / "saved"])


@pytest.mark.slow
def test_a_source_that_may_not_be_read(readers, order, monkeypatch, tmp_path):
    np.savetxt(tmp_path / "points.csv", np.load(tmp_path / "points.npy"), delimiter=",")
    order["files"]["0"]["name"] = "points.csv"
    code = FAULTY_READER.replace("FAULT", "PermissionError(13, 'Permission denied')")
    start_instead(monkeypatch, code.replace("FAIL", "RootedFile.status").replace("NAME", "'points.csv'"))
    told = readers.serve(order, dict)
    assert told["index"] == [] and told["why"] == "the source cannot be read: Permission denied."
    with pytest.raises(InputError, match=r"points\.csv cannot be read \(permission denied\)"):
        saved(readers, order, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("where", "fault", "code", "says"),
    [
        ("_open_source", "OSError(5, 'Input/output error')", 400, "the source cannot be read: Input/output error."),
        ("save", "OSError(28, 'No space left on device')", 507, "there is no space left where the service keeps"),
    ],
)
def test_a_choice_that_cannot_be_saved(readers, order, monkeypatch, tmp_path, where, fault, code, says):
    code_of_reader = FAULTY_READER.replace("FAULT", fault).replace("FAIL", f"reader_process.{where}")
    start_instead(monkeypatch, code_of_reader.replace("NAME", "''"))
    with pytest.raises((InputError, OSError)) as told:
        saved(readers, order, tmp_path)
    answer = errors.answer(told.value)
    assert answer.status_code == code and json.loads(answer.body)["error"].startswith(says)


@pytest.mark.slow
def test_an_internal_error_is_not_hidden_by_a_log_in_a_file(readers, order, monkeypatch, tmp_path):
    """The process of an order that only reads may write no byte to a file."""
    code = FAULTY_READER.replace("FAULT", "ZeroDivisionError('seven')")
    with open(tmp_path / "log.txt", "wb") as log:
        start_instead(monkeypatch, code.replace("FAIL", "reader_process.TASKS['points']").replace("NAME", "''"), log)
        with pytest.raises(RuntimeError, match=r"Traceback .* in fail.*ZeroDivisionError: seven"):
            readers.serve(order, dict)


@pytest.mark.parametrize("name", ["result.json", "labels.npy", "rho.npy", "memberships.npz", "memberships.zarr"])
@pytest.mark.parametrize("what", ["a FIFO", "a link"])
def test_a_result_that_holds_no_file(lasting_readers, order, tmp_path, name, what):
    result = tmp_path / "result"
    if name.startswith("memberships"):
        content = json.loads((result / "result.json").read_text())
        content["arrays"]["memberships"] = {"file": name, "shape": [60, 2], "dtype": "float64"}
        (result / "result.json").write_text(json.dumps(content))
    else:
        (result / name).rename(tmp_path / name)
    os.mkfifo(result / name) if what == "a FIFO" else (result / name).symlink_to(tmp_path / name)
    before = time.monotonic()
    with pytest.raises(InputError, match=rf"result/{name}.* is {what}") as told:
        lasting_readers.serve(order, dict)
    assert time.monotonic() - before < SECONDS and not isinstance(told.value, LimitExceeded)
    assert str(tmp_path) not in str(told.value)


def test_a_result_beneath_a_root_is_the_same(order, tmp_path):
    found, same = load_result(RootedFile(**order["result"])), load_result(tmp_path / "result")
    assert json.dumps(found.to_dict()["scores"]) == json.dumps(same.to_dict()["scores"])
    assert set(found.arrays) == set(same.arrays)
    np.testing.assert_array_equal(found.labels, same.labels)
    assert isinstance(found.labels, np.memmap)


def many(order, folder, count):
    """The order of a job of `count` runs of a volume."""
    nibabel = pytest.importorskip("nibabel")
    volume = np.random.default_rng(0).normal(size=(4, 4, 4, 2)).astype("f4")
    nibabel.save(nibabel.Nifti1Image(volume, np.eye(4)), folder / "x.nii")
    index = folder / "result" / "result.json"
    content = json.loads(index.read_text())
    content["source"]["shape"] = [64, 2 * count]
    index.write_text(json.dumps(content))
    files = {str(k): RootedFile(str(folder), "x.nii").order() for k in range(count)}
    return order | {"files": files, "request": order["request"] | {"sources": [{"upload": "x"}] * count}}


def test_a_job_of_many_files(lasting_readers, order, tmp_path):
    rows = np.random.default_rng(0).normal(size=(64, 2))
    (tmp_path / "result").rename(tmp_path / "other")
    DensityPeaks(2, client=None, device="cpu").fit(rows).result_.save(tmp_path / "result")
    told = lasting_readers.serve(many(order, tmp_path, 1000), dict)
    assert len(told["index"]) == 64, told


@pytest.mark.slow
def test_a_limit_of_open_files_is_named(readers, order, monkeypatch, tmp_path):
    popen = psutil.Popen
    monkeypatch.setattr(
        fork_server.psutil,
        "Popen",
        lambda *given, **options: popen(
            *given, **options, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        ),
    )
    with pytest.raises(LimitExceeded, match=r"the job has 300 files, but a process may open 192; .* `ulimit -n`"):
        readers.serve(many(order, tmp_path, 300), dict)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "length"), [("exit_with_parent", 1 << 20), ("_open_source", 10)])
def test_a_reader_that_is_stopped_is_ended(readers, order, length, where, monkeypatch):
    """Whether its order fits into a pipe or not."""
    start_instead(monkeypatch, STOPPED_READER.replace("WHERE", where))
    children = []
    monkeypatch.setattr(readers._server, "start", starting(readers._server, children))
    before = time.monotonic()
    with pytest.raises(LimitExceeded, match=r"took more than the 0\.5 s that a request may take"):
        readers.serve(order | {"text": "x" * length, "seconds": 0.5}, dict)
    assert time.monotonic() - before < SECONDS
    (child,) = children
    wait_for(lambda: not psutil.pid_exists(child.pid))


def starting(server, children):
    """Its `start`, which also notes what it has started."""
    real = server.start

    def start():
        children.append(real())
        return children[-1]

    return start


@pytest.mark.slow
def test_a_fork_server_that_is_stopped_is_replaced(readers, order):
    assert len(readers.serve(order, dict)["index"]) == 60
    before = readers._server.pid
    os.kill(before, signal.SIGSTOP)
    wait_for(lambda: not readers._server.is_alive())
    assert len(readers.serve(order, dict)["index"]) == 60  # by a reader that loads for itself
    assert readers._server.pid != before and not psutil.pid_exists(before)
    assert len(readers.serve(order, dict)["index"]) == 60


@pytest.mark.slow
def test_readers_end_with_their_fork_server(readers, order, monkeypatch):
    """And it ends with the web process: no reader is left."""
    start_instead(monkeypatch, STOPPED_READER.replace("WHERE", "_open_source"))
    children = []
    monkeypatch.setattr(readers._server, "start", starting(readers._server, children))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(readers.serve, order, dict)
        wait_for(lambda: children and psutil.Process(children[0].pid).status() == psutil.STATUS_STOPPED)
        os.kill(readers._server.pid, signal.SIGKILL)
        with pytest.raises(LimitExceeded, match="ended without an answer"):
            asked.result(SECONDS)
    assert not psutil.pid_exists(children[0].pid)


@pytest.mark.slow
@pytest.mark.parametrize(("where", "length"), [("exit_with_parent", 10), ("_open_source", 1 << 20)])
def test_a_service_that_ends_does_not_wait_for_one(readers, order, length, where, monkeypatch):
    start_instead(monkeypatch, STOPPED_READER.replace("WHERE", where))
    children = []
    monkeypatch.setattr(readers._server, "start", starting(readers._server, children))
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(readers.serve, order | {"text": "x" * length, "seconds": 1e6}, dict)
        wait_for(lambda: children)
        readers.close()
        with pytest.raises((Busy, LimitExceeded)):
            asked.result(SECONDS)
    wait_for(lambda: not psutil.pid_exists(children[0].pid))


def test_a_service_that_ends_while_a_request_waits_for_the_fork_server(readers, order, monkeypatch):
    monkeypatch.setattr(readers._server, "is_alive", lambda: True)  # as it was when the request looked
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(readers.serve, order, dict)
        wait_for(lambda: readers._server.pid)
        readers.close()
        with pytest.raises(Busy):
            asked.result(SECONDS)
    before = readers._server.pid
    with pytest.raises(Busy):
        readers.serve(order, dict)
    assert readers._server.pid == before  # none was begun again


@pytest.mark.slow
def test_sigterm_ends_a_web_process_whose_readers_are_stopped(tmp_path):
    module = "support.stopped_reader"
    running = Running(
        tmp_path,
        settings={"reader_seconds": 600},
        constants={"confined.reader_pool.READERS": 1, "confined.reader_pool.MODULE": module},
        environment={"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    try:
        np.save(running.root / "x.npy", np.random.default_rng(0).normal(size=(60, 2)))
        job = running.client().submit("density-peaks", running.root / "x.npy", remote=True, report=False).wait()
        headers = {"Authorization": f"Bearer {(running.data / 'token').read_text().strip()}"}
        url = f"{running.url}/api/v1/jobs/{job.id}/points"
        with ThreadPoolExecutor(1) as pool:
            asked = pool.submit(httpx.get, url, headers=headers, timeout=120)
            readers = []
            wait_for(lambda: readers.extend(stopped(running.web.pid, module)) or readers or asked.done())
            assert readers, asked.result().text
            running.web.send_signal(signal.SIGTERM)
            running.web.wait(90)
            assert asked.result().status_code == 503 and "send the request again" in asked.result().json()["error"]
        wait_for(lambda: all(map(has_ended, readers)))
    finally:
        running.stop()


def stopped(pid, module):
    """The readers of a web process that are stopped, with their fork server; none as long as no reader is stopped."""
    found = [each for each in psutil.Process(pid).children(recursive=True) if module in command_line(each)]
    return found if any(each.status() == psutil.STATUS_STOPPED for each in found) else []
