"""Type checkers see what users import: the names of `mgclust`, and their signatures."""

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import mgclust

ROOT = Path(mgclust.__file__).parent.parent
SCRIPT = """
import mgclust
from mgclust import Canopy, Communities, DensityPeaks, FuzzyCMeans, Result, load_result, nearest_neighbors, plots

model: DensityPeaks = DensityPeaks(n_clusters=3, metric="cosine").fit([[0.0], [1.0]])
result: Result = load_result("run")
plots.decision_graph(model, log=True).set_title("mine")
nearest_neighbors([[0.0], [1.0]], 1, metric="manhattan").indices
try:
    Canopy(2.0, 1.0, order="random").predict([[1.0]])
except mgclust.InputError:
    mgclust.datasets.make_bold
DensityPeaks(n_cluster=3)  # error: "n_cluster"
Communities(resolutoin=2.0)  # error: "resolutoin"
mgclust.FastNewman(random_state=1)  # error: "random_state"
FuzzyCMeans("three")  # error: "str"
mgclust.AffinityPropogation()  # error: "AffinityPropogation"
nearest_neighbors([[0.0]])  # error: "n_neighbors"
plots.decision_graph(model, logg=True)  # error: "logg"
mgclust.compare_labels([0])  # error: "second"
"""


def test_type_checkers_see_the_names_that_are_imported_lazily():
    stub = ast.parse((ROOT / "mgclust" / "__init__.pyi").read_text())
    typed = {}
    for node in stub.body:
        for each in node.names if isinstance(node, ast.ImportFrom) else ():
            assert each.asname == each.name  # else it is no public name of the stub
            typed[each.name] = node.module
    assert sorted(typed) == sorted(mgclust.__all__)
    for name, module in typed.items():
        if module != "mgclust":
            assert getattr(importlib.import_module(module), name) is getattr(mgclust, name)


@pytest.mark.slow
def test_mypy_reports_the_slips_of_a_users_script(tmp_path):
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "script.py"]
    installed = "site-packages" in Path(mgclust.__file__).parts  # mypy finds it there
    place = {} if installed else {"MYPYPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, text=True)
    found = {int(line.split(":")[1]): line for line in ran.stdout.splitlines() if ": error:" in line}
    slips = {n: line.split("# error: ")[1] for n, line in enumerate(SCRIPT.split("\n"), 1) if "# error: " in line}
    assert found.keys() == slips.keys(), ran.stdout
    for number, slip in slips.items():
        assert slip in found[number]
