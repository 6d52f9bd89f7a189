"""A first fit on a GPU waits for no kernel that takes CuPy seconds to compile, and for few of its others."""

import json
import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.gpu

SCRIPT = """
import json, warnings
import numpy as np
from cupy_backends.cuda.libs import nvrtc
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
for d in (2, 40):
    X = (rng.normal(size=(3000, d)) + 6 * rng.integers(0, 4, (3000, 1))).astype("float32")
    on_gpu = {"device": "cuda", "client": None}
    mgclust.DensityPeaks(**on_gpu).fit(X)
    mgclust.FuzzyCMeans(4, **on_gpu).fit(X)
    mgclust.Canopy(9.0, 8.0, **on_gpu).fit(X)
    mgclust.AffinityPropagation(**on_gpu).fit(X[:500])
    mgclust.nearest_neighbors(X, 5, **on_gpu)
    mgclust.silhouette_samples(X, np.arange(3000) % 4, **on_gpu)
print(json.dumps([next((name for name in ("#include <cub/", "cupy/carray") if name in each), "") for each in here]))
"""


def test_first_fits_compile_nothing_from_cubs_headers(tmp_path):
    environment = os.environ | {"CUPY_CACHE_DIR": str(tmp_path), "CUDA_CACHE_PATH": str(tmp_path / "cuda")}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    compiled = json.loads(done.stdout.splitlines()[-1])
    assert "#include <cub/" not in compiled
    if len(os.sched_getaffinity(0)) > 4:  # the record has CuPy's programs of these fits, but for a few
        assert compiled.count("cupy/carray") < 60
