"""Type checkers see what users import: the names of `mgclust`, and their signatures."""

import ast
import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mgclust
from mgclust.algorithms.common import scikit_learn

ROOT = Path(mgclust.__file__).parent.parent
SCRIPT = """
import mgclust
from mgclust import Canopy, Communities, DensityPeaks, FuzzyCMeans, Result, load_result, nearest_neighbors, plots

model: DensityPeaks = DensityPeaks(n_clusters=3, metric="cosine").fit([[0.0], [1.0]])
result: Result = load_result("run")
plots.decision_graph(model.select_centers(2), log=True).set_title("mine")
model.set_params(n_clusters=2).fit_predict([[0.0]])
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
model.select_centres(2)  # error: "select_centres"
model.select_centers(k=2)  # error: "k"
model.labels  # error: "labels"
"""
ESTIMATORS = [
    mgclust.AdaptiveAffinityPropagation, mgclust.AffinityPropagation, mgclust.Canopy, mgclust.Communities,
    mgclust.DensityPeaks, mgclust.FastNewman, mgclust.FuzzyCMeans,
]  # fmt: skip


def documented(estimator):
    """Names of the attributes that a docstring lists."""
    lines = estimator.__doc__.split("Attributes\n    ----------\n")[1].split("\n\n")[0].splitlines()
    return [name for line in lines if line[4] != " " for name in re.findall(r"\w+_(?=[ ,]|$)", line.split(" :")[0])]


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


@pytest.mark.parametrize("base", scikit_learn.__all__)
def test_type_checkers_see_the_methods_of_scikit_learn(base):
    """A class whose base has no types has any attribute, so no misspelt one would be an error."""
    stub = ast.parse(Path(scikit_learn.__file__).with_suffix(".pyi").read_text())
    (typed,) = (node for node in stub.body if isinstance(node, ast.ClassDef) and node.name == base)
    names = {node.name for node in typed.body if isinstance(node, ast.FunctionDef)}
    public = {name for name in dir(getattr(scikit_learn, base)) if not name.startswith("_")}
    assert {name for name in names if not name.startswith("_")} == {n for n in public if not n.startswith("set_fit")}


@pytest.mark.slow
def test_mypy_reports_the_slips_of_a_users_script(tmp_path):
    attributes = {each.__name__: ", ".join(f"model.{name}" for name in documented(each)) for each in ESTIMATORS}
    uses = [f"def of_{k}(model: mgclust.{k}) -> list[object]: return [{names}]\n" for k, names in attributes.items()]
    (tmp_path / "script.py").write_text(SCRIPT + "".join(uses))
    command = [sys.executable, "-m", "mypy", "--strict", "--follow-imports=silent", "--config-file=", "script.py"]
    installed = "site-packages" in Path(mgclust.__file__).parts  # mypy finds it there
    place = {} if installed else {"MYPYPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=place, capture_output=True, text=True)
    found = {int(line.split(":")[1]): line for line in ran.stdout.splitlines() if ": error:" in line}
    slips = {n: line.split("# error: ")[1] for n, line in enumerate(SCRIPT.split("\n"), 1) if "# error: " in line}
    assert found.keys() == slips.keys(), ran.stdout
    for number, slip in slips.items():
        assert slip in found[number]
