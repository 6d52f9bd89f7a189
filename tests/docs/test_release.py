"""The page of releases: its table of versions is that of pyproject.toml, and a version stands the same everywhere."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import mgclust

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def _row(name):
    page = (ROOT / "docs/design/release.md").read_text(encoding="utf-8")
    return re.search(rf"^\| {re.escape(name)} \| (.*?) \|", page, re.MULTILINE)[1]


def test_the_page_of_releases_has_the_bounds_of_the_project():
    assert f">={_row('Python').split()[0]}" == PROJECT["requires-python"]
    extras = PROJECT["optional-dependencies"]
    bounds = {re.split(r"[\[<>=!]", each)[0]: each for each in PROJECT["dependencies"] + extras["gpu-cu13"]}
    for name in ("SciPy", "scikit-learn", "Numba"):
        assert bounds[name.lower()] == f"{name.lower()}>={_row(name).split()[0]}"
    for name, package in (("NumPy", "numpy"), ("Dask, distributed", "distributed")):
        first, last = _row(name).split(" to ")
        year, _, minor = last.rpartition(".")
        assert bounds[package] == f"{package}>={first},<{year}.{int(minor) + 1}"
    assert re.findall(r"[\d.]+\d", bounds["cupy-cuda13x"].split("]")[1]) == re.findall(r"[\d.]+\d", _row("CuPy"))
    assert f">={_row('dask-cuda')}," in bounds["dask-cuda"]
    assert set(re.findall(r"`(gpu-\w+)`", _row("CUDA"))) == {each for each in extras if each.startswith("gpu")}


def test_the_version_is_the_same_everywhere():
    version = PROJECT["version"]
    assert mgclust.__version__ == version
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)[1] == version
