"""A file below a root that is swapped for a link, or has a second name: nothing outside of the root comes back."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import pickle
import secrets
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from starlette.testclient import TestClient

from mgclust import DensityPeaks, open_graph
from mgclust.base.errors import InputError, MgclustError
from mgclust.data import open_dataset
from mgclust.outside.rooted_files import RootedFile
from mgclust.service.confined.folders import remove, size_of
from mgclust.service.confined.results import read_findings
from mgclust.service.queue import access
from mgclust.service.queue.models import Job, open_database, writing
from mgclust.service.runner import attempt
from mgclust.service.settings import Settings
from mgclust.service.web.app import create_app

pytestmark = pytest.mark.xdist_group("service")

ROUNDS = 2_000


@pytest.fixture(params=["openat2", "by parts"])
def way(request, monkeypatch):
    """Both ways to open a file beneath a root."""
    if request.param == "by parts":
        monkeypatch.setattr("mgclust.outside.rooted_files._has_openat2", lambda: False)


class Swapping:
    """Something in turn itself and a link, as fast as it goes."""

    def __init__(self, path, target):
        self._path, self._target = path, target
        self._own = path.with_name(f"{path.name}.own")
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._swap)

    def __enter__(self):
        self._thread.start()

    def __exit__(self, *_):
        self._stop.set()
        self._thread.join()

    def _swap(self):
        own, link, path = self._own, self._path.with_name(f"{self._path.name}.link"), self._path
        while not self._stop.is_set():
            os.symlink(self._target, link)
            os.rename(path, own)
            os.rename(link, path)
            time.sleep(0.0002)  # the other thread has its turn
            os.unlink(path)
            os.rename(own, path)
            time.sleep(0.0002)


def read_while_swapped(root, name, swapping):
    """What is read of a file that comes and goes, until both have been seen: the file and a refusal."""
    found, refused, end = set(), 0, time.monotonic() + 60
    with swapping:
        for count in itertools.count():
            if (count >= ROUNDS and found and refused) or time.monotonic() > end:
                break
            try:
                with RootedFile(str(root), name).open() as file:
                    found.add(file.read())
            except InputError as error:
                assert "links are not followed" in str(error)
                refused += 1
            except FileNotFoundError:
                pass
    assert refused
    return found


@pytest.mark.slow
def test_a_swapped_file_gives_itself_or_a_refusal(way, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "root" / "x.txt"
    path.write_text("good")
    assert read_while_swapped(tmp_path / "root", "x.txt", Swapping(path, tmp_path / "secret")) == {b"good"}


@pytest.mark.slow
def test_a_swapped_folder_gives_itself_or_a_refusal(way, tmp_path):
    for folder, content in (("root/a", "good"), ("outside", "secret")):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "x.txt").write_text(content)
    swapping = Swapping(tmp_path / "root" / "a", tmp_path / "outside")
    assert read_while_swapped(tmp_path / "root", "a/x.txt", swapping) == {b"good"}


@pytest.mark.parametrize("name", ["link.npy", "folder/x.npy", "../outside/x.npy", "folder/../../outside/x.npy"])
def test_no_link_and_no_way_up(way, tmp_path, name):
    (tmp_path / "root").mkdir()
    (tmp_path / "outside").mkdir()
    np.save(tmp_path / "outside" / "x.npy", np.zeros((3, 2)))
    (tmp_path / "root" / "link.npy").symlink_to(tmp_path / "outside" / "x.npy")
    (tmp_path / "root" / "folder").symlink_to(tmp_path / "outside")
    with pytest.raises(InputError, match=r"links are not followed|without '\.\.'"):
        open_dataset(RootedFile(str(tmp_path / "root"), name))


def test_what_was_opened_stays_what_is_read(way, tmp_path):
    """A file that is replaced by another one is read to its end; one that is written to is refused."""
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    np.save(tmp_path / "y.npy", np.ones((5, 2), np.float32))
    dataset = open_dataset(RootedFile(str(tmp_path), "x.npy"))
    os.replace(tmp_path / "y.npy", tmp_path / "x.npy")
    assert not dataset.read(0, 5).any()
    np.save(tmp_path / "y.npy", np.zeros((5, 2), np.float32))
    dataset = open_dataset(RootedFile(str(tmp_path), "y.npy"))
    with open(tmp_path / "y.npy", "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="changed since it was opened"):
        dataset.read(0, 5)


@pytest.mark.slow
def test_another_process_sees_that_the_file_is_another_one(tmp_path):
    import pickle

    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    np.save(tmp_path / "y.npy", np.ones((5, 2), np.float32))
    sent = pickle.dumps(open_dataset(RootedFile(str(tmp_path), "x.npy")))
    assert not pickle.loads(sent).read(0, 5).any()
    os.replace(tmp_path / "y.npy", tmp_path / "x.npy")
    with pytest.raises(InputError, match="changed since it was opened"):
        pickle.loads(sent).read(0, 5)


def test_a_second_name_of_an_own_file(way, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    os.link(tmp_path / "x.npy", tmp_path / "y.npy")
    with pytest.raises(InputError, match="2 names"):
        open_dataset(RootedFile(str(tmp_path), "y.npy"))
    (tmp_path / "x.npy").unlink()
    assert open_dataset(RootedFile(str(tmp_path), "y.npy")).shape == (5, 2)


@pytest.mark.slow
def test_a_zarr_store_with_links(way, tmp_path):
    zarr = pytest.importorskip("zarr")
    root = tmp_path / "root"
    for folder in (root / "x.zarr", tmp_path / "outside.zarr"):
        zarr.save(str(folder), np.arange(40, dtype=np.float32).reshape(10, 4))
    dataset = open_dataset(RootedFile(str(root), "x.zarr"))
    assert dataset.read(0, 10).sum() == 780
    assert dataset.fingerprint() == open_dataset(str(root / "x.zarr")).fingerprint()
    (chunk,) = (path for path in (root / "x.zarr").rglob("*") if path.is_file() and path.suffix != ".json")
    outside = tmp_path / "outside.zarr" / chunk.relative_to(root / "x.zarr")
    chunk.unlink()
    chunk.symlink_to(outside)
    with pytest.raises(InputError, match="links are not followed"):
        open_dataset(RootedFile(str(root), "x.zarr")).read(0, 10)
    shutil.rmtree(root / "x.zarr" / "c")
    (root / "x.zarr" / "c").symlink_to(tmp_path / "outside.zarr" / "c")
    with pytest.raises(InputError, match="links are not followed"):
        open_dataset(RootedFile(str(root), "x.zarr")).read(0, 10)


def test_graphs_beneath_a_root(way, tmp_path):
    (tmp_path / "x.txt").write_text("0 1\n1 2\n")
    assert open_graph(RootedFile(str(tmp_path), "x.txt")).shape == (2, 2)
    for name, target in (("absolute.txt", tmp_path / "x.txt"), ("relative.txt", "x.txt"), ("folder", ".")):
        (tmp_path / name).symlink_to(target)
        with pytest.raises(InputError, match="links are not followed"):
            open_graph(RootedFile(str(tmp_path), "folder/x.txt" if name == "folder" else name))


@pytest.mark.slow
def test_jobs_on_a_swapped_file_never_tell_the_token(running):
    """Graphs name what their first line holds: the service's own token, had it been that of another file."""
    service = running.client()
    token = (running.data / "token").read_text().strip()
    path = running.root / "edges.txt"
    path.write_text("0 1\n1 2\n2 0\n2 3\n")
    job = {"method": "communities", "sources": [{"path": str(path)}], "report": False}
    told = ""
    with Swapping(path, running.data / "token"), ThreadPoolExecutor(4) as pool:

        def attempt(_):
            for _ in range(200):
                try:
                    made = service.job(service.call("POST", "/jobs", json=job)["id"])
                except InputError:  # refused at once: it was the link just then
                    continue
                with contextlib.suppress(MgclustError):
                    made.wait()
                return made
            raise AssertionError("never submitted")

        for ended in pool.map(attempt, range(8)):
            told += repr(ended.info) + ended.log()
    assert "edges.txt" in told and token not in told and token[4:12] not in told


# --- the folder of a job, all of which an attempt may write


def a_result(data, engine, owner="admin", method="silhouette"):
    """A job that has succeeded, and the folder of its attempt."""
    id_ = secrets.token_hex(16)
    folder = data / "jobs" / id_ / "attempt-1"
    (folder / "result").mkdir(parents=True)
    (folder / "log.txt").write_text("its log\n")
    (folder / "result" / "labels.npy").write_bytes(b"0123456789")
    with writing(engine) as session:
        session.add(
            Job(
                id=id_, owner=owner, method=method, request={"sources": [], "parameters": {}}, priority=0, attempt=1,
                state="SUCCEEDED", created=1.0, begun_before=0, cancel=False,
            )
        )  # fmt: skip
    return id_, folder


@pytest.fixture
def kept(tmp_path):
    """A service, and the engine of its database."""
    settings = Settings(data=tmp_path / "data", cpu=True, rate_per_address=1000.0)
    app = create_app(settings)
    engine = open_database(settings.database)
    token = access.first_token(engine, settings.data).read_text().strip()
    with TestClient(app, raise_server_exceptions=False, headers={"Authorization": f"Bearer {token}"}) as http:
        yield http, engine, settings, token


@pytest.mark.parametrize("part", ["attempt-1", "attempt-1/log.txt"])
def test_a_log_that_is_a_link(kept, part):
    http, engine, settings, token = kept
    id_, folder = a_result(settings.data, engine)
    (settings.data / "log.txt").write_text(token)
    path = folder.parent / part
    path.rename(folder.parent / "own")
    path.symlink_to(settings.data if part == "attempt-1" else settings.data / "token")
    answer = http.get(f"/api/v1/jobs/{id_}/log")
    assert answer.status_code == 200
    assert answer.text == "the log is not a regular file and is not shown.\n"


@pytest.mark.slow
def test_a_log_of_another_job(kept):
    """By a second name: no link that an open could notice."""
    http, engine, settings, _ = kept
    id_, folder = a_result(settings.data, engine)
    _, other = a_result(settings.data, engine)
    (folder / "log.txt").unlink()
    os.link(other / "log.txt", folder / "log.txt")
    assert "its log" not in http.get(f"/api/v1/jobs/{id_}/log").text


@pytest.mark.slow
def test_a_log_and_a_file_that_are_fifos(kept):
    http, engine, settings, _ = kept
    id_, folder = a_result(settings.data, engine)
    (folder / "log.txt").unlink()
    os.mkfifo(folder / "log.txt")
    os.mkfifo(folder / "result" / "x.npy")
    answers = []
    paths = ("log", "files", "files/x.npy")
    asking = threading.Thread(
        target=lambda: answers.extend(http.get(f"/api/v1/jobs/{id_}/{path}") for path in paths), daemon=True
    )
    asking.start()
    asking.join(60)
    hung = asking.is_alive()
    for path in (folder / "log.txt", folder / "result" / "x.npy"):  # lets go of a thread that waits
        os.close(os.open(path, os.O_RDWR | os.O_NONBLOCK))
    assert not hung
    log, files, file = answers
    assert (log.status_code, files.status_code, file.status_code) == (200, 200, 404)
    assert [each["name"] for each in files.json()] == ["labels.npy"]


@pytest.mark.slow
@pytest.mark.parametrize("part", ["attempt-1", "attempt-1/result"])
def test_a_result_that_is_a_link(kept, part):
    http, engine, settings, token = kept
    id_, folder = a_result(settings.data, engine)
    (settings.data / "result").mkdir()
    shutil.copy(settings.data / "token", settings.data / "result" / "token")
    path = folder.parent / part
    path.rename(folder.parent / "own")
    path.symlink_to(settings.data)
    for what in ("files", "files/token", "points"):
        answer = http.get(f"/api/v1/jobs/{id_}/{what}")
        assert (answer.status_code, "has no result" in answer.text) == (404, True), what
        assert token not in answer.text


@pytest.mark.slow
def test_links_in_a_result(kept):
    http, engine, settings, token = kept
    id_, folder = a_result(settings.data, engine)
    (folder / "result" / "token").symlink_to(settings.data / "token")
    (folder / "result" / "data").symlink_to(settings.data)
    assert http.get(f"/api/v1/jobs/{id_}/files").json() == [{"name": "labels.npy", "size": 10}]
    names = ("token", "data/token", "data", "..%2flog.txt", "%2e%2e/log.txt", "%2fattempt-1/log.txt", "%00", "")
    for name in names:
        answer = http.get(f"/api/v1/jobs/{id_}/files/{name}")
        assert (answer.status_code, token in answer.text) == (404, False), name


@pytest.mark.slow
def test_one_file_and_a_range_of_it(kept):
    http, engine, settings, _ = kept
    id_, folder = a_result(settings.data, engine)
    (folder / "result" / "report.html").write_text("<p>")
    path = f"/api/v1/jobs/{id_}/files"
    whole = http.get(f"{path}/labels.npy")
    assert (whole.content, whole.headers["content-length"]) == (b"0123456789", "10")
    part = http.get(f"{path}/labels.npy", headers={"Range": "bytes=2-4"})
    assert (part.status_code, part.content) == (206, b"234")
    several = http.get(f"{path}/labels.npy", headers={"Range": "bytes=0-1,8-9"})
    assert (several.status_code, b"01" in several.content, b"89" in several.content) == (206, True, True)
    assert http.get(f"{path}/report.html").headers["content-type"].startswith("text/html")


@pytest.mark.parametrize("range_", ["bytes=5-1", "bytes=a", "lines=1-2", "bytes=10-20"])
def test_a_range_that_a_file_does_not_have(kept, range_):
    http, engine, settings, _ = kept
    id_, _ = a_result(settings.data, engine)
    answer = http.get(f"/api/v1/jobs/{id_}/files/labels.npy", headers={"Range": range_})
    assert (answer.status_code, answer.headers["content-range"]) == (416, "bytes */10")
    sentence = "Range should be bytes=FIRST-LAST with FIRST <= LAST < 10, the size of the file."
    assert answer.json() == {"error": sentence, "fault": "input"}


@pytest.mark.parametrize("name", ["a" * 300, "a/" * 3000, "labels.npy/x", "a" * 300 + "/x"])
def test_names_that_no_file_can_have(kept, name):
    http, engine, settings, _ = kept
    id_, _ = a_result(settings.data, engine)
    answer = http.get(f"/api/v1/jobs/{id_}/files/{name}")
    assert (answer.status_code, answer.json()["error"]) == (404, "the result has no such file.")


@pytest.mark.slow
def test_a_result_of_too_much(kept):
    http, engine, settings, _ = kept
    id_, folder = a_result(settings.data, engine)
    number = os.open(folder / "result", os.O_RDONLY)
    for _ in range(2100):  # deeper than a path can say
        os.mkdir("a", dir_fd=number)
        below = os.open("a", os.O_RDONLY, dir_fd=number)
        os.close(number)
        number = below
    os.close(number)
    try:
        answer = http.get(f"/api/v1/jobs/{id_}/files")
        assert (answer.status_code, "deep" in answer.json()["error"]) == (400, True)
        assert size_of(folder) >= 10
        remove(folder)
    finally:
        flatten(folder)


def flatten(folder):
    """Remove what no recursion can remove, so that pytest does not try."""
    while (deep := folder / "result" / "a").exists():
        with contextlib.suppress(FileNotFoundError):
            (deep / "a").rename(folder / "b")
        deep.rmdir()
        with contextlib.suppress(FileNotFoundError):
            (folder / "b").rename(deep)


@pytest.mark.slow
def test_no_size_beyond_a_link(tmp_path):
    (tmp_path / "large").mkdir()
    (tmp_path / "large" / "x").write_bytes(bytes(10_000))
    (tmp_path / "link").symlink_to(tmp_path / "large")
    (tmp_path / "file").symlink_to(tmp_path / "large" / "x")
    assert size_of(tmp_path / "link") < 1000
    assert size_of(tmp_path / "file") < 1000
    assert size_of(tmp_path / "large") == 10_000


@pytest.mark.slow
@pytest.mark.parametrize("what", ["link", "fifo", "huge", "list", "nested", "folder link"])
def test_a_left_result_is_believed_only_if_it_is_one(kept, monkeypatch, what):
    """The runner looks for the scores of an attempt that died before it could say them."""
    _, _, settings, _ = kept
    folder = settings.attempt_folder("1" * 32, 1)
    index = folder / "result" / "result.json"
    index.parent.mkdir(parents=True)
    good = json.dumps({"scores": {"n_clusters": 3}})
    index.write_text(good)
    assert read_findings(settings, "1" * 32, 1) == ({"n_clusters": 3}, [])
    index.unlink()
    if what == "link":
        (settings.data / "other.json").write_text(good)
        index.symlink_to(settings.data / "other.json")
    elif what == "fifo":
        os.mkfifo(index)
    elif what == "huge":
        index.write_text(good + " " * (1 << 22))
    elif what == "list":
        index.write_text('{"scores": []}')
    elif what == "nested":
        index.write_text("[" * 100_000)
    else:
        index.write_text(good)
        index.parent.rename(settings.data / "moved")
        index.parent.symlink_to(settings.data / "moved")
    assert read_findings(settings, "1" * 32, 1) is None


@pytest.mark.slow
def test_centres_of_anothers_result(kept):
    """What reads results is given the folder that was opened, not its path."""
    http, engine, settings, _ = kept
    id_, folder = a_result(settings.data, engine, method="density-peaks")
    access.add_user(engine, "ann", "user")
    _, other = a_result(settings.data, engine, "ann", "density-peaks")
    rows = np.random.default_rng(0).normal(size=(40, 2))
    model = DensityPeaks(n_clusters=2, device="cpu").fit(rows)
    shutil.rmtree(other / "result")
    model.result_.save(other / "result")
    shutil.rmtree(folder / "result")
    shutil.copytree(other / "result", folder / "result")
    answer = http.post(f"/api/v1/jobs/{id_}/centers", json={"n_clusters": 3})
    assert (answer.status_code, answer.json()["n_clusters"]) == (200, 3), answer.text
    folder.rename(folder.parent / "own")
    folder.symlink_to(other)
    answer = http.post(f"/api/v1/jobs/{id_}/centers", json={"n_clusters": 3})
    assert (answer.status_code, "has no result" in answer.text) == (404, True)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["folder", "log", "fifo"])
def test_the_next_attempts_log_is_opened_through_no_link(tmp_path, what):
    (tmp_path / "token").write_text("secret\n")
    folder = tmp_path / "job" / "attempt-2"
    if what == "folder":
        folder.parent.mkdir()
        folder.symlink_to(tmp_path)
    else:
        folder.mkdir(parents=True)
        if what == "log":
            (folder / "log.txt").symlink_to(tmp_path / "token")
        else:
            os.mkfifo(folder / "log.txt")
    with pytest.raises(OSError, match=r"log\.txt|attempt-2"):
        attempt._open_log(folder)
    assert (tmp_path / "token").read_text() == "secret\n"
    assert not (tmp_path / "log.txt").exists()


def test_a_file_is_called_by_its_name_in_messages_and_results(tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    file = RootedFile(str(tmp_path), "x.npy", called="données.npy")
    for each in (file, pickle.loads(pickle.dumps(file)), RootedFile(**file.order())):
        dataset = open_dataset(each)
        assert each == file and str(each) == dataset.name == dataset.describe()["name"] == "données.npy"
        assert each.path == str(tmp_path / "x.npy") and not dataset.read(0, 5).any()
    assert open_dataset(RootedFile(str(tmp_path), "x.npy")).name == str(tmp_path / "x.npy")
    with pytest.raises(InputError, match=r"^z\.npy does not exist"):
        open_dataset(RootedFile(str(tmp_path), "y.npy", called="z.npy"))
