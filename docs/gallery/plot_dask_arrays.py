"""
Dask arrays on a local cluster
==============================

``client="local"`` starts a Dask cluster of this machine for one fit: one worker per GPU, or per core where there is
none. The rows of a Dask array are computed on the workers and stay there. This example compares such a fit with a fit
in one process.
"""

# %%
# 1. Describe the data
# --------------------
# A Dask array describes its rows chunk by chunk; nothing is computed yet. These rows lie around seven points of a
# circle.

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np

from mgclust import DensityPeaks, plots

n, chunk = 7000, 1750
angle = 2 * np.pi / 7 * (da.arange(n, chunks=chunk) % 7)
noise = da.random.default_rng(0).normal(scale=0.6, size=(n, 2), chunks=(chunk, 2))
X = 5 * da.stack([da.cos(angle), da.sin(angle)], axis=1) + noise

# %%
# 2. Fit on the cluster and in this process
# -----------------------------------------
# A local cluster starts processes that import this file, so code that starts one stands below ``if __name__ ==
# "__main__":``. Labels have the same bits on any number of workers.

if __name__ == "__main__":
    print(X)
    spread = DensityPeaks(client="local", device="cpu").fit(X)
    alone = DensityPeaks(client=None, device="cpu").fit(X.compute())
    print(spread.result_.hardware["ranks"], "ranks; same labels:", np.array_equal(spread.labels_, alone.labels_))

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    plots.decision_graph(spread.result_, ax=left)
    rows = X.compute()
    plots.scatter(rows, spread.labels_, rows[spread.cluster_centers_indices_], ax=right)
    plt.show()

# %%
# For several fits, start a cluster once (``distributed.LocalCluster``, Slurm, Kubernetes) and create a
# ``distributed.Client``: fits then use the active client by default.
