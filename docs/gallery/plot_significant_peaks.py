"""
Significant density peaks
=========================

How many clusters are there? The decision graph answers with the clearest gap, and always finds at least two clusters. A
significance test can also find a single cluster: a peak of the density counts only if it exceeds the saddle to the next
cluster by several standard errors. This example tests clusters of very different sizes, and noise.
"""

# %%
# 1. Make the data
# ----------------
# There are four clusters of 3,000, 1,000, 300 and 100 points. A second data set has 1,000 points without any cluster.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from mgclust import DensityPeaks, plots

centers = [[0, 0], [4, 0.5], [1.5, 4], [-3.5, 3]]
X, truth = make_blobs([3000, 1000, 300, 100], centers=centers, cluster_std=[1, 0.8, 0.7, 0.5], random_state=5)
noise = np.random.default_rng(5).random((1000, 2))

# %%
# 2. Fit
# ------
# With ``k="adaptive"``, each point has as many neighbours as have about its density, and each density has a standard
# error. The only parameter to choose is ``significance``, in standard errors.

model = DensityPeaks(density="knn", k="adaptive", significance=3, halo=True).fit(X)
peaks = model.result_.diagnostics["peaks"]["found"]
print(f"{model.n_clusters_} clusters of {peaks} peaks; prominence in errors: {np.round(model.significance_, 1)}")
nothing = DensityPeaks(density="knn", k="adaptive", significance=3).fit(noise)
print(f"noise: {nothing.n_clusters_} cluster of {nothing.result_.diagnostics['peaks']['found']} peaks")

# %%
# 3. Look at the peaks and the saddles
# ------------------------------------
# Points have the colours of their clusters, and numbered marks are the peaks. A cross is a saddle: the densest place
# between two clusters. The number next to a peak is its prominence over its highest saddle, in standard errors. It is
# infinite if the cluster touches no other cluster. Faint points are the halo, which is less dense than that saddle.
# Look for small numbers: such peaks may be chance.

fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
plots.scatter(X, model.labels_, X[model.cluster_centers_indices_], halo=model.halo_, ax=ax)
saddles = X[model.saddles_[:, 2]]
ax.plot(saddles[:, 0], saddles[:, 1], "kx", markersize=10, markeredgewidth=2)
for row, height in zip(model.cluster_centers_indices_, model.significance_, strict=True):
    ax.annotate(f"{height:.1f}", X[row], xytext=(8, 8), textcoords="offset points", weight="bold")
plt.show()
