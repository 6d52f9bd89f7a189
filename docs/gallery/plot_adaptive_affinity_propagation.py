"""
Adaptive affinity propagation of fMRI voxels
============================================

Adaptive affinity propagation chooses the preference itself. It lowers the preference step by step, keeps every number
of clusters that it passes, and chooses one by silhouettes. This example groups voxels by the
correlation of their time series.
"""

# %%
# 1. Open the voxels
# ------------------
# The sample *localizer* is a part of two axial slices of a real BOLD series, taken while pictures were watched. Voxels
# are rows, points in time are features. The back half of one slice is enough here.

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
# ``affinity="correlation"`` makes voxels similar when their series correlate. The fit warns if even the best
# silhouette is low, as in these few slices. It then chooses by the second rule of the authors' package.

model = AdaptiveAffinityPropagation(affinity="correlation", random_state=0).fit(X)
print(f"{model.n_clusters_} clusters, mean silhouette {model.silhouette_:.2f}, {model.n_iter_} iterations")

# %%
# 3. Look at the scan
# -------------------
# Each mark is a candidate. Another one is taken with ``model.labels_for(k)``, without another run.

fig, ax = plt.subplots(figsize=(7.5, 4.8), layout="constrained")
plots.scan(model.result_, ax=ax)

# %%
# 4. Put the labels back into the volume
# --------------------------------------

volume = np.zeros(mask.shape, dtype=int)
volume[tuple(where[chosen].T)] = model.labels_ + 1
bold = nibabel.load(samples.path("localizer"))
fig, ax = plt.subplots(figsize=(7, 5), layout="constrained")
plots.label_slices(volume, bold.get_fdata().mean(axis=3), ax=ax, affine=mask.affine)
plt.show()
