"""
Adaptive affinity propagation of fMRI voxels
============================================

Adaptive affinity propagation chooses the preference itself. It lowers the preference step by step, keeps every number
of clusters that it passes, and returns the one with the best mean silhouette. This example groups voxels by the
correlation of their time series.
"""

# %%
# 1. Make a small series
# ----------------------
# A simulated BOLD series: contiguous parcels, each with its own signal, with noise and a linear drift. Voxels are
# rows, points in time are features.

import matplotlib.pyplot as plt
from scipy.signal import detrend
from sklearn.metrics import adjusted_rand_score

from mgclust import AdaptiveAffinityPropagation, plots
from mgclust.datasets import make_bold

made = make_bold(shape=(9, 10, 7), n_parcels=6, n_timepoints=100)
X = detrend(made.bold[made.mask])
print(X.shape[0], "voxels,", X.shape[1], "points in time")

# %%
# 2. Scan the numbers of clusters
# -------------------------------
# ``affinity="correlation"`` makes voxels similar when their series correlate.

model = AdaptiveAffinityPropagation(affinity="correlation", random_state=0).fit(X)
print(f"{model.n_clusters_} clusters, mean silhouette {model.silhouette_:.2f}, {model.n_iter_} iterations")
truth = made.truth[made.mask]
print(f"adjusted Rand index against the parcels: {adjusted_rand_score(truth, model.labels_):.3f}")

# %%
# 3. Look at the scan
# -------------------
# Each mark is a candidate. Another one is taken with ``model.labels_for(k)``, without another run.

fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
plots.scan(model.result_, ax=ax)

# %%
# 4. Put the labels back into the volume
# --------------------------------------

volume = made.mask.astype(int)
volume[made.mask] = model.labels_ + 1
fig, ax = plt.subplots(figsize=(9, 4.5), layout="constrained")
plots.label_slices(volume, made.bold.mean(axis=3), ax=ax, affine=made.affine)
plt.show()
