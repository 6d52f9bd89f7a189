r"""How large the modularity of an R-MAT graph can be at most, beside what is found.

For communities c with indicators s_c and the modularity matrix B = A - d d^T / 2m,

    2m Q = sum_c s_c^T B s_c  <=  lambda sum_c s_c^T T s_c  =  lambda sum_i t_i

where T = diag(t) > 0 is any diagonal and lambda the largest eigenvalue of T^(-1/2) B T^(-1/2). Here t_i = d_i + tau,
for a few tau; each gives a bound, the least is kept. (tau = 0 gives 1 for a graph that is not connected: small parts
are communities of their own. A tau of some neighbours says that they are small.) lambda is of Lanczos, in float64, with
the norm of its residual added.

R-MAT of 2^scale nodes, 24 2^scale edges drawn, a, b, c, d = .57, .19, .19, .05; without loops and repeated edges.

    python -m benchmarks.communities.modularity_bound --out benchmarks/results/communities/modularity_bound.json
"""

from __future__ import annotations

import time

import numpy as np
import scipy.sparse
from scipy.sparse.linalg import LinearOperator, eigsh

from benchmarks.support import network_peers, networks
from benchmarks.support import record as bench
from mgclust import Communities

TAUS = (5.0, 10.0, 20.0, 40.0)
PEER_SCALE, OUR_SCALE = 18, 20  # up to which peers, and the parallel strategy on this host, are run


def bound(adjacency: scipy.sparse.csr_matrix, tau: float) -> tuple[float, float]:
    """No partition has a larger modularity; and the residual that is in it."""
    d = np.asarray(adjacency.sum(axis=1)).ravel()
    two_m, t = d.sum(), d + tau
    root = 1 / np.sqrt(t)

    def times(x: np.ndarray) -> np.ndarray:
        y = root * np.ravel(x)
        return root * (adjacency @ y - d * (d @ y / two_m))

    values, vectors = eigsh(LinearOperator(adjacency.shape, matvec=times, dtype=float), k=1, which="LA", tol=1e-3)
    residual = float(np.linalg.norm(times(vectors[:, 0]) - values[0] * vectors[:, 0]))
    return (float(values[0]) + residual) * t.sum() / two_m, residual


def main() -> None:
    parser = bench.parser(__doc__)
    parser.add_argument("--scales", default="14,16,18,22")
    options = parser.parse_args()
    out = bench.Record(__doc__, options.out)
    for scale in map(int, options.scales.split(",")):
        edges, n = networks.rmat(scale, 24, "cpu")
        figures = {}
        if scale <= OUR_SCALE:
            start = time.perf_counter()
            model = Communities(strategy="parallel", device="cpu", client=None, random_state=0).fit((edges, n))
            figures["parallel"] = {"modularity": model.modularity_, "seconds": time.perf_counter() - start}
        if scale <= PEER_SCALE:
            peers = network_peers.Peers(edges, n)
            for name in ("Louvain", "Leiden"):
                found = peers.run(name, 0)
                quality = network_peers.modularity(edges, found.labels)
                figures[f"igraph {name}"] = {"modularity": quality, "seconds": found.seconds}
            del peers
        ones = np.ones(len(edges), np.float32)
        adjacency = scipy.sparse.coo_matrix((ones, (edges[:, 0], edges[:, 1])), shape=(n, n)).tocsr()
        m = len(edges)
        del edges, ones
        adjacency = adjacency + adjacency.T
        kept = np.flatnonzero(np.diff(adjacency.indptr))
        adjacency = adjacency[kept][:, kept]
        bounds = {}
        for tau in TAUS:
            bounds[str(tau)], residual = bound(adjacency, tau)
            print(f"scale {scale} tau {tau}: Q <= {bounds[str(tau)]:.5f} (residual {residual:.1e})", flush=True)
        out.add(f"R-MAT scale {scale}", n=n, m=m, modularity_at_most=min(bounds.values()), by_tau=bounds, **figures)
        del adjacency


if __name__ == "__main__":
    main()
