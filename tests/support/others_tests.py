"""Run test modules of scikit-learn with names of mgclust instead of theirs, and print the tables of `docs/drop-in.md`.

``python tests/support/others_tests.py`` takes the modules from the scikit-learn that is installed. A test passes as it
is, or with the words of messages aside: ``match=`` of `pytest.raises` and `pytest.warns` is left out in a second run.
Tests that do not use a replaced name, such as those of private functions, are not counted.
"""

from __future__ import annotations

import ast
import importlib.util
import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import sklearn

MODULES = {
    "sklearn.cluster.tests.test_affinity_propagation": ("AffinityPropagation",),
    "sklearn.metrics.cluster.tests.test_unsupervised": ("silhouette_samples", "silhouette_score"),
}
# Cases that do not pass, by the beginning of their names, with the reason.
KNOWN = {
    "test_affinity_propagation_precomputed_with_sparse_input": "expects that sparse similarities are rejected; they "
    "are accepted, and only a matrix that stores no pair is rejected",
    "test_affinity_propagation_random_state": "expects that two iterations end differently with another seed; if a run "
    "did not converge, the exemplars with the highest net similarity are kept, and both seeds give the same exemplars",
    "test_sparse_input_for_fit_predict": "the rows are tied, and the expected labels come from one generator's noise; "
    "the labels of scikit-learn also differ from seed to seed",
}


def reason(case: str) -> str:
    """Why a case does not pass; "" if nothing is known of it."""
    return next((why for name, why in KNOWN.items() if case.startswith(name)), "")


@dataclass
class Counts:
    """Outcome of a module: cases by what happened."""

    version: str
    total: int = 0
    passed: list[str] = field(default_factory=list)
    other_words: list[str] = field(default_factory=list)
    failed: dict[str, str] = field(default_factory=dict)  # and the first line of the error


class _Replaced(ast.NodeTransformer):
    """Names from mgclust; with `wordless`, no patterns of messages."""

    def __init__(self, names: tuple[str, ...], wordless: bool) -> None:
        self.names, self.wordless = names, wordless

    def visit_ImportFrom(self, node: ast.ImportFrom) -> ast.AST | list[ast.AST] | None:
        kept = [each for each in node.names if each.name not in self.names]
        ours = [each for each in node.names if each.name in self.names]
        nodes: list[ast.AST] = [ast.ImportFrom(node.module, kept, node.level)] if kept else []
        return nodes + ([ast.ImportFrom("mgclust", ours, 0)] if ours else [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        if self.wordless and ast.unparse(node.func) in ("pytest.raises", "pytest.warns"):
            node.keywords = [each for each in node.keywords if each.arg != "match"]
        return node


def run(module: str, *, wordless: bool, only: Iterable[str] = ()) -> dict[str, str]:
    """Run a module; the errors of the cases that use a replaced name, "" of those that pass.

    Parameters
    ----------
    module : str
        One of `MODULES`.
    wordless : bool
        Leave out patterns of messages.
    only : iterable of str
        Names of cases to run; by default all.
    """
    names = MODULES[module]
    spec = importlib.util.find_spec(module)
    assert spec is not None and spec.origin is not None
    tree = ast.parse(Path(spec.origin).read_text())
    used = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(isinstance(part, ast.Name) and part.id in names for part in ast.walk(node))
    }
    replaced = ast.unparse(ast.fix_missing_locations(_Replaced(names, wordless).visit(tree)))
    with tempfile.TemporaryDirectory() as folder:
        path, report = Path(folder) / "test_replaced.py", Path(folder) / "report.xml"
        path.write_text(replaced)
        chosen = [f"{path.name}::{case}" for case in only] or [path.name]
        command = [sys.executable, "-m", "pytest", "-q", "-p", "sklearn.conftest", "-p", "no:cacheprovider", *chosen]
        # Plugins of other packages take seconds to load, and no module here needs one.
        environment = {**os.environ, "SKLEARN_RUN_FLOAT32_TESTS": "1", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        environment.pop("PYTEST_ADDOPTS", None)  # it may name options of such plugins
        here = {"cwd": folder, "env": environment, "stdout": subprocess.DEVNULL}
        subprocess.run([*command, f"--junitxml={report}"], check=False, **here)
        cases = list(ET.parse(report).iter("testcase"))
    errors = {}
    for case in cases:
        name = case.get("name", "")
        if name.partition("[")[0] in used and case.find("skipped") is None:
            bad = next((each for each in case if each.tag in ("failure", "error")), None)
            errors[name] = "" if bad is None else (bad.get("message") or "error").splitlines()[0]
    return errors


def judge(module: str) -> Counts:
    """Count the cases of a module.

    Parameters
    ----------
    module : str
        One of `MODULES`.
    """
    as_is = run(module, wordless=False)
    failed = [name for name, error in as_is.items() if error]
    wordless = run(module, wordless=True, only=failed) if failed else {}
    counts = Counts(sklearn.__version__, len(as_is))
    for name, error in as_is.items():
        if not error:
            counts.passed.append(name)
        elif not wordless[name]:
            counts.other_words.append(name)
        else:
            counts.failed[name] = wordless[name]
    return counts


def main() -> None:
    """Print the counts of each module, and the cases that do not pass with their reasons."""
    print("| test module | cases | passed | passed, with other words | not passed |\n|---|---|---|---|---|")
    missed = {}
    for module in MODULES:
        counts = judge(module)
        sizes = (counts.total, len(counts.passed), len(counts.other_words), len(counts.failed))
        print(f"| `{module}` ({counts.version}) | {' | '.join(map(str, sizes))} |")
        missed |= counts.failed
    print("\n| not passed | reason |\n|---|---|")
    for name, error in missed.items():
        print(f"| `{name}` | {reason(name) or error} |")


if __name__ == "__main__":
    main()
