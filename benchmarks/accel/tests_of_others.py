"""The projects' own tests that pass while their calls run on mgclust.

Their test modules, unmodified, under ``python -m mgclust.accel -m pytest``. Those of scikit-learn and networkx are
installed with them; those of scikit-fuzzy and igraph are taken from `--sources`, as of `benchmarks.accel.gallery`.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from benchmarks.accel.gallery import PROJECTS
from benchmarks.support.record import Record, parser

MODULES = [
    ("sklearn.cluster.tests.test_affinity_propagation", []),
    ("sklearn.metrics.cluster.tests.test_unsupervised", []),
    ("skfuzzy/cluster/tests/test_cmeans.py", []),
    ("networkx.algorithms.community.tests.test_modularity_max", []),
    ("networkx.algorithms.community.tests.test_louvain", []),
    ("networkx.algorithms.community.tests.test_louvain", ["--seeded"]),
    ("networkx.algorithms.community.tests.test_leiden", []),
    ("tests/test_decomposition.py", []),
]


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sources", type=Path, required=True)
    given = options.parse_args()
    record = Record(__doc__, given.out, PROJECTS)
    for module, switch in MODULES:
        with tempfile.TemporaryDirectory() as folder:
            here, report, counts = Path(folder), Path(folder) / "report.xml", Path(folder) / "counts.json"
            tested = ["--pyargs", module]
            if module.endswith(".py"):
                shutil.copy(next(given.sources.glob(f"*/{module}")), here)
                tested = [Path(module).name]
            command = [sys.executable, "-m", "mgclust.accel", "-q", "--json", str(counts), *switch, "-m", "pytest"]
            command += ["-q", "-p", "no:cacheprovider", f"--junitxml={report}", *tested]
            environment = {**os.environ, "SKLEARN_RUN_FLOAT32_TESTS": "1"}
            subprocess.run(command, cwd=here, env=environment, stdout=subprocess.DEVNULL, check=False)
            cases = list(ET.parse(report).iter("testcase"))
            calls = json.loads(counts.read_text())
        failed = [case.get("name", "") for case in cases if any(part.tag in ("failure", "error") for part in case)]
        skipped = sum(case.find("skipped") is not None for case in cases)
        record.add(
            " ".join([module, *switch]),
            cases=len(cases),
            passed=len(cases) - len(failed) - skipped,
            skipped=skipped,
            not_passed=failed,
            on_mgclust=sum(each["on_mgclust"] for each in calls),
            on_the_original=sum(sum(each["fell_back"].values()) for each in calls),
            calls=calls,
        )


if __name__ == "__main__":
    main()
