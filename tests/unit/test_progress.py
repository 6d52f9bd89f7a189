import pytest

from mgclust.algorithms.base import _print_progress
from mgclust.cli.output import ShownProgress
from mgclust.progress import details_text, progress_text

EVENT = {"stage": "scan", "fraction": 0.12, "elapsed": 3.0}
EVENT |= {"rate": 811.7, "damping": 0.5, "preference": -0.41, "n_clusters": 34}


def test_a_line_says_how_far_and_where():
    assert progress_text(EVENT) == "12% K=34 preference=-0.41 damping=0.50 812 it/s"
    assert details_text({"stage": "rho", "fraction": 0.5}) == ""
    assert progress_text({"stage": "rho", "fraction": 0.5}) == "50%"
    assert progress_text({"stage": "write"}) == ""


def test_unknown_and_missing_figures():
    assert (
        progress_text({"fraction": 1.0, "passes": 3, "error": 0.123456, "n_clusters": None})
        == "100% passes=3 error=0.1235"
    )


def test_verbose_prints_them(capsys):
    _print_progress(EVENT)
    assert capsys.readouterr().err == "scan: 12% K=34 preference=-0.41 damping=0.50 812 it/s (3.0 s)\n"


@pytest.mark.parametrize("terminal", [False, True])
def test_the_command_line_shows_them(terminal, capsys, monkeypatch):
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal)
    monkeypatch.setattr("mgclust.cli.output.LINE_SECONDS", -1)
    with ShownProgress() as progress:
        progress({"stage": "scan", "fraction": 0.0})
        progress(EVENT)
        if terminal:
            (task,) = progress.bar.tasks
            assert task.fields["details"] == "K=34 preference=-0.41 damping=0.50 812 it/s" and task.completed == 12
        progress({"stage": "labels", "fraction": 0.0})
        if terminal:
            (task,) = progress.bar.tasks
            assert task.fields["details"] == "" and task.description == "labels"
    if not terminal:
        first, second, third = capsys.readouterr().err.splitlines()
        assert first.endswith(" scan") and third.endswith(" labels")
        assert second.endswith(" scan: 12% K=34 preference=-0.41 damping=0.50 812 it/s")
