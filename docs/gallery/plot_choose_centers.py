"""
Choosing centres after the fit
==============================

Density peaks chooses cluster centres in the decision graph. You can choose other centres after the fit: new labels
follow from the stored densities and distances, without another pass over the data. This example compares three choices
of centres for the same fit.
"""

# %%
# 1. Fit once
# -----------
# The sample *pendigits* holds 10,992 handwritten digits, each as eight points (x, y) along the path of the pen. 3,000
# digits are enough here. The fit warns that its centres do not stand out, which is a reason to try other centres.

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
# 2. Choose centres by thresholds and by number
# ---------------------------------------------
# With two thresholds, every point above both is a centre. ``select_centers(k)`` takes the k points with the largest
# product of density and distance. In the decision graphs, each point is a row: density is to the right, and the
# distance to the nearest denser row upwards. Coloured marks are the centres. Dashed lines are the thresholds. Look for
# a gap between centres and other points; without a gap, compare the adjusted Rand index (ARI) in the titles.

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
# A centre is a row of the data, so it can be drawn. Each picture is one of the 12 centres that were chosen by number:
# the line is the path of the pen, which begins at the dot. Look for digits that appear twice, because they are written
# in several ways.

fig, axes = plt.subplots(2, 6, figsize=(9, 3.6), layout="constrained")
for k, (ax, row) in enumerate(zip(axes.flat, model.cluster_centers_indices_, strict=True)):
    x, y = X[row].reshape(8, 2).T
    ax.plot(x, y, color=plots.cluster_colors(12)[k], linewidth=2.5)
    ax.plot(x[0], y[0], "o", color="black")
    ax.set(xticks=[], yticks=[], xlim=(-10, 110), ylim=(-10, 110), title=f"cluster {k}")
plt.show()
