"""What becomes of uploads whose web process was killed."""

from __future__ import annotations

import os
import time

from mgclust.service.settings import Settings
from mgclust.service.sources import sweep


def test_what_was_left_goes_after_a_day(tmp_path):
    settings = Settings(data=tmp_path)
    sweep(settings)  # there are no uploads yet
    for name, file, hours in (("old", "partial", 25), ("new", "partial", 23), ("whole", "points.npy", 1000)):
        folder = tmp_path / "uploads" / name
        folder.mkdir(parents=True)
        (folder / file).write_bytes(b"0")
        past = time.time() - 3600 * hours
        os.utime(folder / file, (past, past))
    sweep(settings)
    assert sorted(os.listdir(tmp_path / "uploads")) == ["new", "whole"]
