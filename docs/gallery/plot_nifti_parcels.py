"""
From a NIfTI file to a parcellation
===================================

mgclust opens fMRI series as tables: each voxel of the mask is a row, and each point in time is a feature. It writes the
labels as a NIfTI volume on the grid of the series. This example shows all steps from the file to the picture.
"""

# %%
# 1. Name the files
# -----------------
# Put the names of your own series and mask here. The sample *localizer* is the back of two axial slices of a real BOLD
# series, recorded while a person watched pictures.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import nibabel
import numpy as np

from mgclust import FuzzyCMeans, open_dataset, plots
from mgclust.data import samples
from mgclust.output.label_output import write_labels

bold, mask = samples.path("localizer"), samples.mask_path("localizer")
image = nibabel.load(bold)
print(image.shape, "voxels of", image.header.get_zooms()[:3], "mm")

# %%
# 2. Open the voxels of the mask
# ------------------------------
# ``detrend`` subtracts a straight line from the series of each voxel. ``standardize="zscore"`` then scales each series
# to mean 0 and standard deviation 1.

dataset = open_dataset(bold, mask=mask, detrend=True, standardize="zscore")
print(dataset.shape)

# %%
# 3. Cluster
# ----------
# With the correlation metric, two voxels are close if their series rise and fall together. With many features, the
# fuzzifier must be near 1. Each line of the picture is the mean series of a parcel, against time; the lines are shifted
# upwards by 3 each. Look for a line that rises and falls regularly.

model = FuzzyCMeans(6, m=1.1, metric="correlation", random_state=0).fit(dataset)
series = dataset.read(0, dataset.shape[0])
fig, ax = plt.subplots(figsize=(9, 4), layout="constrained")
seconds = image.header.get_zooms()[3] * np.arange(dataset.shape[1])
for k, color in enumerate(plots.cluster_colors(6)):
    ax.plot(seconds, series[model.labels_ == k].mean(axis=0) + 3 * k, color=color)
ax.set(xlabel="seconds", ylabel="mean series (z-scores)", yticks=[], title="Mean series of each parcel")

# %%
# 4. Write the parcels and draw them
# ----------------------------------
# ``write_labels`` writes a label volume on the grid of the series (0 is background), a table of the parcels, and a
# sidecar file. The names follow BIDS. Each colour of the picture is a parcel, the same as in the picture above. L and R
# are the left and right side of the brain; front is up.

with tempfile.TemporaryDirectory() as folder:
    write_labels(dataset, model.labels_, folder, method="fuzzy-c-means")
    print(*sorted(path.name for path in Path(folder).iterdir()), sep="\n")
    volume = nibabel.load(next(Path(folder).glob("*_dseg.nii.gz"))).get_fdata().astype(int)
fig, ax = plt.subplots(figsize=(6, 7.5), layout="constrained")
plots.label_slices(volume, image.get_fdata().mean(axis=3), ax=ax, affine=image.affine)
plt.show()

# %%
# The pictures were shown in blocks. The series of one parcel rises and falls as regularly as these blocks. This parcel
# lies at the back of the brain, in visual areas.
