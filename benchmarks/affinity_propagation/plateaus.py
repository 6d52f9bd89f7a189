"""Which plateaus of profile "code" profile "fast" passes, in which share of the iterations.

    python -m benchmarks.affinity_propagation.plateaus --out benchmarks/results/affinity_propagation/plateaus.json

A plateau is a number of clusters that "code" has confirmed more than once: it outlasts a step of the preference. It is
passed where "fast" has a candidate with that number. The first eight sets are of the kinds that decision 25 names;
those with a number behind their name have other seeds. The schedule was chosen with a look at all of them. float64 on
a CPU, all from their defaults. Limit: no plateau missed, in a tenth of the iterations.
"""

from __future__ import annotations

import re
import time
import warnings
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

GENERATED = ("gaussians-2", "gaussians-5", "gaussians-10", "uniform-2", "uniform-16", "series")
CHOSEN_ON = ("wine", "ionosphere", *GENERATED)
FURTHER = tuple(f"{name}:{seed}" for seed in (2, 3) for name in GENERATED)


def generated(kind: str, seed: int) -> np.ndarray:
    """Rows of a kind: clusters that overlap, noise, or series that share sources."""
    rng = np.random.default_rng(seed)
    if kind == "series":
        sources, weight = rng.normal(size=(12, 100)), rng.random((240, 1))
        return weight * sources[rng.integers(12, size=240)] + (1 - weight) * rng.normal(size=(240, 100))
    name, d = kind.rsplit("-", 1)
    if name == "uniform":
        return rng.random(({"2": 150, "16": 200}[d], int(d)))
    clusters, rows, spread = {"2": (15, 600, 8.0), "5": (8, 300, 4.0), "10": (10, 400, 2.0)}[d]
    return rng.normal(size=(clusters, int(d)))[rng.integers(clusters, size=rows)] * spread + rng.normal(
        size=(rows, int(d))
    )


def rows_of(name: str) -> np.ndarray:
    """Rows of a set of the tests, or KIND:SEED."""
    kind, _, seed = name.partition(":")
    return generated(kind, int(seed or 1)) if kind in GENERATED else sets.load(name, None)[0]


def scan(name: str, profile: str) -> Any:
    """A fitted scan."""
    from mgclust import AdaptiveAffinityPropagation

    affinity = "correlation" if name.startswith("series") else "euclidean"
    model = AdaptiveAffinityPropagation(
        profile=profile, affinity=affinity, device="cpu", client=None, dtype="float64", random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(rows_of(name))


def plateaus_of(model: Any) -> list[int]:
    """Numbers of clusters that were confirmed more than once."""
    confirmed = [int(number) for line in model.log_ for number in re.findall(r"K = (\d+) confirmed", line)]
    return sorted({k for k in confirmed if confirmed.count(k) > 1})


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--sets", default=",".join([*CHOSEN_ON, *FURTHER]))
    parser.add_argument("--small", action="store_true", help="only wine, to try the script out")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    totals = {"chosen on": np.zeros(4, int), "further": np.zeros(4, int)}
    for name in ["wine"] if options.small else options.sets.split(","):
        start = time.process_time()
        slow, fast = scan(name, "code"), scan(name, "fast")
        plateaus = plateaus_of(slow)
        missed = [k for k in plateaus if k not in fast.scan_["n_clusters"]]
        totals["further" if ":" in name else "chosen on"] += [
            len(plateaus),
            len(missed),
            slow.n_iter_,
            fast.n_iter_,
        ]
        out.add(
            name,
            rows=len(slow.labels_),
            plateaus=plateaus,
            missed=missed,
            iterations_code=slow.n_iter_,
            iterations_fast=fast.n_iter_,
            share=fast.n_iter_ / slow.n_iter_,
            ended=[slow.converged_, fast.converged_],
            silhouette_code=slow.silhouette_,
            silhouette_fast=fast.silhouette_,
            processor_seconds=time.process_time() - start,
        )
    for part, (plateaus, missed, slow, fast) in totals.items():
        if slow:
            out.add(f"all, {part}", plateaus=plateaus, missed=missed, iterations_code=slow, share=fast / slow)


if __name__ == "__main__":
    main()
