"""A service whose account has no home that it could write."""

from __future__ import annotations

import os

import numpy as np
import pytest

from mgclust.service.confined import caches
from mgclust.service.settings import Settings
from support.service_process import Running

OWN = ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", *caches.VARIABLES)


@pytest.fixture
def account(monkeypatch, tmp_path):
    """A way to set the home folder; the process's own environment comes back."""
    for name in OWN:
        monkeypatch.setenv(name, "")  # so that what is set is undone
        monkeypatch.delenv(name)
    return lambda home: monkeypatch.setenv("HOME", str(home))


def provided():
    return {name: os.environ[name] for name in caches.VARIABLES if name in os.environ}


def test_home_is_used_where_it_can_be(account, tmp_path):
    account(tmp_path / "home")
    caches.set_cache_folders(Settings(data=tmp_path / "data"))
    assert provided() == {}


@pytest.mark.parametrize("home", ["file/home", "data/home", "root", "link"])
def test_caches_are_in_the_data_folder(account, tmp_path, home):
    """Where home cannot be written, or is hidden from the processes that read data."""
    (tmp_path / "file").touch()
    (tmp_path / "root").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "root")
    account(tmp_path / home)
    caches.set_cache_folders(Settings(data=tmp_path / "data", roots=str(tmp_path / "root")))
    assert provided() == {name: str(tmp_path / "data" / "cache" / kind) for name, kind in caches.VARIABLES.items()}
    assert all(os.stat(path).st_mode & 0o777 == 0o700 for path in provided().values())
    assert caches.cache_folders([str(tmp_path / "data")]) == list(provided().values())


@pytest.mark.parametrize("place", ["", "data", "data/jobs", "root", "root/cache/numba"])
def test_no_other_folder_is_opened_up(account, tmp_path, monkeypatch, place):
    """A variable of an administrator may name a folder that holds what is hidden, or is hidden itself."""
    account(tmp_path / "home")
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / place))
    hidden = [str(tmp_path / "data"), str(tmp_path / "root" / "cache" / "numba" / "of-a-user")]
    assert caches.cache_folders(hidden) == []


def test_what_is_set_stays(account, tmp_path, monkeypatch):
    account("nowhere")
    monkeypatch.setenv("NUMBA_CACHE_DIR", "/elsewhere")
    caches.set_cache_folders(Settings(data=tmp_path / "data"))
    assert provided()["NUMBA_CACHE_DIR"] == "/elsewhere"
    assert provided()["MPLCONFIGDIR"] == str(tmp_path / "data" / "cache" / "matplotlib")


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_jobs_of_a_service_without_a_home(account, tmp_path):
    """Kernels are compiled and kept, pictures drawn, and no temporary folder of matplotlib stays."""
    (tmp_path / "file").touch()
    (tmp_path / "tmp").mkdir()
    account(tmp_path / "file" / "home")
    np.save(tmp_path / "x.npy", np.random.default_rng(0).normal(size=(300, 2)))
    # As if the code could not be written, either, which root always can.
    environment = {
        "TMPDIR": str(tmp_path / "tmp"),
        "NUMBA_CACHE_LOCATOR_CLASSES": "UserProvidedCacheLocator,UserWideCacheLocator",
    }
    service = Running(tmp_path, environment=environment, kernels=False)
    try:
        job = service.client().submit("density-peaks", tmp_path / "x.npy", n_clusters=3)
        job.wait()
    finally:
        service.stop()
    assert list(service.data.glob("cache/users/admin/numba/*/*.nbc"))
    assert list(service.data.glob("cache/matplotlib/fontlist*"))
    assert not list(tmp_path.glob("tmp/matplotlib-*"))
