"""`benchmarks.support.rank_processes`: the ranks of benchmarks that have no Dask."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mgclust.base.errors import InputError
from mgclust.data import open_dataset
from mgclust.engine import spmd
from mgclust.engine.dask.cluster import connect
from support import rank_jobs

ROOT = Path(__file__).parents[2]


def test_two_processes_have_the_bits_of_one_and_refuse_what_it_refuses(monkeypatch, rng):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # which the module sets
    from benchmarks.support.rank_processes import Processes

    x = rng.normal(size=(3000, 2)).astype(np.float32)
    with connect(None, "cpu") as cluster:
        alone = spmd.run(spmd.RunSpec(rank_jobs.gram), open_dataset(x), cluster).value[0]
    with Processes(2, "cpu") as ranks:
        for _ in range(2):
            outcome = ranks.run(spmd.RunSpec(rank_jobs.gram), open_dataset(x))
            assert outcome.ranks == 2 and outcome.value[0].tobytes() == alone.tobytes()
            hole = np.where(np.arange(3000)[:, None] == 2000, np.nan, x)
            with pytest.raises(InputError, match="the first in row 2000"):
                ranks.run(spmd.RunSpec(rank_jobs.gram), open_dataset(hole))
