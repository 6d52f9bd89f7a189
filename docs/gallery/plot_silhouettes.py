"""
Silhouettes: how many clusters?
===============================

The silhouette of a row compares its mean distance to its own cluster with its mean distance to the nearest other
cluster. It is near 1 inside a cluster, near 0 between two clusters, and negative if the row is closer to another
cluster. This example uses silhouettes to choose the number of clusters.
"""

# %%
# 1. Load the data
# ----------------
# The data are 13 measurements of each of 178 wines, from three cultivars. The units differ, so every column is scaled.

import matplotlib.pyplot as plt
from sklearn.datasets import load_wine
from sklearn.preprocessing import scale

from mgclust import FuzzyCMeans, plots, silhouette_samples, silhouette_score

wine = load_wine()
X = scale(wine.data)

# %%
# 2. Score several numbers of clusters
# ------------------------------------
# ``silhouette_score`` is the mean silhouette of all rows. It is exact, and needs no matrix of all distances. With 13
# features, a fuzzifier of 2 would draw all centres together, so ``m`` is smaller. In the picture, each mark is a fit:
# its number of clusters is to the right, and its mean silhouette upwards. Look for the maximum.

numbers = range(2, 8)
labels = {k: FuzzyCMeans(k, m=1.3, random_state=0).fit(X).labels_ for k in numbers}
scores = {k: silhouette_score(X, labels[k]) for k in numbers}

fig, ax = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
ax.plot(list(scores), list(scores.values()), marker="o")
ax.set(xlabel="clusters", ylabel="mean silhouette", title="Three clusters score best")
print("best number of clusters:", max(scores, key=scores.get))

# %%
# 3. Look at every row
# --------------------
# Each band is a cluster, and each horizontal bar in it a row, as long as its silhouette. The dashed line is the mean of
# all rows, and short lines are the means of the clusters. Good bands have similar lengths and no part below 0. With
# five clusters (right), some clusters have many rows near or below 0.

fig, axes = plt.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
for ax, k in zip(axes, (3, 5), strict=True):
    plots.silhouettes(silhouette_samples(X, labels[k]), labels[k], ax=ax)
plt.show()
