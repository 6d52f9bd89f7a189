"""
Density peaks and the decision graph
====================================

Density peaks clustering takes as centres the points that have many neighbours and are far from any denser point. The
decision graph shows both quantities, so centres can be seen before any point is labelled. This example clusters
points around 31 centres without being told their number.
"""

# %%
# 1. Make the data
# ----------------
# 3,100 points around 31 centres, whose true clusters are known.

import matplotlib.pyplot as plt
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, plots
from mgclust.datasets import make_gaussian_clusters

X, truth, _ = make_gaussian_clusters(n_clusters=31, cluster_size=100, random_state=0)

# %%
# 2. Fit
# ------
# By default the cut-off distance ``dc`` is chosen so that 2% of all pairs of points are closer, or fewer where that
# tells clusters apart more clearly. The density of a point is the sum of a Gaussian of its distances to all others,
# with ``dc`` as the width.

model = DensityPeaks(halo=True).fit(X)
print(f"dc = {model.dc_:.3f}, {model.n_clusters_} clusters")
print(f"adjusted Rand index against the truth: {adjusted_rand_score(truth, model.labels_):.3f}")

# %%
# 3. Look at the decision graph
# -----------------------------
# Each point is drawn by its density and by its distance to the nearest denser point. Centres have large values of
# both and stand apart from the rest.

fig, (left, right) = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
plots.decision_graph(model.result_, ax=left)
plots.scatter(X, model.labels_, X[model.cluster_centers_indices_], halo=model.halo_, ax=right)
plt.show()

# %%
# Points in the halo are drawn faintly: their density is below the highest density at the border of their cluster.
# They have labels, but they may belong to a neighbouring cluster or be noise.
