"""
Nearest neighbours: outliers and a graph
========================================

The distance to the k-th nearest row is small inside a cluster and large for an outlier. Links to the nearest rows make
a graph, whose communities are clusters of any shape.
"""

# %%
# 1. Find the neighbours
# ----------------------
# 1,000 points in 7 clusters and 25 points anywhere. Each row is compared with every other one; nothing is approximate.

import matplotlib.pyplot as plt
import numpy as np

from mgclust import Communities, kneighbors_graph, nearest_neighbors, plots
from mgclust.datasets import make_gaussian_clusters

clusters, truth, _ = make_gaussian_clusters(7, 143, random_state=0)
margin = np.ptp(clusters, axis=0) / 2
low, high = clusters.min(axis=0) - margin, clusters.max(axis=0) + margin
anywhere = np.random.default_rng(0).uniform(low, high, (25, 2))
X = np.concatenate([clusters, anywhere])
distances, indices = nearest_neighbors(X, 10)

# %%
# 2. Distances to the tenth neighbour, sorted
# -------------------------------------------
# The curve turns upwards where rows begin to be alone.

last = distances[:, -1]
fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
ax.plot(np.sort(last))
ax.set(xlabel="rows, sorted", ylabel="distance to the 10th neighbour")
alone = last > np.quantile(last, 0.98)
print(f"{alone[-25:].sum()} of the {alone.sum()} loneliest rows are among the 25")

# %%
# 3. Communities of the graph of neighbours
# -----------------------------------------
# A link counts in both directions.

graph = kneighbors_graph(X, 10)
labels = Communities(strategy="parallel").fit(graph.maximum(graph.T)).labels_
ax = plots.scatter(X, labels)
ax.plot(*X[alone].T, "kx", markersize=5)
plt.show()
