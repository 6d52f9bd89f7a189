"""
From a NIfTI file to a parcellation
===================================

mgclust opens fMRI series as tables: the voxels of a mask are rows, points in time are features. Labels go back to the
grid of the series as a NIfTI volume. This example runs all steps from file to picture.
"""

# %%
# 1. Write a series and its mask
# ------------------------------
# Your own files go here. The simulated series is in units of a scanner, with noise and a linear drift.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nibabel

from mgclust import DensityPeaks, open_dataset, plots
from mgclust.datasets import make_bold

folder = tempfile.TemporaryDirectory()
bold, mask, _ = make_bold(shape=(16, 20, 14), n_parcels=10, n_timepoints=100).save(folder.name)
print(nibabel.load(bold).shape)

# %%
# 2. Open the voxels of the mask
# ------------------------------
# ``detrend`` removes the straight line of each voxel, ``standardize="zscore"`` brings its series to mean 0 and
# standard deviation 1.

dataset = open_dataset(bold, mask=mask, detrend=True, standardize="zscore")
print(dataset.shape)

# %%
# 3. Cluster
# ----------
# The correlation distance is small for voxels whose series rise and fall together.

model = DensityPeaks(10, metric="correlation").fit(dataset)
fig, ax = plt.subplots(figsize=(6.5, 5), layout="constrained")
plots.decision_graph(model.result_, ax=ax)

# %%
# 4. Write the parcels and draw them
# ----------------------------------
# ``write_labels`` writes a label volume on the grid of the series (0 is background), a table of the parcels and a
# sidecar file, with names after BIDS.

centers = model.cluster_centers_indices_
dataset.write_labels(model.labels_, folder.name, method="density-peaks", centers=centers)
volume = nibabel.load(next(Path(folder.name).glob("*_dseg.nii.gz")))
mean = nibabel.load(bold).get_fdata().mean(axis=3)
fig, ax = plt.subplots(figsize=(9, 6), layout="constrained")
plots.label_slices(volume.get_fdata().astype(int), mean, ax=ax, affine=volume.affine)
plt.show()
print(sorted(path.name for path in Path(folder.name).iterdir()))
folder.cleanup()
