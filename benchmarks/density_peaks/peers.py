"""Speed, memory and scores on one CPU beside DADApy and pydpc, in one run.

pydpc computes the same quantities (Gaussian rho at dc, delta, top centres). DADApy's own route has no dc:
densities from nearest neighbours (k*NN or PAk), then its automatic clustering (ADP), or density peaks
with as many centres as asked for; its density peaks are also given Gaussian densities at the same dc. All
programs run as processes of their own, one after the other, each timed inside around the library's calls;
imports and reading of data are excluded.

    python -m venv peers
    peers/bin/pip install dadapy==0.3.4
    peers/bin/pip install --no-deps pydpc==0.2.1
    python -m benchmarks.density_peaks.peers --peers-python peers/bin/python --out NAME.json
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from benchmarks.support import record as bench

SCORED = [
    ("r15", 15),
    ("d31", 31),
    ("s1", 15),
    ("s2", 15),
    *((f"dim{d:03d}", 16) for d in (32, 64, 128, 256, 512, 1024)),
]
METHODS = {
    "mgclust": ("mgclust", "mgclust-brute"),
    "peers": ("pydpc", "dadapy-gaussian-dp", "dadapy-kstar-dp", "dadapy-kstar-adp", "dadapy-pak-adp"),
}


def top(rho, delta, k):
    return np.argsort(-(rho * delta), kind="stable")[:k]


def run_mgclust(X, k, dc, algorithm="auto"):
    from mgclust import DensityPeaks

    def fit(points):
        return DensityPeaks(n_clusters=k, dc=dc, device="cpu", client=None, algorithm=algorithm).fit(points)

    fit(X)  # reads compiled kernels from disk, as importing the peers does
    start = time.perf_counter()
    model = fit(X)
    return time.perf_counter() - start, model.labels_


def run_pydpc(X, k, dc):
    import pydpc

    X = np.ascontiguousarray(X, "float64")
    start = time.perf_counter()
    model = pydpc.Cluster(X, fraction=0.02, autoplot=False, **({} if dc is None else {"kernel_size": dc}))
    centers = top(model.density, model.delta, k)
    model.clusters = np.sort(centers).astype(np.intc)
    # `assign` only takes thresholds; with the centres at hand its next line is this one.
    labels = pydpc.core.get_membership(model.clusters, model.order, model.neighbour)
    return time.perf_counter() - start, labels


def run_dadapy(X, k, dc, density, clustering):
    from dadapy import Data

    X = np.ascontiguousarray(X, "float64")
    given = None
    if density == "gaussian":
        import pydpc

        model = pydpc.Cluster(X, autoplot=False, kernel_size=dc)
        given = np.log(np.maximum(model.density, 1e-300))
    start = time.perf_counter()
    data = Data(X, maxk=min(100, len(X) - 1), verbose=False)
    data.compute_distances()
    if given is not None:
        data.log_den = given
    elif density == "kstar":
        data.compute_density_kstarNN()
    else:
        data.compute_density_PAk()
    if clustering == "adp":
        labels = data.compute_clustering_ADP()
    else:
        data.compute_DecGraph()
        # Centres by the same rule as in all others; then DADApy's loop, whose thresholds cannot say "top k".
        centers = top(np.exp(data.log_den - data.log_den.max()), data.delta, k)
        labels = np.full(len(X), -1)
        labels[centers] = np.arange(k)
        for i in np.argsort(-data.log_den):
            if labels[i] < 0:
                labels[i] = labels[data.ref[i]]
    return time.perf_counter() - start, labels


def work(method: str, path: str) -> None:
    """Inside a process of its own: run one method, print one line of JSON."""
    with np.load(path) as archive:
        X, k, dc = archive["X"], int(archive["k"]), float(archive["dc"])
    dc = None if np.isnan(dc) else dc
    with contextlib.redirect_stdout(io.StringIO()):
        if method.startswith("mgclust"):
            took, labels = run_mgclust(X, k, dc, "brute" if method.endswith("brute") else "auto")
        elif method == "pydpc":
            took, labels = run_pydpc(X, k, dc)
        else:
            took, labels = run_dadapy(X, k, dc, *method.split("-")[1:])
    np.save(path + ".labels.npy", np.asarray(labels))
    print(json.dumps({"seconds": took, "peak_gib": bench.peak_bytes() / 2**30}))


def measure(method: str, python: str, X, k: int, dc: float | None, timeout: float):
    """Run one method in its interpreter; its figures and labels, or why there are none."""
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder) / "points.npz")
        np.savez(path, X=X, k=k, dc=np.nan if dc is None else dc)
        command = [python, "-m", "benchmarks.density_peaks.peers", "--work", method, path]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=timeout)
        except subprocess.TimeoutExpired:
            return {"failed": f"more than {timeout:g} s"}, None
        if done.returncode:
            return {"failed": done.stderr.strip().splitlines()[-1][:200]}, None
        return json.loads(done.stdout.splitlines()[-1]), np.load(path + ".labels.npy")


def main() -> None:
    from sklearn.metrics import adjusted_rand_score

    from benchmarks.support import sets

    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
    from oracles import density_peaks as reference

    parser = bench.parser(__doc__)
    parser.add_argument("--peers-python", required=True, help="interpreter that has dadapy and pydpc")
    parser.add_argument("--n", type=int, default=20_000, help="rows of the timed sets")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--only", choices=["scores", "times"])
    parser.add_argument("--timeout", type=float, default=600.0)
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    code = "import importlib.metadata as m; print(*(m.version(p) for p in ('dadapy', 'pydpc', 'numpy')))"
    found = subprocess.run([options.peers_python, "-c", code], capture_output=True, text=True, check=True)
    out.note("peers", dict(zip(("dadapy", "pydpc", "numpy"), found.stdout.split(), strict=True)))
    pythons = {m: sys.executable for m in METHODS["mgclust"]}
    pythons |= {m: options.peers_python for m in METHODS["peers"]}

    if options.only != "times":
        for name, k in SCORED:
            loaded = sets.load(name, options.data)
            if loaded is None:
                continue
            X, y = loaded
            dc = reference.cutoff_distance(X)
            scores = {}
            for method, python in pythons.items():
                if method == "mgclust-brute":
                    continue
                figures, labels = measure(method, python, X, k, dc, options.timeout)
                scores[method] = figures["failed"] if labels is None else float(adjusted_rand_score(y, labels))
            out.add(f"ARI {name}", dc=dc, **scores)

    if options.only != "scores":
        timed = {
            "2-D": (sets.birch_subset(options.n, options.data), 100),
            "64-D": (sets.gaussians(options.n, 64)[0], 50),
        }
        for name, (X, k) in timed.items():
            ours = {}
            for method, python in pythons.items():
                if method == "dadapy-gaussian-dp" or (name == "64-D" and method == "mgclust-brute"):
                    continue
                runs = []
                for _ in range(1 if method == "pydpc" else options.repeat):
                    figures, _ = measure(method, python, X, k, None, options.timeout)
                    runs.append(figures)
                    if "failed" in figures:
                        break
                figures = sorted(runs, key=lambda r: r.get("seconds", np.inf))[len(runs) // 2]
                if method.startswith("mgclust") and "seconds" in figures:
                    ours[method] = figures["seconds"]
                elif "seconds" in figures:
                    figures["times_slower_than_ours"] = {m: figures["seconds"] / t for m, t in ours.items()}
                out.add(f"time {name} n={len(X)} {method}", **figures)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(*sys.argv[2:])
    else:
        main()
