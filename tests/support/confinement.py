"""What tests of confinement need. Where `tests/conftest.py` forbids skips, the lack of Landlock alone excuses one."""

from __future__ import annotations

import os

import pytest

from mgclust.service.confined.confine import landlock
from mgclust.service.confined.system_calls import is_filtered

needs_landlock = pytest.mark.skipif(not landlock(), reason="there is no Landlock")
needs_seccomp = pytest.mark.skipif(not is_filtered(), reason="there is no seccomp")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="changing accounts takes root")
