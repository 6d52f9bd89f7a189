"""The site: it builds without a warning, names everything public, and fetches nothing when it is read."""

from __future__ import annotations

import doctest
import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mgclust
from mgclust.kernels import Kernels

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
CONCEPTS = tuple(f".kernels.{concept}" for concept in Kernels.__annotations__)
PUBLIC = (
    *("", ".algorithms", ".data", ".data.samples", ".datasets", ".kernels", ".params", ".plots", ".output.report"),
    *CONCEPTS,
)
# Examples of docstrings: how many lines each module has.
EXAMPLES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): count
    for path in sorted((ROOT / "mgclust").rglob("*.py"))
    if (count := len(re.findall("^ *>>> ", path.read_text(encoding="utf-8"), re.MULTILINE)))
}


def _object(path):
    """The object at a dotted path, of which the first parts are modules."""
    parts = path.split(".")
    found = importlib.import_module(parts[0])
    for i, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:i]))
        found = getattr(found, part)
    return found


def _listed():
    names = {}
    for page in (DOCS / "reference").glob("*.rst"):
        for table in re.findall(r"^\.\. autosummary::\n((?: {3}:.*\n)*\n(?: {3}[\w.]+\n)+)", page.read_text(), re.M):
            for name in re.findall(r"^ {3}([\w.]+)$", table, re.M):
                names[f"mgclust.{name}"] = _object(f"mgclust.{name}")
    return names


def test_the_reference_names_everything_public():
    listed = _listed()
    assert len(listed) > 50
    public = {f"mgclust{module}.{name}" for module in PUBLIC for name in _object(f"mgclust{module}").__all__}
    objects = {id(each) for each in listed.values()}
    assert not [name for name in sorted(public) if name not in listed and id(_object(name)) not in objects]
    # Every module that is public in `mgclust` has a list of names, or a page that describes it.
    modules = {f"mgclust.{name}" for name in mgclust.__all__ if type(getattr(mgclust, name)) is type(mgclust)}
    assert modules <= set(listed)
    assert {module for module in modules if hasattr(_object(module), "__all__")} <= {f"mgclust{m}" for m in PUBLIC}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_site_builds_without_warnings_and_fetches_nothing():
    pytest.importorskip("sphinx", reason="needs the extra docs")
    # One example is executed; test_gallery.py executes all of them.
    made = ["make", "-C", str(DOCS), "html", f"PYTHON={sys.executable}", "EXAMPLES=plot_silhouettes"]
    done = subprocess.run(made, capture_output=True, text=True, timeout=590)
    assert done.returncode == 0, done.stdout + done.stderr
    pages = list((DOCS / "_build" / "html").rglob("*.html"))
    assert len(pages) > 50
    assert len(list((DOCS / "_build" / "html" / "_images").glob("sphx_glr_plot_silhouettes_0*.png"))) >= 1
    loads = re.compile(
        r"<(?:script|img|iframe)[^>]* src=\"(?:https?:)?//|<link[^>]* rel=\"stylesheet\"[^>]*href=\"(?:https?:)?//"
    )
    assert not [page.name for page in pages if loads.search(page.read_text(encoding="utf-8"))]
    commands = (DOCS / "_build" / "html" / "cli.html").read_text(encoding="utf-8")
    assert all(name in commands for name in ("mgclust run canopy", "mgclust token revoke", "--dc-fraction"))


def test_docstrings_begin_with_an_imperative_or_a_noun_phrase():
    words = "What|Whether|How|Where|Which|Why|Who|When|As|For|Of|By|From|On|In"
    begin = re.compile(rf'^ *r?"""(?:{words}) .*', re.MULTILINE)
    files = list((ROOT / "mgclust").rglob("*.py"))
    assert len(files) > 200
    assert not [(str(f.relative_to(ROOT)), *found) for f in files if (found := begin.findall(f.read_text("utf-8")))]


def test_each_folder_of_a_method_names_its_oracle():
    folders = [each for each in (ROOT / "mgclust/algorithms").iterdir() if (each / "estimator.py").exists()]
    assert len(folders) >= 7
    for folder in folders:
        named = re.findall(r"`(tests/oracles/\w+\.py)`", (folder / "__init__.py").read_text(encoding="utf-8"))
        assert named and all((ROOT / each).is_file() for each in named), folder.name


@pytest.mark.quick("mgclust.datasets.*", "mgclust.algorithms.communities.modularity")  # the others compile kernels
@pytest.mark.parametrize("module", EXAMPLES)
def test_examples_in_docstrings(module):
    assert doctest.testmod(importlib.import_module(module)) == (0, EXAMPLES[module])


@pytest.mark.parametrize(
    "page", sorted(set((DOCS / "methods").glob("*.md")) - {DOCS / "methods" / "index.md"}), ids=lambda page: page.stem
)
def test_pages_of_methods_have_the_same_sections(page):
    found = {title.split()[0] for title in re.findall("^## (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)}
    assert {
        "What",
        "The",
        "Reading",
        "Cost",
        "References",
    } <= found  # "The parameters that matter", "Reading its pictures"


def test_the_order_of_imports_on_the_page_is_that_of_the_linter():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]
    page = (DOCS / "design" / "architecture.md").read_text(encoding="utf-8")
    assert " > ".join(tools["importlinter"]["contracts"][0]["layers"]) in page


def test_the_page_of_clusters_names_the_versions_of_dask_that_are_allowed():
    project = (ROOT / "pyproject.toml").read_text("utf-8")
    pins = re.findall(r'"(?:dask\[\w+\]|distributed)>=([\d.]+),<(\d+)\.(\d+)"', project)
    assert len(pins) == 3 and len(set(pins)) == 1
    oldest, year, month = pins[0]
    assert int(month) > 1, "the last version is one of the year before"
    assert f"Dask {oldest} to {year}.{int(month) - 1} work" in (ROOT / "docs/clusters.md").read_text("utf-8")
