"""
Density peaks and the decision graph
====================================

Density peaks clustering takes as centres the points that have many neighbours and are far from any denser point. The
decision graph shows both quantities, so you see the centres before any point gets a label. This example clusters points
around 31 centres, and finds their number.
"""

# %%
# 1. Make the data
# ----------------
# The data are 3,100 points around 31 centres. Their true clusters are known.

import matplotlib.pyplot as plt
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, plots
from mgclust.datasets import make_gaussian_clusters

X, truth, _ = make_gaussian_clusters(n_clusters=31, cluster_size=100, random_state=0)

# %%
# 2. Fit
# ------
# By default, 2% of all pairs of points are closer than the cut-off distance ``dc``, or fewer if that separates clusters
# more clearly. The density of a point is the sum of a Gaussian of its distances to all other points. The width of the
# Gaussian is ``dc``.

model = DensityPeaks(halo=True).fit(X)
print(f"dc = {model.dc_:.3f}, {model.n_clusters_} clusters")
print(f"adjusted Rand index against the truth: {adjusted_rand_score(truth, model.labels_):.3f}")

# %%
# 3. Look at the decision graph
# -----------------------------
# Left: the decision graph. The density of each point is to the right, and its distance to the nearest denser point
# upwards. Coloured marks with numbers are the centres. Look for the gap that separates them from all other points; the
# dashed line lies in it. Right: the points in the colours of their clusters, with the same centres.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
plots.decision_graph(model.result_, ax=left)
plots.scatter(X, model.labels_, X[model.cluster_centers_indices_], halo=model.halo_, ax=right)
plt.show()

# %%
# Faint points are the halo: their density is not above the highest density at the border of their cluster. They have
# labels, but they may be noise or belong to a neighbouring cluster.
