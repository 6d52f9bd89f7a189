"""What public CI and pre-commit run: the scripts of `.ci`, and nothing else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[2]
SCRIPTS = ("run", "checks", "package")


def test_the_workflow_runs_one_script():
    workflow = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
    (job,) = workflow["jobs"].values()
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    used = dict(step["uses"].split("@") for step in job["steps"] if "uses" in step)
    assert set(used) == {"actions/checkout", "actions/setup-python"}
    assert all(re.fullmatch(r"v\d+", version) for version in used.values())
    (python,) = (step["with"]["python-version"] for step in job["steps"] if "with" in step)
    assert f'requires-python = ">={python}"' in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_pre_commit_runs_the_checks_of_ci():
    (repository,) = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"]
    (hook,) = repository["hooks"]
    assert (repository["repo"], hook["language"], hook["entry"]) == ("local", "system", ".ci/checks")
    assert not hook["pass_filenames"]
    run, checks, _ = ((ROOT / ".ci" / name).read_text(encoding="utf-8") for name in SCRIPTS)
    assert checks.split("set -x\n")[1].splitlines() == ["ruff check .", "ruff format --check .", "mypy", "lint-imports"]
    assert ".ci/checks\n" in run and ".ci/package\n" in run


@pytest.mark.parametrize("name", SCRIPTS)
def test_contributing_names_the_scripts(name):
    script = ROOT / ".ci" / name
    assert os.access(script, os.X_OK) and f"`.ci/{name}`" in (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
