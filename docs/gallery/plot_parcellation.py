"""
Parcels, and evidence for their number
======================================

A parcel is a connected set of voxels with similar series. This example divides a made brain into parcels, compares
several numbers of parcels by both halves of the series, and draws the parcels that are chosen.
"""

# %%
# 1. Make a series
# ----------------
# The series has 10 known parcels, noise and drift. Use your own image and mask instead: ``open_dataset`` also takes
# paths of NIfTI files.

import matplotlib.pyplot as plt
import nibabel
from sklearn.metrics import adjusted_rand_score

from mgclust import Parcellation, open_dataset, plots
from mgclust.datasets import make_bold

bold, mask, truth = made = make_bold(shape=(14, 16, 8), n_parcels=10, noise=1.5)
dataset = open_dataset(nibabel.Nifti1Image(bold, made.affine), mask=mask, detrend=True)
print(dataset.shape)

# %%
# 2. Compare numbers of parcels
# -----------------------------
# The fit also finds parcels of the first and of the second half of the series. Each half judges the parcels of the
# other half. Solid lines should be far above the dashed lines of the same colours, which belong to compact parcels that
# ignore the series. The DCBC decides: it is the correlation within parcels minus the correlation between parcels, at
# equal distances.

model = Parcellation([4, 6, 8, 10, 12, 16, 24]).fit(dataset)
fig, ax = plt.subplots(figsize=(8, 5), layout="constrained")
plots.parcel_evaluation(model, ax=ax)
for k, dcbc in zip(model.evaluation_["n_clusters"], model.evaluation_["dcbc"], strict=True):
    print(f"{k:3d} parcels: DCBC {dcbc:.2f}")

# %%
# 3. Draw the parcels
# -------------------
# Every parcel is one connected piece. ``labels_for`` returns the parcels of the other numbers. A parcel has similar
# colours in both pictures if its centre is at nearly the same place.

print(model.n_clusters_, "parcels, ARI with the truth:", round(adjusted_rand_score(truth[mask], model.labels_), 3))
fig, axes = plt.subplots(1, 2, figsize=(11, 6), layout="constrained")
for ax, k in zip(axes, (model.n_clusters_, 24), strict=True):
    volume = dataset.to_grid(model.labels_for(k) + 1)
    colors = plots.parcel_colors(volume, made.affine)
    plots.label_slices(volume, bold.mean(axis=3), ax=ax, affine=made.affine, colors=colors)
    ax.set_title(f"{k} parcels")

# %%
# 4. Smooth the borders
# ---------------------
# A larger ``compactness`` makes borders smoother. On a series as noisy as this one, parcels with smoother borders agree
# more between the halves, and are more homogeneous on the other half. A value that is too large ignores the series.

for compactness in (0.0, 0.01, 0.1, 10.0):
    found = Parcellation(10, compactness=compactness, evaluate=True).fit(dataset)
    held_out, ari = (float(found.evaluation_[name][0]) for name in ("held_out", "split_half_ari"))
    print(f"compactness {compactness}: homogeneity on the other half {held_out:.3f}, ARI of the halves {ari:.3f}")
plt.show()
