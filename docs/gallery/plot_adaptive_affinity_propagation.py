"""
Adaptive affinity propagation of fMRI voxels
============================================

Affinity propagation needs a preference, which decides how many clusters it finds. Adaptive affinity propagation chooses
the preference itself: it lowers the preference step by step, keeps every number of clusters on the way as a candidate,
and chooses one candidate by silhouettes. This example groups voxels by the correlation of their time series.
"""

# %%
# 1. Open the voxels
# ------------------
# The sample *localizer* is a part of two axial slices of a real BOLD series, recorded while a person watched pictures.
# Each voxel is a row, and each point in time is a feature. The back half of one slice is enough here.

import matplotlib.pyplot as plt
import nibabel
import numpy as np

from mgclust import AdaptiveAffinityPropagation, plots
from mgclust.data import samples

dataset = samples.load("localizer")
mask = nibabel.load(samples.mask_path())
where = np.argwhere(mask.get_fdata() > 0)
chosen = np.flatnonzero((where[:, 1] < 16) & (where[:, 2] == 0))
X = dataset.read(0, dataset.shape[0])[chosen]
print(X.shape[0], "voxels,", X.shape[1], "points in time")

# %%
# 2. Scan the numbers of clusters
# -------------------------------
# With ``affinity="correlation"``, two voxels are similar if their series correlate. The fit warns if even the best
# silhouette is low, as it is here. It then chooses by the second rule of the authors' package.

model = AdaptiveAffinityPropagation(affinity="correlation", random_state=0).fit(X)
print(f"{model.n_clusters_} clusters, mean silhouette {model.silhouette_:.2f}, {model.n_iter_} iterations")

# %%
# 3. Look at the scan
# -------------------
# Each mark is a candidate: its number of clusters is to the right, and its silhouette upwards. The blue line is the
# mean silhouette of all rows, and the grey line is the lowest mean of a cluster. White marks are not eligible, because
# one of their clusters is too small. The circle marks the choice. The dotted line is the preference (right axis).
#
# Look for a high maximum of the blue line: it would be a clear number of clusters. Here all silhouettes are low.
# ``model.labels_for(k)`` returns the labels of another candidate, without another run.

fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
plots.scan(model.result_, ax=ax)

# %%
# 4. Put the labels back into the volume
# --------------------------------------
# Each colour is a cluster. The background is the mean of the series over time. L and R are the left and right side of
# the brain.

volume = np.zeros(mask.shape, dtype=int)
volume[tuple(where[chosen].T)] = model.labels_ + 1
bold = nibabel.load(samples.path("localizer"))
fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
plots.label_slices(volume, bold.get_fdata().mean(axis=3), ax=ax, affine=mask.affine)
plt.show()
