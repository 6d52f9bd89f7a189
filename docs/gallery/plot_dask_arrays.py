"""
Dask arrays on a local cluster
==============================

If rows are a Dask array, the workers of a Dask cluster compute them and keep them. The labels also stay on the workers,
as a Dask array with the same chunks. This example compares a fit on a cluster with a fit in one process.
"""

# %%
# 1. Describe the data
# --------------------
# A Dask array describes its rows chunk by chunk, and computes nothing yet. These rows lie around seven points of a
# circle.

import dask.array as da
import matplotlib.pyplot as plt
import numpy as np
from distributed import Client, LocalCluster

from mgclust import DensityPeaks, plots

n, chunk = 7000, 1750
angle = 2 * np.pi / 7 * (da.arange(n, chunks=chunk) % 7)
noise = da.random.default_rng(0).normal(scale=0.6, size=(n, 2), chunks=(chunk, 2))
X = 5 * da.stack([da.cos(angle), da.sin(angle)], axis=1) + noise

# %%
# 2. Fit on the cluster and in this process
# -----------------------------------------
# A local cluster starts processes that import this file. So the code that starts the cluster stands below
# ``if __name__ == "__main__":``. A fit uses the active client, and its labels are the same on any number of workers.
# ``result_.compute()`` gathers the arrays that the pictures need.
#
# Left: the decision graph, with density to the right and the distance to the nearest denser row upwards; coloured marks
# are the centres. Right: the rows in the colours of their clusters, with the same centres. Look for the seven centres
# that lie apart from all other points on the left.

if __name__ == "__main__":
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0") as cluster, Client(cluster):
        X = X.rechunk((chunk, 2)).persist()
        spread = DensityPeaks(device="cpu").fit(X)
        print(spread.labels_)
        print("mean of the first cluster:", X[spread.labels_ == 0].mean(axis=0).compute())
        print("new rows:", spread.predict(X[:5] + 0.1).compute())

        rows, result = X.compute(), spread.result_.compute()
        alone = DensityPeaks(client=None, device="cpu").fit(rows)
        print(spread.result_.hardware["ranks"], "ranks; same labels:", np.array_equal(result.labels, alone.labels_))

    fig, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    plots.decision_graph(result, ax=left)
    plots.scatter(rows, result.labels, rows[result.arrays["centers"]], ax=right)
    plt.show()

# %%
# Without a cluster, ``client="local"`` starts one on this machine for a single fit. It has one worker per GPU, or one
# per core if there is no GPU. It ends with the fit, so the labels are a NumPy array.
