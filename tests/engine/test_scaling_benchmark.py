"""`benchmarks.engine.scaling`: the script runs without a GPU, within its budget, and notices other bits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def benchmarks(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # which the module sets
    from benchmarks.engine import scaling
    from benchmarks.support import record, result_bits

    return SimpleNamespace(scaling=scaling, record=record, bits=result_bits)


def hash_of_part(bits, array, rank, lengths):
    """The hash of the rows of one rank alone."""

    def all_gather(own):
        return np.array(lengths) if own.dtype == int and own[0] == lengths[rank] else own

    context = SimpleNamespace(
        kernels=SimpleNamespace(xp=np), rank=rank, comm=SimpleNamespace(all_gather=all_gather)
    )  # fmt: skip
    return bits._sum(context, array)


def test_the_hash_is_that_of_the_whole_array_however_it_is_divided_and_of_no_other(benchmarks, rng):
    x = rng.normal(size=(1000, 3)).astype(np.float32)
    whole = hash_of_part(benchmarks.bits, x, 0, [x.size])
    parts = [
        hash_of_part(benchmarks.bits, x[:301], 0, [903, 2097]),
        hash_of_part(benchmarks.bits, x[301:], 1, [903, 2097]),
    ]
    assert sum(parts) % 2**64 == whole
    other = x.copy()
    other[[7, 8]] = x[[8, 7]]
    assert hash_of_part(benchmarks.bits, other, 0, [x.size]) != whole
    other = x.copy()
    other[999, 2] = np.nextafter(x[999, 2], np.float32(9))
    assert hash_of_part(benchmarks.bits, other, 0, [x.size]) != whole


def test_cases_beyond_the_budget_are_left_out_on_all_numbers_of_gpus_and_said_to_be(benchmarks, tmp_path, monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="benchmarks.engine.scaling"))
    scaling, out = benchmarks.scaling, benchmarks.record.Record("What?", tmp_path / "record.json")
    options = SimpleNamespace(budget_seconds=200.0, numbers=[1, 2, 4], killed=True, size="full", device="cpu")
    chosen = scaling.Schedule(options).plan(scaling.CASES, out)
    assert chosen[0] is scaling.CASES[0] and len(chosen) < len(scaling.CASES)
    skipped = [item for item in json.loads((tmp_path / "record.json").read_text())["items"] if "skipped" in item]
    assert len(skipped) + len(chosen) == len(scaling.CASES)
    options.budget_seconds = 1e6
    assert scaling.Schedule(options).plan(scaling.CASES, out) == scaling.CASES


@pytest.mark.slow
def test_the_script_runs_on_cpus_and_its_record_makes_a_table(tmp_path):
    record = tmp_path / "record.json"
    command = [sys.executable, "-m", "benchmarks.engine.scaling"]
    small = ["--gpus", "1,2", "--sizes", "tiny", "--device", "cpu", "--out", str(record)]
    small += ["--cases", "silhouettes;communities;canopies;killed worker"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}
    done = subprocess.run([*command, *small], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=140)
    assert done.returncode == 0, done.stderr
    found = json.loads(record.read_text())
    assert found["same_bits_in_all"]
    killed = found["items"][-1]
    assert killed["item"] == "killed worker on 2" and killed["same_bits"] and "resumes" in killed["said"][0]
    table = subprocess.run(
        [*command, "--table", str(record)], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60
    )
    assert "| canopies, 5,000 x 6 |" in table.stdout
