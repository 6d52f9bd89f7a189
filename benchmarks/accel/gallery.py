"""Calls of other projects' gallery scripts that run on mgclust, and what differs.

Scripts of the galleries of scikit-learn, scikit-fuzzy, networkx and igraph, unmodified, each in a process of its own,
with ``python -m mgclust.accel`` and without, in a copy of its folder, where galleries run them and some find their
files. They are not part of mgclust: `--sources` is a folder of the projects' sources, as
``pip download --no-deps --no-binary PROJECT PROJECT`` and ``tar xf`` leave them, or clones.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.support.record import Record, parser

LINKS = {
    "scikit-learn": "https://github.com/scikit-learn/scikit-learn/blob/main/",
    "scikit-fuzzy": "https://github.com/scikit-fuzzy/scikit-fuzzy/blob/master/",
    "networkx": "https://github.com/networkx/networkx/blob/main/",
    "igraph": "https://github.com/igraph/python-igraph/blob/main/",
}
PROJECTS = ("scikit-fuzzy", "networkx", "igraph")  # beside scikit-learn, which all records name
# The first eleven have calls that are replaced, and no other script of the four galleries has. The others have none.
SCRIPTS = [
    ("scikit-learn", "examples/cluster/plot_affinity_propagation.py"),
    ("scikit-learn", "examples/cluster/plot_cluster_comparison.py"),
    ("scikit-learn", "examples/cluster/plot_dbscan.py"),
    ("scikit-learn", "examples/cluster/plot_kmeans_digits.py"),
    ("scikit-learn", "examples/cluster/plot_kmeans_silhouette_analysis.py"),
    ("scikit-learn", "examples/release_highlights/plot_release_highlights_1_1_0.py"),
    ("scikit-learn", "examples/applications/plot_stock_market.py"),
    ("scikit-learn", "examples/text/plot_document_clustering.py"),
    ("scikit-fuzzy", "docs/examples/plot_cmeans.py"),
    ("networkx", "examples/drawing/plot_clusters.py"),
    ("igraph", "doc/examples_sphinx-gallery/stochastic_variability.py"),
    ("scikit-learn", "examples/cluster/plot_kmeans_assumptions.py"),
    ("scikit-learn", "examples/cluster/plot_optics.py"),
    ("networkx", "examples/algorithms/plot_girvan_newman.py"),
    ("networkx", "examples/algorithms/plot_davis_club.py"),
    ("networkx", "examples/algorithms/plot_blockmodel.py"),
    ("networkx", "examples/graph/plot_karate_club.py"),
    ("igraph", "doc/examples_sphinx-gallery/cluster_contraction.py"),
    ("igraph", "doc/examples_sphinx-gallery/visualize_communities.py"),
    ("igraph", "doc/examples_sphinx-gallery/quickstart.py"),
]
LONGEST = 240  # seconds


def find(sources: Path, script: str) -> Path | None:
    """The script below one of the folders."""
    return next((each for each in sorted(sources.glob(f"*/{script}"))), None)


def run(script: Path, switch: list[str]) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Seconds and outcome of a script."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = shutil.copytree(script.parent, Path(temporary) / "gallery")
        here = {**os.environ, "MPLBACKEND": "Agg", "PYTHONHASHSEED": "0"}
        begin = time.perf_counter()
        command = [sys.executable, *switch, script.name]
        try:
            done = subprocess.run(command, cwd=folder, env=here, capture_output=True, text=True, timeout=LONGEST)
        except subprocess.TimeoutExpired:
            done = subprocess.CompletedProcess(command, 124, "", f"longer than {LONGEST} s")
        return time.perf_counter() - begin, done


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--sources", type=Path, required=True)
    given = options.parse_args()
    record = Record(__doc__, given.out, PROJECTS)
    for project, name in SCRIPTS:
        script = find(given.sources, name)
        item, link = f"{project}: {Path(name).name}", LINKS[project] + name
        if script is None:
            record.add(item, link=link, ran="not found below --sources")
            continue
        before, plain = run(script, [])
        if plain.returncode:
            record.add(item, link=link, ran="fails by itself: " + (plain.stderr.strip().splitlines() or [""])[-1][:200])
            continue
        with tempfile.TemporaryDirectory() as folder:
            counts = Path(folder) / "counts.json"
            after, switched = run(script, ["-m", "mgclust.accel", "-q", "--json", str(counts)])
            calls = json.loads(counts.read_text()) if counts.exists() else []
        same = switched.stdout == plain.stdout
        lines = [line for line in switched.stdout.splitlines() if line not in plain.stdout.splitlines()]
        record.add(
            item,
            link=link,
            exit_code=switched.returncode,
            seconds_without=before,
            seconds_with=after,
            calls=[{key: value for key, value in call.items() if value} for call in calls],
            same_output=same,
            other_lines=lines[:8],
        )


if __name__ == "__main__":
    main()
