"""A file below a root that is swapped for a link, or has a second name: nothing outside of the root comes back."""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from service_process import Running

from mgclust import open_graph
from mgclust.beneath import Beneath
from mgclust.data import open_dataset
from mgclust.errors import InputError, MgclustError

ROUNDS = 2_000


@pytest.fixture(scope="module")
def running(tmp_path_factory):
    service = Running(tmp_path_factory.mktemp("links"))
    yield service
    service.stop()


@pytest.fixture(params=["openat2", "by parts"])
def way(request, monkeypatch):
    """Both ways to open a file beneath a root."""
    if request.param == "by parts":
        monkeypatch.setattr("mgclust.beneath._has_openat2", lambda: False)


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
    found, refused, end = set(), 0, time.monotonic() + 30
    with swapping:
        for count in itertools.count():
            if (count >= ROUNDS and found and refused) or time.monotonic() > end:
                break
            try:
                with Beneath(str(root), name).open() as file:
                    found.add(file.read())
            except InputError as error:
                assert "links are not followed" in str(error)
                refused += 1
            except FileNotFoundError:
                pass
    assert refused
    return found


def test_a_swapped_file_gives_itself_or_a_refusal(way, tmp_path):
    (tmp_path / "root").mkdir()
    (tmp_path / "secret").write_text("secret")
    path = tmp_path / "root" / "x.txt"
    path.write_text("good")
    assert read_while_swapped(tmp_path / "root", "x.txt", Swapping(path, tmp_path / "secret")) == {b"good"}


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
        open_dataset(Beneath(str(tmp_path / "root"), name))


def test_what_was_opened_stays_what_is_read(way, tmp_path):
    """A file that is replaced by another one is read to its end; one that is written to is refused."""
    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    np.save(tmp_path / "y.npy", np.ones((5, 2), np.float32))
    dataset = open_dataset(Beneath(str(tmp_path), "x.npy"))
    os.replace(tmp_path / "y.npy", tmp_path / "x.npy")
    assert not dataset.read(0, 5).any()
    np.save(tmp_path / "y.npy", np.zeros((5, 2), np.float32))
    dataset = open_dataset(Beneath(str(tmp_path), "y.npy"))
    with open(tmp_path / "y.npy", "ab") as file:
        file.write(b"more")
    with pytest.raises(InputError, match="changed since it was opened"):
        dataset.read(0, 5)


def test_another_process_sees_that_the_file_is_another_one(tmp_path):
    import pickle

    np.save(tmp_path / "x.npy", np.zeros((5, 2), np.float32))
    np.save(tmp_path / "y.npy", np.ones((5, 2), np.float32))
    sent = pickle.dumps(open_dataset(Beneath(str(tmp_path), "x.npy")))
    assert not pickle.loads(sent).read(0, 5).any()
    os.replace(tmp_path / "y.npy", tmp_path / "x.npy")
    with pytest.raises(InputError, match="changed since it was opened"):
        pickle.loads(sent).read(0, 5)


def test_a_second_name_of_an_own_file(way, tmp_path):
    np.save(tmp_path / "x.npy", np.zeros((5, 2)))
    os.link(tmp_path / "x.npy", tmp_path / "y.npy")
    with pytest.raises(InputError, match="2 names"):
        open_dataset(Beneath(str(tmp_path), "y.npy"))
    (tmp_path / "x.npy").unlink()
    assert open_dataset(Beneath(str(tmp_path), "y.npy")).shape == (5, 2)


def test_a_zarr_store_with_links(way, tmp_path):
    zarr = pytest.importorskip("zarr")
    root = tmp_path / "root"
    for folder in (root / "x.zarr", tmp_path / "outside.zarr"):
        zarr.save(str(folder), np.arange(40, dtype=np.float32).reshape(10, 4))
    dataset = open_dataset(Beneath(str(root), "x.zarr"))
    assert dataset.read(0, 10).sum() == 780
    assert dataset.fingerprint() == open_dataset(str(root / "x.zarr")).fingerprint()
    (chunk,) = (path for path in (root / "x.zarr").rglob("*") if path.is_file() and path.suffix != ".json")
    outside = tmp_path / "outside.zarr" / chunk.relative_to(root / "x.zarr")
    chunk.unlink()
    chunk.symlink_to(outside)
    with pytest.raises(InputError, match="links are not followed"):
        open_dataset(Beneath(str(root), "x.zarr")).read(0, 10)
    shutil.rmtree(root / "x.zarr" / "c")
    (root / "x.zarr" / "c").symlink_to(tmp_path / "outside.zarr" / "c")
    with pytest.raises(InputError, match="links are not followed"):
        open_dataset(Beneath(str(root), "x.zarr")).read(0, 10)


def test_graphs_beneath_a_root(way, tmp_path):
    (tmp_path / "x.txt").write_text("0 1\n1 2\n")
    assert open_graph(Beneath(str(tmp_path), "x.txt")).shape == (2, 2)
    (tmp_path / "link.txt").symlink_to(tmp_path / "x.txt")
    with pytest.raises(InputError, match="links are not followed"):
        open_graph(Beneath(str(tmp_path), "link.txt"))


def test_jobs_on_a_swapped_file_never_tell_the_token(running):
    """Graphs name what their first line holds: the service's own token, had it been that of another file."""
    service = running.client()
    token = (running.data / "token").read_text().strip()
    path = running.root / "edges.txt"
    path.write_text("0 1\n1 2\n2 0\n2 3\n")
    job = {"method": "fast-newman", "sources": [{"path": str(path)}], "report": False}
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
