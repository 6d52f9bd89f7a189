"""Folders that an attempt nests deeper than calls, open files and paths go: they are counted, and removed."""

from __future__ import annotations

import os
import resource

import pytest

from mgclust.service.confined.folders import remove, size_of

DEPTH = 3000


@pytest.fixture
def few_descriptors():
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = len(os.listdir("/proc/self/fd"))  # by this process, which may have run other tests
    resource.setrlimit(resource.RLIMIT_NOFILE, (used + 64, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


def nest(folder, depth, content=b""):
    """Folders within each other, and a file in the last."""
    folder.mkdir()
    at = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("a", dir_fd=at)
        below = os.open("a", os.O_RDONLY, dir_fd=at)
        os.close(at)
        at = below
    file = os.open("file", os.O_WRONLY | os.O_CREAT, dir_fd=at)
    os.write(file, content)
    os.close(file)
    os.close(at)


def test_deep_folders_are_removed(tmp_path, few_descriptors):
    nest(tmp_path / "job", DEPTH)
    remove(tmp_path / "job")
    assert not (tmp_path / "job").exists()


@pytest.mark.slow
def test_files_in_deep_folders_count(tmp_path, few_descriptors):
    nest(tmp_path / "job", DEPTH, b"x" * 1000)
    nest(tmp_path / "job" / "b", 10, b"x" * 100)
    try:
        assert size_of(tmp_path / "job") == 1100
    finally:
        remove(tmp_path / "job")


def test_wide_and_deep_ones_are_removed_and_what_links_lead_to_stays(tmp_path, few_descriptors):
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_text("kept")
    folder = tmp_path / "job"
    folder.mkdir()
    for number in range(3):
        nest(folder / str(number), 300)
        (folder / str(number) / "link").symlink_to(tmp_path / "kept")
        (folder / str(number) / "a" / "link").symlink_to(tmp_path / "kept" / "file")
        (folder / str(number) / "a" / "a" / "b").mkdir()
        os.mkfifo(folder / str(number) / "a" / "fifo")
    for number in range(1000):
        (folder / f"{number}.txt").touch()
    (folder / "link").symlink_to(tmp_path / "kept")
    remove(folder)
    assert not folder.exists()
    assert (tmp_path / "kept" / "file").read_text() == "kept"
    folder.symlink_to(tmp_path / "kept")
    remove(folder)
    remove(tmp_path / "none")
    remove(tmp_path / "kept" / "file")
    assert (tmp_path / "kept" / "file").read_text() == "kept"
