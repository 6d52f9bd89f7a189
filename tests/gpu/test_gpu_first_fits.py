"""A first fit on a GPU waits for no kernel that takes CuPy seconds to compile, and says that it compiles."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = """
import json, warnings
import numpy as np
from cupy.cuda import nvrtc
import mgclust

programs, here, create, compile_ = {}, [], nvrtc.createProgram, nvrtc.compileProgram

def created(program, *arguments):
    at = create(program, *arguments)
    programs[at] = program
    return at

def compiled(at, *arguments):
    here.append(programs[at])
    return compile_(at, *arguments)

nvrtc.createProgram, nvrtc.compileProgram = created, compiled
warnings.simplefilter("ignore")
rng = np.random.default_rng(0)
told = []
for d in (2, 40):
    X = (rng.normal(size=(3000, d)) + 6 * rng.integers(0, 4, (3000, 1))).astype("float32")
    on_gpu = {"device": "cuda", "client": None}
    for _ in range(2):
        events = []
        mgclust.DensityPeaks(**on_gpu).fit_dataset(mgclust.open_dataset(X), events.append)
        told.append(max(event.get("compiling", 0) for event in events))
    mgclust.FuzzyCMeans(4, **on_gpu).fit(X)
    mgclust.Canopy(9.0, 8.0, **on_gpu).fit(X)
    mgclust.AffinityPropagation(**on_gpu).fit(X[:500])
    mgclust.nearest_neighbors(X, 5, **on_gpu)
    mgclust.silhouette_samples(X, np.arange(3000) % 4, **on_gpu)
print(json.dumps({"told": told, "cub": sum("#include <cub/" in each for each in here)}))
"""


def test_first_fits_compile_nothing_from_cubs_headers(tmp_path):
    environment = os.environ | {"CUPY_CACHE_DIR": str(tmp_path), "CUDA_CACHE_PATH": str(tmp_path / "cuda")}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["cub"] == 0
    first, again, other, once_more = found["told"]
    assert first > 0 == again
    assert other > 0 == once_more
