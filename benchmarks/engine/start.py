"""How long a process takes before it does its work: imports, help, and that no service answers.

Each command in fresh processes, by turns: processor seconds (user and system), seconds of the clock, and, of a command
that waits for a service, seconds until its first line. Compiled bytecode and files in the page cache are there: the
first round does not count. ``import sklearn.base`` is what scikit-learn itself takes, of which every estimator derives.

    python -m benchmarks.engine.start --out benchmarks/results/engine/start_cpu.json
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from typing import Any

from benchmarks.support import record as bench

FIT = "DensityPeaks(3, client=None, device='cpu').fit(numpy.random.default_rng(0).random((1000, 2)))"
PROGRAMS = {
    "python": ["-c", ""],
    "import numpy": ["-c", "import numpy"],
    "import sklearn.base": ["-c", "import sklearn.base"],
    "import mgclust": ["-c", "import mgclust"],
    "from mgclust import DensityPeaks": ["-c", "from mgclust import DensityPeaks"],
    "the same and a fit of 1,000 rows": ["-c", f"import numpy; from mgclust import DensityPeaks; {FIT}"],
    "mgclust --help": ["-m", "mgclust", "--help"],
    "mgclust run density-peaks --help": ["-m", "mgclust", "run", "density-peaks", "--help"],
    "mgclust jobs, no service": ["-m", "mgclust", "jobs"],
}


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("rounds", options.rounds)
    rounds = [{name: timed(program) for name, program in PROGRAMS.items()} for _ in range(1 + options.rounds)][1:]
    out.note("load", [round(each, 1) for each in os.getloadavg()])
    for name in PROGRAMS:
        figures = {key: statistics.median(each[name][key] for each in rounds) for key in rounds[0][name]}
        out.add(name, **figures, least_cpu_s=min(each[name]["cpu_s"] for each in rounds))


def timed(program: list[str]) -> dict[str, Any]:
    """Run a program of Python once."""
    environment = os.environ | {"MGCLUST_URL": "http://127.0.0.1:9"}  # where nothing answers
    began, before = time.perf_counter(), os.times()
    with subprocess.Popen(
        [sys.executable, *program],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        stdin=subprocess.DEVNULL,
    ) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        told = time.perf_counter() - began
        process.stderr.read()
    after = os.times()
    seconds = after.children_user + after.children_system - before.children_user - before.children_system
    taken = {"cpu_s": seconds, "wall_s": time.perf_counter() - began}
    return taken | ({"first_line_s": told} if line else {})


if __name__ == "__main__":
    main()
