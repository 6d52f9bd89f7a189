"""
Choosing centres after the fit
==============================

The number of clusters of density peaks is a cut through the decision graph. The cut can be changed after the fit:
labels follow from the stored densities and distances, without another pass over the data. This example compares three
cuts of the same fit.
"""

# %%
# 1. Fit once
# -----------
# The sample *pendigits* holds 10,992 handwritten digits as the pen wrote them: eight points of x and y each. 3,000 of
# them are enough here. The fit warns that its centres do not stand out: a reason to look at other cuts.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, plots
from mgclust.data import samples

with np.load(samples.path("pendigits")) as file:
    X, digits = file["X"][:3000], file["y"][:3000]
model = DensityPeaks().fit(X)
print(model.n_clusters_, "clusters by default")

# %%
# 2. Cut by thresholds and by number
# ----------------------------------
# Thresholds take every point above both, which is a box drawn in the upper right of the decision graph.
# ``select_centers(k)`` takes the points of the k largest products of density and distance.

cuts = {"default": {}, "thresholds": {"rho_min": 60, "delta_min": 60}, "number": {"n_clusters": 12}}
fig, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
for ax, (name, cut) in zip(axes, cuts.items(), strict=True):
    if cut:
        model.select_centers(**cut)
    plots.decision_graph(model.result_, ax=ax)
    score = adjusted_rand_score(digits, model.labels_)
    ax.set_title(f"{name}: {model.n_clusters_} clusters, ARI {score:.2f}")
    ax.label_outer()

# %%
# 3. Look at the centres
# ----------------------
# A centre is a row of the data, so it can be drawn: the stroke of the pen, which begins at the dot. These are the
# centres of the cut by number.

fig, axes = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
for k, (ax, row) in enumerate(zip(axes.flat, model.cluster_centers_indices_, strict=True)):
    x, y = X[row].reshape(8, 2).T
    ax.plot(x, y, color=plots.cluster_colors(12)[k], linewidth=2.5)
    ax.plot(x[0], y[0], "o", color="black")
    ax.set(xticks=[], yticks=[], xlim=(-10, 110), ylim=(-10, 110), title=f"cluster {k}")
plt.show()
