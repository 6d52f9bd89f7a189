"""
Significant density peaks
=========================

How many clusters are there? The decision graph answers with the clearest gap, and always finds two at least. A test
answers from the other side: a peak of the density counts where it exceeds the saddle to the next cluster by more than
the errors of both. This example asks both about clusters of very different size, and about noise.
"""

# %%
# 1. Make the data
# ----------------
# Four clusters of 3,000, 1,000, 300 and 100 points, and 1,000 points without any cluster.

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
# Each point has as many neighbours as share its density, and its density an error. There is no other parameter than
# the number of errors.

model = DensityPeaks(density="knn", k="adaptive", significance=3, halo=True).fit(X)
peaks = model.result_.diagnostics["peaks"]["found"]
print(f"{model.n_clusters_} clusters of {peaks} peaks; heights in errors: {np.round(model.significance_, 1)}")
nothing = DensityPeaks(density="knn", k="adaptive", significance=3).fit(noise)
print(f"noise: {nothing.n_clusters_} cluster of {nothing.result_.diagnostics['peaks']['found']} peaks")

# %%
# 3. Look at the peaks and the saddles
# ------------------------------------
# A cross is the densest place between two clusters. The number at a peak is its height over its highest saddle,
# infinite where its cluster meets no other. Points below that saddle are the halo.

fig, ax = plt.subplots(figsize=(7, 6), layout="constrained")
plots.scatter(X, model.labels_, X[model.cluster_centers_indices_], halo=model.halo_, ax=ax)
saddles = X[model.saddles_[:, 2]]
ax.plot(saddles[:, 0], saddles[:, 1], "kx", markersize=10, markeredgewidth=2)
for row, height in zip(model.cluster_centers_indices_, model.significance_, strict=True):
    ax.annotate(f"{height:.1f}", X[row], xytext=(8, 8), textcoords="offset points", weight="bold")
plt.show()
