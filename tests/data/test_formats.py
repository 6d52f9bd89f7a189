"""What lists formats by hand names those of the table, and no others."""

import re
from pathlib import Path

import pytest

from mgclust.cli import run_command
from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.formats import FORMATS
from mgclust.data.graph import open_graph
from mgclust.data.labels import read_labels
from mgclust.data.readers.nifti import VOLUMES
from mgclust.outside.streams import COMPRESSIONS

PAGE = (Path(__file__).parents[2] / "docs/files.md").read_text(encoding="utf-8")
DOCUMENTED = {"rows": open_dataset, "graph": open_graph, "labels": read_labels}
SECTIONS = {"rows": "Rows", "graph": "Graphs", "labels": "Labels"}
SUFFIX = r"(?<![\w.])\.[a-z][a-z.]*[a-z]2?"


def known(what):
    """Suffixes that are read as that; beside the table volumes, CIFTI, which ends alike, and compressed text."""
    suffixes = {suffix for suffix, each in FORMATS.items() if getattr(each, what)}
    return suffixes, {
        *COMPRESSIONS,
        *{"rows": (*VOLUMES, ".dtseries.nii"), "graph": (), "labels": (*VOLUMES, ".dlabel.nii")}[what],
    }


@pytest.mark.parametrize("what", DOCUMENTED)
def test_the_page_of_formats_has_those_of_the_table(what):
    section = re.search(rf"^## {SECTIONS[what]}\n(.*?)^## ", PAGE, re.MULTILINE | re.DOTALL)[1]
    suffixes, more = known(what)
    named = set(re.findall(rf"`({SUFFIX})`", section))
    assert named == suffixes | more


@pytest.mark.parametrize("what", DOCUMENTED)
def test_docstrings_have_those_of_the_table(what):
    suffixes, more = known(what)
    named = set(re.findall(SUFFIX, DOCUMENTED[what].__doc__))
    if what == "rows":
        more |= {".surf.gii", ".dlabel.nii", ".label.gii"}  # of the options surfaces and atlas
    assert suffixes <= named <= suffixes | more


@pytest.mark.parametrize("command", ["run", "submit"])
def test_help_lists_those_of_the_table(command, capsys):
    assert run_command([command, "--help"]) == 0
    named = set(re.findall(SUFFIX, capsys.readouterr().out))
    for what in ("rows", "graph"):
        assert known(what)[0] <= named


def test_no_format_overrides_read():
    def below(cls):
        return {cls, *(each for sub in cls.__subclasses__() for each in below(sub))}

    sources = {each for each in below(Dataset) if each.__module__.startswith("mgclust.")}
    assert len(sources) > 10
    assert {each.__name__ for each in sources if "read" in vars(each)} == {"Dataset", "InFile"}
