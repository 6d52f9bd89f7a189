"""`benchmarks.support.made_rows`: a GPU makes the rows that the CPU makes, whichever rows are read together."""

from __future__ import annotations

import ctypes
import subprocess
from pathlib import Path

import numpy as np
import pytest

from support import cuda_on_cpu

ROOT = Path(__file__).parents[2]
KERNEL = """
extern "C" void make(long long first, long long d, unsigned long long k, unsigned long long offset, float spread,
                     float* out, long long count) {{
    for (long long i = 0; i < count; ++i) {{
        float& y = out[i];
        const long long row = first + i / d, f = i % d;
        {code}
    }}
}}
"""


@pytest.mark.skipif(cuda_on_cpu.compiler() is None, reason="there is no C++ compiler")
@pytest.mark.parametrize(("kind", "shape"), [("Made", (1000, 5, 7)), ("OnGrid", (1000, 3, 5)), ("Voxels", (4000, 9))])
def test_the_code_for_gpus_makes_the_rows_of_the_cpu(kind, shape, tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT))
    from benchmarks.support import made_rows

    rows = getattr(made_rows, kind)(*shape, "cpu")
    (n, d), first = rows.shape, 7
    source, library = tmp_path / "rows.cpp", tmp_path / "rows.so"
    head = "#include <cmath>\n#define __device__\nstatic float cospif(float x) { return std::cos(M_PI * x); }\n"
    source.write_text(head + made_rows._HASH + KERNEL.format(code=rows.code))
    flags = ["-std=c++17", "-Werror=narrowing", "-O1", "-shared", "-fPIC"]
    subprocess.run([cuda_on_cpu.compiler(), *flags, "-o", library, source], check=True, timeout=100)
    make, out = ctypes.CDLL(str(library)).make, np.empty((n - first, d), np.float32)
    numbers = [
        ctypes.c_longlong(first),
        ctypes.c_longlong(d),
        *map(ctypes.c_ulonglong, (rows._count, made_rows.OFFSET)),
    ]
    make(*numbers, ctypes.c_float(rows.spread), ctypes.c_void_p(out.ctypes.data), ctypes.c_longlong(out.size))
    np.testing.assert_allclose(out, rows.read(first, n), atol=1e-5)
    assert np.array_equal(rows.read(100, 203), rows.read(0, n)[100:203])
