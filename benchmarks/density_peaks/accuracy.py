"""How exact the results are: every set against the float64 oracle, and its score against the known truth.

rho's largest relative difference, the points whose nearest higher point differs (only densities or distances
equal to rounding are forgiven; anything else fails), whether all labels agree, and the adjusted Rand index of
both. dc is at 2% of the pairs, as many centres as the truth has.

    python -m benchmarks.density_peaks.accuracy --data FOLDER --out NAME.json
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from oracles import density_peaks as reference

SETS = {
    **{"r15": 15, "d31": 31, "aggregation": 7, "s1": 15, "s2": 15, "s3": 15, "spiral": 3, "flame": 2},
    **{f"dim{d:03d}": 16 for d in (32, 64, 128, 256, 512, 1024)},
    **{"pendigits": 10, "usps": 10, "mnist_t10k": 10},
}
# Of sets that are in no folder of the repository: dc at 2% of the pairs, and the least agreement with the truth.
KNOWN = {"r15": (0.3694, 0.992), "d31": (1.4312, 0.934)}


def keep_distances(X) -> None:
    """Let the oracle compute its distances once: n is at most 11,000 here."""
    d = np.concatenate([block for _, block in ORACLE_BLOCKS(X, "euclidean")])

    def blocks(_, metric):
        for start in range(0, len(d), reference.BLOCK):
            rows = slice(start, min(start + reference.BLOCK, len(d)))
            yield rows, d[rows].copy()

    reference.row_blocks = blocks
    reference.pdist = lambda *_: d[np.triu_indices(len(d), 1)]


ORACLE_BLOCKS = reference.row_blocks


def main() -> None:
    from sklearn.metrics import adjusted_rand_score

    from mgclust import DensityPeaks

    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sets", default=",".join(SETS))
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    for name in options.sets.split(","):
        loaded = sets.load(name, options.data)
        if loaded is None:
            continue
        X, y = loaded
        keep_distances(X)
        ref = reference.density_peaks(X, SETS[name])
        for algorithm in ("brute", "grid") if X.shape[1] <= 3 else ("brute",):
            for dtype in ("float32", "float64"):
                model = DensityPeaks(
                    n_clusters=SETS[name], device=options.device, client=None, algorithm=algorithm, dtype=dtype
                ).fit(X)
                atol = reference.rounding(X, dtype)
                try:
                    differ = reference.check_against_reference(X, model, ref, atol=atol)
                except AssertionError as error:
                    differ = f"FAILED: {str(error).strip().splitlines()[0]}"
                ari = float(adjusted_rand_score(y, model.labels_))
                known = {}
                if name in KNOWN:
                    dc, least = KNOWN[name]
                    known = {"as_known": bool(abs(model.dc_ - dc) <= 5e-5 and ari >= least)}
                out.add(
                    f"{name} {algorithm} {dtype}",
                    dc=model.dc_,
                    dc_relative_error=abs(model.dc_ - ref.dc) / ref.dc,
                    rho_largest_relative_error=float(np.max(np.abs(model.rho_ - ref.rho) / ref.rho)),
                    nearest_higher_that_differ_by_ties=differ,
                    labels_that_differ=int((reference.owners(model) != ref.owner).sum()),
                    ari=ari,
                    ari_of_oracle=float(adjusted_rand_score(y, ref.owner)),
                    **known,
                )


if __name__ == "__main__":
    main()
