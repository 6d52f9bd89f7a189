"""No test is lost silently.

With MGCLUST_STRICT_SKIPS, skips whose reasons `conftest.MAY_BE_SKIPPED` lacks are failures. The mark `quick` names
cases that exist.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

RUN = """
import pytest

@pytest.mark.skipif(True, reason="CuPy sees no GPU")
def test_on_the_list():
    pass

@pytest.mark.skip(reason="not today")
def test_by_a_mark():
    pass

def test_inside():
    pytest.importorskip("no_such_module")

@pytest.fixture
def lacking():
    pytest.skip("needs a database")

def test_in_a_fixture(lacking):
    pass

@pytest.mark.xfail(reason="known")
def test_that_is_known_to_fail():
    assert False

def test_that_passes():
    pass
"""


@pytest.fixture
def run(tmp_path):
    shutil.copy(Path(__file__).parent / "conftest.py", tmp_path)
    (tmp_path / "test_run.py").write_text(RUN)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")

    def run(*options, strict):
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "MGCLUST"))}
        environment |= {"MGCLUST_STRICT_SKIPS": "1"} if strict else {}
        environment |= {} if "-n" in options else {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # which takes seconds
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:schemathesis", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout + done.stderr

    return run


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_skips_that_are_not_on_the_list_fail(run, options):
    code, said = run(*options, strict=True)
    assert code == 1 and "1 failed, 1 passed, 1 skipped, 1 xfailed, 2 errors" in said, said
    for reason in ("not today", "could not import 'no_such_module'", "needs a database"):
        assert f"MAY_BE_SKIPPED of tests/conftest.py lacks: {reason}" in said, said
    assert "SKIPPED [1] test_run.py:4: CuPy sees no GPU" in said


@pytest.mark.parametrize("options", [(), pytest.param(("-n", "1"), marks=pytest.mark.slow)])
def test_a_module_that_is_skipped_fails(run, tmp_path, options):
    (tmp_path / "test_whole.py").write_text("import pytest\npytest.importorskip('no_such_module')\n")
    code, said = run(*options, strict=True)
    assert code != 0 and "lacks: could not import 'no_such_module'" in said, said


def test_elsewhere_they_are_skips(run):
    code, said = run(strict=False)
    assert code == 0 and "1 passed, 4 skipped, 1 xfailed" in said, said


QUICK = """
import pytest

@pytest.mark.quick({patterns})
@pytest.mark.parametrize("x", [1, 12])
def test_cases(x):
    pass
"""


def test_quick_cases_are_not_slow(run, tmp_path):
    (tmp_path / "test_quick.py").write_text(QUICK.format(patterns="'1'"))
    code, said = run("-m", "not slow", "test_quick.py", strict=False)
    assert code == 0 and "1 passed, 1 deselected" in said, said


@pytest.mark.parametrize(("patterns", "lost"), [("'1', '13-*'", "{'13-*'}"), ("", "{'no case is named'}")])
def test_a_quick_case_that_does_not_exist_fails(run, tmp_path, patterns, lost):
    (tmp_path / "test_quick.py").write_text(QUICK.format(patterns=patterns))
    code, said = run("-m", "not slow", "test_quick.py", strict=False)
    assert code == 4 and f"quick tests that do not exist: {{'test_quick.py::test_cases': {lost}}}" in said, said


def test_a_quick_mark_of_a_test_without_cases_fails(run, tmp_path):
    whole = "import pytest\n\n@pytest.mark.quick('1')\ndef test_it():\n    pass\n"
    (tmp_path / "test_quick.py").write_text(whole)
    code, said = run("-m", "not slow", "test_quick.py", strict=False)
    assert code == 4 and "quick tests that do not exist: {'test_quick.py::test_it': {'1'}}" in said, said
