"""Whether canopy clustering is its sequential definition: centres, memberships and labels beside a float64 oracle.

The data of Hayashi and others (normal in a cube of side 10 n, deviation 10 n / 6, t2 = 0.7 t1): t1 = 0.5 n in two to
six dimensions for growing n, and t1 = n at n = 100,000, their first experiment; BIRCH1 to BIRCH3 and pendigits. Each
in the order of the file, sorted, shuffled, and with order="random", of which the definition in that order is asked.
Counted: centres at another place of the list, memberships that only one side has, labels that differ. All are to be 0
in float64; float32 is shown beside it.

    python -m benchmarks.canopy.accuracy --data FOLDER --out benchmarks/results/canopy/accuracy.json
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from oracles import canopy as reference

# t1 and t2 where coordinates are whole numbers are whole too: distances equal to them occur.
REAL = {
    "birch1": (60_000.0, 40_000.0),
    "birch2": (30_000.0, 20_000.0),
    "birch3": (60_000.0, 40_000.0),
    "pendigits": (100.0, 60.0),
}
SEED = 0
SIZES = (1_000, 10_000, 100_000)


def cases(data: Path | None, sizes: list[int]) -> Iterator[tuple[str, np.ndarray, float, float]]:
    for n in sizes:
        for d in range(2, 7):
            yield f"paper n={n} d={d} t1=0.5n", reference.papers_data(n, d), 0.5 * n, 0.35 * n
    if max(sizes) == 100_000:
        for d in range(2, 7):
            yield f"paper n=100000 d={d} t1=n", reference.papers_data(100_000, d), 1e5, 0.7e5
    for name, (t1, t2) in REAL.items():
        loaded = sets.load(name, data)
        if loaded is not None:
            yield name, loaded[0].astype("float64"), t1, t2


def differences(model: Any, ref: reference.CanopyReference) -> dict[str, Any]:
    ours, theirs = model.cluster_centers_indices_, ref.centers
    common = min(len(ours), len(theirs))
    out: dict[str, Any] = {
        "centers_that_differ": int((ours[:common] != theirs[:common]).sum()) + abs(len(ours) - len(theirs)),
    }
    if out["centers_that_differ"]:  # other centres, other canopies: nothing to count
        return out
    missing = int((ref.memberships > model.memberships_).nnz)
    extra = int((model.memberships_ > ref.memberships).nnz)
    out["memberships_that_differ"] = missing + extra
    out["labels_that_differ"] = int((model.labels_ != ref.labels).sum())
    return out


def compare(out: bench.Record, name: str, X: np.ndarray, t1: float, t2: float, options: Any) -> None:
    from mgclust import Canopy
    from mgclust.algorithms.canopy.centers import priorities

    shuffled = np.random.default_rng(1).permutation(len(X))
    arranged = {"file": X, "sorted": X[np.lexsort(X.T[::-1])], "shuffled": X[shuffled], "random": X}
    for arrangement, rows in arranged.items():
        ref = None
        for dtype in options.dtypes.split(","):
            order = "random" if arrangement == "random" else "index"
            model = Canopy(t1, t2, order=order, dtype=dtype, device=options.device, client=None, random_state=SEED)
            start = time.perf_counter()
            model.fit(rows)
            took = time.perf_counter() - start
            start = time.perf_counter()
            if ref is None:
                asked = np.argsort(priorities(np.arange(len(rows)), SEED)) if order == "random" else None
                ref = reference.canopy(rows, t1, t2, order=asked)
                their_seconds = time.perf_counter() - start
            out.add(
                f"{name} {arrangement} {dtype}",
                n=len(rows),
                d=rows.shape[1],
                t1=t1,
                t2=t2,
                canopies=model.n_canopies_,
                canopies_of_oracle=len(ref.centers),
                memberships_per_row=model.memberships_.nnz / len(rows),
                steps=model.n_steps_,
                **differences(model, ref),
                seconds=took,
                oracle_seconds=their_seconds,
            )


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sizes", default=",".join(map(str, SIZES)), help="rows of the paper's data")
    parser.add_argument("--dtypes", default="float64,float32")
    parser.add_argument("--small", action="store_true", help="only 1,000 rows of the paper's data, to try it out")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("device", options.device)
    sizes = [SIZES[0]] if options.small else [int(n) for n in options.sizes.split(",")]
    for name, X, t1, t2 in cases(options.data, sizes):
        if options.small and name in REAL:
            break
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compare(out, name, X, t1, t2, options)
            except Exception as error:
                out.add(name, failed=f"{type(error).__name__}: {error}")
    counts = ("centers_that_differ", "memberships_that_differ", "labels_that_differ")
    exact = [item for item in out.document["items"] if item["item"].endswith("float64")]
    out.note("float64_items", len(exact))
    out.note("float64_items_that_differ", [i["item"] for i in exact if any(i.get(count, 1) for count in counts)])


if __name__ == "__main__":
    main()
