"""Every script of the gallery runs, shows figures that are not empty, and gives no warning."""

from __future__ import annotations

import ast
import re
import runpy
import warnings
from pathlib import Path

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pytest

import mgclust
from mgclust.algorithms import METHODS
from mgclust.base.errors import ClusteringWarning

GALLERY = Path(__file__).parents[2] / "docs" / "gallery"
SCRIPTS = sorted(GALLERY.glob("*.py"))
# Seconds, of a machine that does much else and compiles kernels first. Each takes less than 5 s otherwise.
LIMIT = 150
# Warnings that a script shows on purpose: its name, and what warnings.filterwarnings takes.
DECLARED: dict[str, tuple[str, type[Warning]]] = {
    "plot_adaptive_affinity_propagation.py": ("the best mean silhouette, ", ClusteringWarning),
    "plot_choose_centers.py": (".*the centres do not stand out", ClusteringWarning),
}


@pytest.fixture
def agg(monkeypatch, tmp_path):
    """No window, no figures of others, and a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.delenv("DISPLAY", raising=False)
    matplotlib.use("Agg")
    plt.close("all")
    yield
    plt.close("all")


@pytest.mark.quick("plot_density_peaks", "plot_silhouettes")
@pytest.mark.timeout(LIMIT)
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_runs_without_warnings(script, agg, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if script.name in DECLARED:
            message, category = DECLARED[script.name]
            warnings.filterwarnings("ignore", message, category)
        runpy.run_path(str(script), run_name="__main__")
    assert plt.get_fignums(), "no figure"
    for number in plt.get_fignums():
        figure = plt.figure(number)
        for ax in figure.axes:
            assert ax.has_data() or ax.texts, f"figure {number} has empty axes"
        figure.canvas.draw()
        assert np.ptp(np.asarray(figure.canvas.buffer_rgba())[..., :3]) > 0
    assert not list(tmp_path.iterdir()), "it leaves files in the working directory"


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.stem)
def test_it_has_the_form_of_the_gallery(script):
    text = script.read_text(encoding="utf-8")
    assert script.name.startswith("plot_")  # else it is shown and not run
    title, underline, empty, *paragraph = ast.get_docstring(ast.parse(text), clean=True).splitlines()
    assert underline == "=" * len(title) and empty == "" and paragraph and "" not in paragraph
    steps = re.findall(r"^# %%\n# (\d+)\. (.+)\n# (-+)$", text, re.MULTILINE)
    assert [int(number) for number, _, _ in steps] == list(range(1, len(steps) + 1)) and len(steps) >= 2
    assert all(len(line) == len(f"{number}. {heading}") for number, heading, line in steps)
    assert len([line for line in text.splitlines() if line and not line.startswith("#")]) <= 65


def test_it_shows_every_method():
    assert len(SCRIPTS) >= 12 and (GALLERY / "GALLERY_HEADER.rst").exists()
    text = "".join(script.read_text(encoding="utf-8") for script in SCRIPTS)
    for method in METHODS.values():
        if method.__name__ in mgclust.__all__:
            assert f"{method.__name__}(" in text, method.__name__
    for name in ("silhouette_samples", "Service(", 'client="local"', "networkx", "nibabel", "memory_limit"):
        assert name in text, name
