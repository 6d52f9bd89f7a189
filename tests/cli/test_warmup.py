"""`mgclust warmup`: what it compiles, later processes need not."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from mgclust import cli
from mgclust.algorithms import METHODS

FIT = """
import numpy as np
from numba.core import event
import mgclust
compiled = []
class Listener(event.Listener):
    def on_start(self, found): compiled.append(found.data["dispatcher"])
    def on_end(self, found): pass
event.register("numba:compile", Listener())
mgclust.silhouette_samples(np.random.default_rng(0).random((500, 7)), np.arange(500) % 4, client=None, device="cpu")
print(len(compiled))
"""


@pytest.mark.slow
def test_a_first_run_compiles_nothing(tmp_path):
    environment = os.environ | {"NUMBA_CACHE_DIR": str(tmp_path)}

    def python(*args):
        done = subprocess.run([sys.executable, *args], env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    told = python("-m", "mgclust", "warmup", "--cpu", "silhouette").splitlines()
    assert len(told) == 2 and told[0].startswith("silhouette, ") and told[-1].startswith("done in ")
    assert list(tmp_path.rglob("*.nbc"))
    assert python("-c", FIT) == "0\n"


def test_a_method_that_does_not_exist(capsys):
    assert cli.run_command(["warmup", "k-means"]) == 2
    assert "method='k-means' should be one of 'density-peaks', " in capsys.readouterr().err


@pytest.mark.parametrize("method", METHODS)
def test_no_method_is_left_out(method):
    assert METHODS[method].warm_ups()
    for case in METHODS[method].warm_ups():
        METHODS[method](**case.parameters)._checked()
