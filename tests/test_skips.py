"""No test is skipped silently: with MGCLUST_STRICT_SKIPS, reasons that `conftest.MAY_BE_SKIPPED` lacks are failures."""

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
        command = [sys.executable, "-m", "pytest", "-q", "-rs", "-p", "no:schemathesis", *options]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120)
        return done.returncode, done.stdout

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
