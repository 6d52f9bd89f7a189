"""
Nearest neighbours: outliers and a graph
========================================

The distance to the k-th nearest row is small inside a cluster and large for an outlier. Edges from each row to its
nearest rows make a graph. The communities of this graph are clusters of any shape. This example finds outliers and
clusters of the same points.
"""

# %%
# 1. Find the neighbours
# ----------------------
# The data are 1,001 points in 7 clusters, and 25 points that are spread over the whole plane. The neighbours are exact:
# nothing is approximated.

import matplotlib.pyplot as plt
import numpy as np

from mgclust import Communities, kneighbors_graph, nearest_neighbors, plots
from mgclust.datasets import make_gaussian_clusters

clusters, _, _ = make_gaussian_clusters(7, 143, random_state=0)
margin = np.ptp(clusters, axis=0) / 2
low, high = clusters.min(axis=0) - margin, clusters.max(axis=0) + margin
spread = np.random.default_rng(0).uniform(low, high, (25, 2))
X = np.concatenate([clusters, spread])
distances, indices = nearest_neighbors(X, 10)

# %%
# 2. Sort the distances to the tenth neighbour
# --------------------------------------------
# The curve shows the distance from each row to its tenth neighbour, in increasing order. Look for the place where it
# turns upwards: the rows to the right of it are outliers. Here the 2% of the rows with the largest distances are taken.

last = distances[:, -1]
fig, ax = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
ax.plot(np.sort(last))
ax.set(xlabel="rows, sorted", ylabel="distance to the 10th neighbour")
outlier = last > np.quantile(last, 0.98)
print(f"{outlier[-25:].sum()} of the {outlier.sum()} outliers are among the 25 spread points")

# %%
# 3. Find communities of the graph of neighbours
# ----------------------------------------------
# ``graph.maximum(graph.T)`` keeps an edge if one of its two rows has the other among its nearest rows. Each point has
# the colour of its community, and black crosses are the outliers. With 20 neighbours, each of the seven clusters has
# one colour. With 10 neighbours, there would be 16 communities: fewer neighbours give finer ones.

graph = kneighbors_graph(X, 20)
labels = Communities(strategy="parallel").fit(graph.maximum(graph.T)).labels_
print(labels.max() + 1, "communities")
fig, ax = plt.subplots(figsize=(6.5, 5.5), layout="constrained")
plots.scatter(X, labels, ax=ax)
ax.plot(*X[outlier].T, "kx", markersize=5)
plt.show()
