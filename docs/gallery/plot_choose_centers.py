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
# The data are 1,797 images of handwritten digits, 8 x 8 pixels each.

import matplotlib.pyplot as plt
from sklearn.datasets import load_digits
from sklearn.metrics import adjusted_rand_score

from mgclust import DensityPeaks, plots

digits = load_digits()
model = DensityPeaks().fit(digits.data)
print(model.n_clusters_, "clusters by default")

# %%
# 2. Cut by number and by thresholds
# ----------------------------------
# ``select_centers(k)`` takes the points of the k largest products of density and distance. Thresholds take every
# point above both, which is a box drawn in the upper right of the decision graph.

cuts = {"default": {}, "thresholds": {"rho_min": 150, "delta_min": 26}, "number": {"n_clusters": 10}}
fig, axes = plt.subplots(1, 3, figsize=(13, 4.4), layout="constrained", sharey=True)
for ax, (name, cut) in zip(axes, cuts.items(), strict=True):
    if cut:
        model.select_centers(**cut)
    plots.decision_graph(model.result_, ax=ax)
    score = adjusted_rand_score(digits.target, model.labels_)
    ax.set_title(f"{name}: {model.n_clusters_} clusters, ARI {score:.2f}")
    ax.label_outer()

# %%
# 3. Look at the centres
# ----------------------
# A centre is a row of the data, so it can be shown as an image. These are the centres of the cut by number.

centers = model.cluster_centers_indices_
fig, axes = plt.subplots(1, 10, figsize=(10, 1.4), layout="constrained")
for k, (ax, row) in enumerate(zip(axes, centers, strict=True)):
    ax.imshow(digits.images[row], cmap="gray_r")
    ax.set(xticks=[], yticks=[], title=f"cluster {k}")
plt.show()
