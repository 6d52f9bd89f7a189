"""Folders that an attempt closes to their own owner: they are measured and removed where the service is not root."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from mgclust.service.confined.folders import size_of

ACCOUNT = 65534

# In a process of an account that is not root, in a folder of its own. Prints what the folder's size is taken for, and
# what is left of it.
SOURCE = r"""
import os, sys
from pathlib import Path
from mgclust.service.confined.folders import remove, set_aside, size_of

if os.getuid() == 0:
    os.setgroups([])
    os.setresgid(ACCOUNT, ACCOUNT, ACCOUNT)
    os.setresuid(ACCOUNT, ACCOUNT, ACCOUNT)
job, mode = Path(sys.argv[1], "job"), int(sys.argv[2], 8)
NAMES = ("", "a", "a/b", "a/b/c", "d")

def close():
    for name in NAMES:
        (job / name).chmod(0o700)
    for name in reversed(NAMES):
        (job / name).chmod(mode)

for name in NAMES:
    (job / name).mkdir()
    (job / name / "file").write_bytes(bytes(1000))
close()
print(size_of(job))
close()
DO
print(*sorted(each.name for each in job.parent.iterdir()))
"""


@pytest.fixture
def folder():
    """A folder that another account reaches."""
    made = Path(tempfile.mkdtemp(dir="/tmp"))
    if os.getuid() == 0:
        os.chown(made, ACCOUNT, ACCOUNT)
    yield made
    subprocess.run(["chmod", "-R", "u+rwx", made], check=True)
    shutil.rmtree(made)


def said(folder, mode, do):
    source = SOURCE.replace("ACCOUNT", str(ACCOUNT)).replace("DO", do)
    command = [sys.executable, "-c", source, str(folder), mode]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["000", "100", "200", "300", "400", "500", "600"])
def test_closed_folders_are_measured_and_removed(folder, mode):
    assert said(folder, mode, "remove(job)") == ["5000", ""]


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["000", "500"])
def test_a_closed_folder_is_set_aside(folder, mode):
    """It changes its parent, for which both have to be writable."""
    size, left = said(folder, mode, "set_aside(job / 'a', job.parent)")
    assert (size, len(left.split())) == ("5000", 2)
    aside = next(each for each in folder.iterdir() if each.name.endswith(".deleted"))
    assert size_of(aside) == 3000


def test_links_are_not_opened_up(tmp_path):
    """What a link leads to keeps its mode, and is not counted."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "kept" / "file").write_bytes(bytes(1000))
    (tmp_path / "kept").chmod(0o500)
    (tmp_path / "job").mkdir()
    (tmp_path / "job" / "link").symlink_to(tmp_path / "kept")
    assert size_of(tmp_path / "job") < 1000
    assert (tmp_path / "kept").stat().st_mode & 0o777 == 0o500
