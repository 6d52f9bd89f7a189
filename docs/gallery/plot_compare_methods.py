"""
Comparing the methods on the same data
======================================

Each method finds clusters of a different kind. This example runs five methods on four sets of points and draws a grid
of pictures.
"""

# %%
# 1. Make four sets of points
# ---------------------------
# Both columns of a set are scaled below, so that the same distance thresholds suit all four sets.

import time

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs, make_moons
from sklearn.preprocessing import scale

from mgclust import AdaptiveAffinityPropagation, AffinityPropagation, Canopy, DensityPeaks, FuzzyCMeans, plots

n = 400
sets = {
    "blobs": make_blobs(n, centers=3, random_state=8)[0],
    "unequal spread": make_blobs(n, centers=3, cluster_std=[1.0, 2.5, 0.5], random_state=170)[0],
    "slanted": make_blobs(n, centers=3, random_state=170)[0] @ [[0.6, -0.6], [-0.4, 0.8]],
    "moons": make_moons(n, noise=0.06, random_state=0)[0],
}

# %%
# 2. Choose the methods
# ---------------------
# Two methods get the number of clusters. Affinity propagation gets a preference, and canopies get two distances.
# Adaptive affinity propagation gets none of these.


def methods(k):
    """All methods; ``k`` is the number of clusters."""
    return {
        "density peaks": DensityPeaks(k),
        "fuzzy c-means": FuzzyCMeans(k, random_state=0),
        "affinity propagation": AffinityPropagation(damping=0.9, preference=-40, max_iter=1000, random_state=0),
        "adaptive affinity propagation": AdaptiveAffinityPropagation(random_state=0),
        "canopies": Canopy(t1=1.6, t2=1.1, order="random", random_state=0),
    }


# %%
# 3. Draw the grid
# ----------------
# Each row of pictures is a set of points, and each column a method. Colours are clusters. The text in each picture has
# the number of clusters and the seconds of the fit. The first fit of a method takes longer, because it may compile
# kernels.

fig, axes = plt.subplots(len(sets), 5, figsize=(13, 10), layout="constrained")
for row, (name, points) in zip(axes, sets.items(), strict=True):
    X = scale(points)
    row[0].set_ylabel(name, fontsize=12)
    for ax, (method, model) in zip(row, methods(2 if name == "moons" else 3).items(), strict=True):
        start = time.perf_counter()
        labels = model.fit(X).labels_
        seconds = time.perf_counter() - start
        ax.scatter(*X.T, s=7, c=plots.cluster_colors(labels.max() + 1)[labels])
        ax.set(xticks=[], yticks=[], xlim=(-3, 3), ylim=(-3, 3))
        ax.set_title(method if ax in axes[0] else "", fontsize=10)
        note = f"{labels.max() + 1} clusters, {seconds:.2f} s"
        ax.text(0.98, 0.02, note, ha="right", transform=ax.transAxes, fontsize=8)
plt.show()

# %%
# Fuzzy c-means and affinity propagation prefer compact clusters, so they divide the moons. Density peaks follows other
# shapes if each cluster has one clear peak of density. Canopies overlap, so they are not a partition: the colours show
# the nearest centre.
