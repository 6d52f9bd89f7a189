"""How exact fuzzy c-means is: centres, memberships and J beside a float64 oracle and scikit-fuzzy.

All from the same initial memberships, after 1, 10 and 100 iterations and where the run has settled. Differences:
centres in units of the rows' root mean square distance from their mean, memberships as they are, J relative; the
largest of each. Bound: 1e-5. Labels are scored against the truth (adjusted Rand index), ours and scikit-fuzzy's.

float32 and float64 are what `dtype` says; "computed_in" tells what `fit` took, since small data are computed in float64
however they are asked for. "single" is float32 arithmetic for these too, to show why.

Beside them, with "amplification": how far the oracle's own centres move when its initial ones are moved by 1e-12 of
the scale, divided by that. From random memberships centres begin close together and separate by growing; no program
keeps more digits than its arithmetic has, less those that this factor takes.

    python -m benchmarks.fuzzy_c_means.accuracy --data FOLDER --out benchmarks/results/fuzzy_c_means/accuracy.json
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import record as bench
from benchmarks.support import sets

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
from mgclust.algorithms.fuzzy_c_means import run_spec
from oracles import fuzzy_c_means as reference
from support import fuzzy_cases

BOUND = 1e-5
FURTHER = {"d31": 31, "htru2": 2, "a1": 20, "a2": 35, "usps": 10}
NUDGE = 1e-12
FEW_NUMBERS = run_spec.FEW_NUMBERS
Start = tuple[np.ndarray, np.ndarray, float, np.ndarray | None]


def start_of(name: str, data: Path | None) -> Start | None:
    """X, initial memberships, m and the truth: of a case of the tests, or of a further set."""
    if name in fuzzy_cases.CASES:
        return fuzzy_cases.start_of(name)
    plain = name.removesuffix(", scaled")
    loaded = sets.load(plain, data)
    if loaded is None:
        return None
    X, y = loaded
    if plain != name:
        X = (X - X.mean(axis=0)) / X.std(axis=0)
    return X, fuzzy_cases.random_memberships(len(X), FURTHER[plain]), 2.0, y


def amplification(X: np.ndarray, U: np.ndarray, m: float, known: dict[int, reference.State]) -> dict[int, float]:
    """By how much a difference between the initial centres grows until an iteration."""
    size = reference.scale(X)
    first = known[0].centers
    moved = first + NUDGE * size * np.random.default_rng(0).uniform(-1, 1, first.shape)
    nudged = reference.states(X, m, at=tuple(known), centers=moved)
    return {t: float(np.abs(nudged[t].centers - known[t].centers).max() / (NUDGE * size)) for t in known if t}


def scikit_fuzzy(X: np.ndarray, U: np.ndarray, m: float, iterations: int) -> reference.State:
    """Its state after so many iterations; it counts the centres of the given memberships as one of them."""
    import skfuzzy

    centers, u, _, d, *_ = skfuzzy.cmeans(X.astype("float64").T, U.shape[1], m, 0.0, iterations + 1, init=U.T)
    return reference.State(centers, u.T, float((u**m * d**2).sum()))


def compare(out: bench.Record, name: str, start: Start, device: str, dtypes: list[str], iterations: list[int]) -> None:
    X, U, m, _ = start
    known = reference.states(X, m, at=(0, *iterations), U=U)
    growth = amplification(X, U, m, known)
    for t in iterations:
        theirs = scikit_fuzzy(X, U, m, t)
        for dtype in dtypes:
            compare_once(out, f"{name} {dtype} {t}", start, device, dtype, t, known[t], theirs, growth[t])


def compare_once(
    out: bench.Record,
    item: str,
    start: Start,
    device: str,
    dtype: str,
    t: int,
    oracle: reference.State,
    theirs: reference.State,
    growth: float,
) -> None:
    from sklearn.metrics import adjusted_rand_score

    from mgclust.algorithms import FuzzyCMeans

    X, U, m, y = start
    options: dict[str, Any] = {"m": m, "init": U, "tol": 0.0, "max_iter": t}
    options["dtype"] = "float32" if dtype == "single" else dtype
    run_spec.FEW_NUMBERS = 0 if dtype == "single" else FEW_NUMBERS
    model = FuzzyCMeans(U.shape[1], device=device, client=None, **options).fit(X)
    to_oracle = reference.differences(model, oracle, X, m)
    to_theirs = reference.differences(model, theirs, X, m)
    their_labels = theirs.memberships.argmax(axis=1)
    out.add(
        item,
        n=len(X),
        d=X.shape[1],
        c=U.shape[1],
        m=m,
        computed_in=model.result_.diagnostics["computed_in"],
        to_oracle=to_oracle,
        to_scikit_fuzzy=to_theirs,
        scikit_fuzzy_to_oracle=reference.differences(
            reference.Fitted(theirs.centers, theirs.memberships, theirs.objective), oracle, X, m
        ),
        within_bound=max(*to_oracle.values(), *to_theirs.values()) <= BOUND,
        amplification=growth,
        labels_that_differ_from_oracle=int((model.labels_ != oracle.memberships.argmax(axis=1)).sum()),
        labels_that_differ_from_scikit_fuzzy=int((model.labels_ != their_labels).sum()),
        ari=None if y is None else float(adjusted_rand_score(y, model.labels_)),
        ari_of_scikit_fuzzy=None if y is None else float(adjusted_rand_score(y, their_labels)),
    )


def main() -> None:
    names = [*fuzzy_cases.CASES, *FURTHER, "htru2, scaled"]
    parser = bench.parser(__doc__)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--sets", default=";".join(names), help="names, separated by ';'")
    parser.add_argument("--dtypes", default="float32,float64,single")
    parser.add_argument("--small", action="store_true", help="only one set, to try the script out")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    out.note("device", options.device)
    out.note("bound", BOUND)
    for name in ["clusters"] if options.small else options.sets.split(";"):
        start = start_of(name, options.data)
        if start is None:
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                compare(out, name, start, options.device, options.dtypes.split(","), list(fuzzy_cases.ITERATIONS))
            except Exception as error:
                out.add(name, failed=f"{type(error).__name__}: {error}")
    checked = [item for item in out.document["items"] if "within_bound" in item]
    for names, note in ((("float32", "float64"), "beyond_bound"), (("single",), "beyond_bound_in_single")):
        asked = [item for item in checked if item["item"].split()[-2] in names]
        out.note(note, [item["item"] for item in asked if not item["within_bound"]])
    scored = [item for item in checked if item["ari"] is not None and " single " not in item["item"]]
    out.note("score_below_scikit_fuzzy", [i["item"] for i in scored if i["ari"] < i["ari_of_scikit_fuzzy"]])


if __name__ == "__main__":
    main()
