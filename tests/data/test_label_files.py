"""Tests of files of labels with and without a title."""

from __future__ import annotations

import pytest

from mgclust.base.errors import InputError
from mgclust.cli import run_command
from mgclust.data.labels import read_labels


@pytest.mark.parametrize("name", ["labels.txt", "labels.csv", "labels.tsv"])
@pytest.mark.parametrize(
    ("lines", "labels"),
    [
        (["label", "b", "a", "a"], ["b", "a", "a"]),
        (["Cluster", "b", "a", "a"], ["b", "a", "a"]),
        (["species", "1", "0", "0"], [1, 0, 0]),
        (["b", "a", "b"], ["b", "a", "b"]),
        (["a", "b", "c"], ["a", "b", "c"]),  # for example the names of `fixed`
        (["7", "a", "a"], ["7", "a", "a"]),
        (["a"], ["a"]),
    ],
)
def test_a_title_is_no_label(tmp_path, name, lines, labels):
    (tmp_path / name).write_text("\n".join(lines))
    assert read_labels(tmp_path / name).tolist() == labels


@pytest.mark.parametrize("name", ["labels.txt", "labels.csv", "labels.tsv"])
def test_a_line_that_may_be_a_title_is_rejected_with_the_remedy(tmp_path, name, capsys):
    """If the title counted as a row, the agreement of two files would be wrong without a message."""
    (tmp_path / name).write_text("species\nsetosa\nsetosa\nvirginica\n")
    with pytest.raises(InputError, match="the first line, 'species', may be a title or a label that occurs once"):
        read_labels(tmp_path / name)
    assert run_command(["compare", str(tmp_path / name), str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert "if it is a title, replace it by 'label'; if it is a label, add the line 'label' above it." in error
