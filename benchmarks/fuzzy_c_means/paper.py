"""The CUDA write-up's experiment again: 100,000 x 500, c = 8, m = 2, 50 iterations from random memberships.

Theirs gives no times. Its sample's labels agreed with the truth for 12.7% of the rows, chance being 12.5%. Its program
stores U, one block a sample, O(c^2) powers a row, at most 256 clusters; it stops when |J - J'| < 1e-10, with J a
float32 of 5e5 (that is, equal bits), or after T iterations. Ours: the same work (a mixture of 8 Gaussians) from the
same kind of start, on all cores of this machine's CPU, one GPU, and several; nothing of size n x c.

Two things are kept apart: the time of the 50 iterations over n, and what comes out. At m = 2 and from random
memberships all eight centres move to the mean of the data, in any program, because that is a stable solution: with F
the covariance of the centred rows scaled to unit length, and l its largest eigenvalue, it is one for m > 1 / (1 - 2 l)
(Yu, Cheng and Huang, IEEE Trans. Systems, Man, and Cybernetics B 34:634-639, 2004). Eight groups far apart have l near
1/6, so that m would have to be below 1.5. Random memberships begin next to the mean and end there; k-means++ begins far
from it. The script shows l, and the agreement at m = 2 and at m = 1.25 from both starts.

    python -m benchmarks.fuzzy_c_means.paper --devices cpu --out benchmarks/results/fuzzy_c_means/paper_cpu.json
    python -m benchmarks.fuzzy_c_means.paper --devices cuda,cuda:4 --out benchmarks/results/fuzzy_c_means/paper.json
    python -m benchmarks.fuzzy_c_means.paper --figure NAME.json [OTHER.json ...]
"""

from __future__ import annotations

import json
import statistics
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.support import fuzzy_ranks, made_rows, on_ranks
from benchmarks.support import record as bench
from benchmarks.support.rank_processes import Processes
from mgclust.data.arrays import ArrayDataset

FEATURES, CLUSTERS, ITERATIONS = 500, 8, 50
SAMPLE = 100_000
SIZES = {"cpu": (10_000, 30_000, SAMPLE), "cuda": (10_000, 30_000, SAMPLE, 300_000, 1_000_000)}
SPREAD = 5.8  # of the groups' means, in units of their own deviation: as the customary uniform ones from -10 to 10
PAPER_AGREEMENT = 0.127


def random_memberships(n: int) -> np.ndarray:
    U = np.random.default_rng(0).random((n, CLUSTERS))
    return U / U.sum(axis=1, keepdims=True)


def timed(out: bench.Record, place: str, ranks: Processes | None, n: int, options: Any) -> None:
    """The 50 iterations, as the estimator asks the ranks for them."""
    from mgclust.algorithms import FuzzyCMeans
    from mgclust.algorithms.base import Inputs

    device, size = place.split(":")[0], ranks.size if ranks else 1
    made: Any = made_rows.Made(n, FEATURES, CLUSTERS, device, SPREAD)
    if device == "cpu":
        made = ArrayDataset(fuzzy_ranks.on_host(made))
    model = FuzzyCMeans(CLUSTERS, m=2.0, init=random_memberships(n), max_iter=ITERATIONS, tol=0.0)
    spec = model._run_spec(model._checked(), Inputs(made))
    stages, objective = [], 0.0
    for _ in range(options.repeat + 1):
        if ranks is None:
            outcome = on_ranks.on(None, 1, device, spec.function, made, **spec.arguments)
        else:
            outcome = ranks.run(replace(spec, dtype="float32", metric="euclidean"), made)
        stages.append(outcome.timings)
        objective = outcome.value.fit.history[-1]
    median = {name: 1e3 * statistics.median(stage[name] for stage in stages[1:]) for name in stages[0]}
    least = max(fuzzy_ranks.limits(n, FEATURES, CLUSTERS).values()) / size
    out.add(
        f"FCM n={n} {place}",
        part="time",
        place=place,
        n=n,
        ms_iterations=median["iterate"],
        ms_iteration=median["iterate"] / (ITERATIONS + 1),
        gpu_limit_ms_iteration=None if device == "cpu" else least,
        ms_without_load=sum(took for name, took in median.items() if name not in ("load", "connect")),
        stages_ms=median,
        runs=options.repeat,
        objective=objective,
    )


def agreement(labels: np.ndarray, truth: np.ndarray) -> dict[str, float]:
    """The share of rows with the right label, clusters named as suits them best; and the adjusted Rand index."""
    from scipy.optimize import linear_sum_assignment
    from sklearn.metrics import adjusted_rand_score
    from sklearn.metrics.cluster import contingency_matrix

    table = contingency_matrix(truth, labels)
    return {
        "right": float(table[linear_sum_assignment(table, maximize=True)].sum() / len(truth)),
        "ari": float(adjusted_rand_score(truth, labels)),
    }


def outcome(out: bench.Record, device: str, n: int) -> None:
    """What comes out of the sample, and from where on m is too large for it."""
    from mgclust.algorithms import FuzzyCMeans

    made = made_rows.Made(n, FEATURES, CLUSTERS, device, SPREAD)
    truth = made.groups(0, n)
    some = made.read(0, min(n, 5_000))
    some = (some.get() if hasattr(some, "get") else some).astype("float64")
    some -= some.mean(axis=0)
    some /= np.linalg.norm(some, axis=1, keepdims=True)
    largest = float(np.linalg.eigvalsh(some.T @ some / len(some))[-1])
    out.add(f"mean of the data, n={n}", largest_eigenvalue=largest, stable_above_m=1 / (1 - 2 * largest))
    U = random_memberships(n)
    for m, init, stop in (
        (2.0, U, {"max_iter": ITERATIONS, "tol": 0.0}),
        (2.0, "k-means++", {}),
        (1.25, U, {"max_iter": ITERATIONS, "tol": 0.0}),
        (1.25, "k-means++", {}),
    ):
        name = init if isinstance(init, str) else "random memberships"
        model = FuzzyCMeans(CLUSTERS, m=m, init=init, device=device, client=None, random_state=0, **stop)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model.fit(made)
        history = model.objective_history_
        out.add(
            f"FCM m={m:g} from {name}, n={n}",
            part="outcome",
            m=m,
            init=name,
            n=n,
            **agreement(model.labels_, truth),
            iterations=model.n_iter_,
            stop_reason=model.stop_reason_,
            objective=model.objective_,
            partition_coefficient=model.partition_coefficient_,
            equal_in_float32_after=_equal_in_float32(history),
            warnings=model.result_.warnings,
        )
        out.document["items"][-1]["history"] = [float(f"{value:.6g}") for value in history]


def _equal_in_float32(history: np.ndarray) -> int | None:
    """The iteration after which J does not change in float32: when the write-up's rule would stop."""
    same = np.flatnonzero(np.diff(history.astype("float32")) == 0)
    return int(same[0]) + 1 if len(same) else None


def table(document: dict[str, Any]) -> str:
    """The times as Markdown."""
    timed_items = [item for item in document["items"] if item.get("part") == "time"]
    places = list(dict.fromkeys(item["place"] for item in timed_items))
    found = {(item["n"], item["place"]): item["ms_iterations"] for item in timed_items}
    lines = [f"| n | write-up | {' | '.join(places)} |", "|---|---|" + "---|" * len(places)]
    for n in sorted({item["n"] for item in timed_items}):
        cells = [f"{found[n, place]:,.1f} ms" if (n, place) in found else "" for place in places]
        lines.append(f"| {n:,} | {'no time given' if n == SAMPLE else ''} | {' | '.join(cells)} |")
    return "\n".join(lines)


def figure(paths: list[Path]) -> None:
    """Draw time over n and J over the iterations from results files; a PNG beside the first."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    drawing = Figure(figsize=(10.5, 4.4), layout="constrained")
    FigureCanvasAgg(drawing)
    left, right = drawing.subplots(1, 2)
    items = [item for path in paths for item in json.loads(path.read_text())["items"]]
    times = [item for item in items if item.get("part") == "time"]
    for place in dict.fromkeys(item["place"] for item in times):
        own = sorted((item["n"], item["ms_iterations"]) for item in times if item["place"] == place)
        left.loglog(*zip(*own, strict=True), marker="o", label=place)
    left.set(xlabel="rows", ylabel="milliseconds", title=f"{ITERATIONS} iterations, d = {FEATURES}, c = {CLUSTERS}")
    left.legend()
    drawn = set()
    for item in (item for item in items if item.get("part") == "outcome"):
        name = f"m = {item['m']:g}, {item['init']}: {100 * item['right']:.1f}% right"
        if name not in drawn:
            drawn.add(name)
            history = np.array(item["history"])
            right.plot(history / history[-1], label=name)
    right.set(xlabel="iteration", ylabel="J / final J", yscale="log", title="Objective")
    right.legend()
    drawing.savefig(paths[0].with_suffix(".png"), dpi=150)


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--devices", default="cpu", help="cpu, cuda, cuda:N (so many GPUs), comma-separated")
    parser.add_argument("--repeat", type=int, default=5, help="runs timed after a first one")
    parser.add_argument("--sizes", help="numbers of rows, comma-separated")
    parser.add_argument("--small", action="store_true", help="tiny, to try the script out")
    parser.add_argument("--figure", type=Path, nargs="+", help="draw the figure of these files, measure nothing")
    options = parser.parse_args()
    if options.figure:
        figure(options.figure)
        return
    if options.small:
        options.repeat, options.sizes = 1, options.sizes or "500,1500"
    out = bench.Record(__doc__, options.out)
    out.note("paper", {"n": SAMPLE, "d": FEATURES, "c": CLUSTERS, "m": 2, "right": PAPER_AGREEMENT, "time": None})
    places = options.devices.split(",")
    for place in places:
        device, _, size = place.partition(":")
        sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else SIZES[device]
        if size:
            with Processes(int(size), device) as ranks:
                for n in sizes:
                    timed(out, place, ranks, n, options)
        else:
            for n in sizes:
                timed(out, place, None, n, options)
    sizes = [int(n) for n in options.sizes.split(",")] if options.sizes else [SAMPLE]
    outcome(out, places[0].split(":")[0], sizes[-1])
    text = table(out.document)
    out.note("table", text.splitlines())
    print(text)
    if options.out:
        figure([options.out])


if __name__ == "__main__":
    main()
