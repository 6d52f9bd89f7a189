"""What dc_fraction="auto" costs: fits at the defaults, beside those of the version whose default was 0.02.

Every NAME.npz of the folder, in processes of either version by turns. A figure is the least processor time of all
threads, which other load on the machine moves little.

    git worktree add ../before bba2b9e^
    python -m benchmarks.density_peaks.defaults_cost --data FOLDER --before ../before --out NAME.json
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time
import warnings
from pathlib import Path

import numpy as np

ROUNDS, REPEATS, SECONDS = 3, 12, 0.3
MAX_NUMBERS = 1 << 23  # of a set
WANTED = 1.5
HERE = Path(__file__).resolve().parents[2]


def work(folder: Path) -> None:
    """Fit all sets with the mgclust that this process finds; one line of JSON."""
    import mgclust

    found = {}
    for path in sorted(folder.glob("*.npz")):
        with np.load(path, allow_pickle=False) as arrays:
            X = np.ascontiguousarray(arrays["X"])
        if X.size > MAX_NUMBERS:
            continue

        def fit(X: np.ndarray = X) -> float:
            start = time.process_time()
            mgclust.DensityPeaks(device="cpu", client=None).fit(X)
            return time.process_time() - start

        fit()
        repeats = min(REPEATS, max(2, int(SECONDS / fit())))
        found[path.stem] = {"n": len(X), "d": X.shape[1], "seconds": min(fit() for _ in range(repeats))}
    print(json.dumps({"source": mgclust.__file__, "found": found}))


def main() -> None:
    from benchmarks.support import record as bench  # the other version's processes have none like it

    parser = bench.parser(__doc__)
    parser.add_argument("--before", type=Path, required=True, help="source of the earlier version")
    given = parser.parse_args()
    out = bench.Record(__doc__, given.out)
    roots = {"before": given.before.resolve(), "now": HERE}
    least: dict[str, dict[str, dict[str, float]]] = {which: {} for which in roots}
    for _ in range(ROUNDS):
        for which, root in roots.items():
            # By its path, so that this file runs in the other version, too, which has none like it.
            code = (
                f"import sys, runpy; sys.path[:0] = [{str(root)!r}]; runpy.run_path({__file__!r}, run_name='__main__')"
            )
            command = [sys.executable, "-c", code, "--work", str(given.data.resolve())]
            done = subprocess.run(command, capture_output=True, text=True, check=True, cwd=root)
            answer = json.loads(done.stdout.splitlines()[-1])
            assert Path(answer["source"]).is_relative_to(root), answer["source"]
            for name, figures in answer["found"].items():
                kept = least[which].setdefault(name, figures)
                kept["seconds"] = min(kept["seconds"], figures["seconds"])
    ratios = []
    for name, now in least["now"].items():
        before = least["before"][name]["seconds"]
        ratios.append(now["seconds"] / before)
        out.add(name, **{**now, "seconds_before": before, "ratio": ratios[-1]})
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=given.before, capture_output=True, text=True)
    both = [sum(figures["seconds"] for figures in least[which].values()) for which in roots]
    out.note("before", commit.stdout.strip())
    out.note(
        "summary",
        {
            "sets": len(ratios),
            "median_ratio": statistics.median(ratios),
            "ratio_of_all": both[1] / both[0],
            "at_most_wanted": sum(ratio <= WANTED for ratio in ratios),
            "wanted": WANTED,
        },
    )
    print(out.document["summary"])


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        warnings.simplefilter("ignore")
        work(Path(sys.argv[2]))
    else:
        main()
