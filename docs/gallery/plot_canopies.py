"""
Canopies: a cheap first look
============================

Canopy clustering covers the rows with overlapping balls. The first row that is left becomes a centre. Its canopy holds
every row within ``t1``, and rows within ``t2`` cannot become centres. The canopies show where the data lie, before a
more expensive method runs. This example shows how their number depends on the two distances.
"""

# %%
# 1. Make the data
# ----------------
# There are four clusters of different sizes and spreads.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from mgclust import Canopy, plots

places = [(0, 0), (9, 1), (5, 9), (14, 8)]
X, _ = make_blobs([4000, 1500, 500, 100], centers=places, cluster_std=[0.7, 0.6, 0.4, 0.5], random_state=0)

# %%
# 2. Start from suggested thresholds
# ----------------------------------
# Without ``t1`` and ``t2``, the fit suggests both from a sample of the rows. Take the suggestion as a start, and scale
# it up or down. With ``order="random"``, rows become centres in random order instead of the order of the data.

t1, t2 = Canopy().suggest_thresholds(X)
print(f"suggested: t1 = {t1:.2f}, t2 = {t2:.2f}")

# %%
# 3. Vary the scale
# -----------------
# Each mark is a fit: ``t2`` is to the right, and the number of canopies upwards, both on logarithmic axes. The number
# falls as the thresholds grow. Look for a level part of the curve: there the number is a property of the data and not
# of the thresholds. Here it is level at four, the true number of clusters (dashed).

scales = np.geomspace(0.3, 12, 30)
counts = [Canopy(t1 * scale, t2 * scale, order="random", random_state=0).fit(X).n_canopies_ for scale in scales]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.loglog(t2 * scales, counts, marker="o")
ax.axhline(4, color="0.6", linestyle="--")
ax.set(xlabel="t2", ylabel="canopies", title="Canopies by threshold (dashed: 4)")

# %%
# 4. Draw the canopies
# --------------------
# The left picture has the suggested thresholds, and the right picture the smallest thresholds with four canopies. Each
# point has the colour of its nearest centre. Solid circles have the radius ``t1``; the right picture also has dotted
# circles of radius ``t2``. On the right, each cluster lies in a canopy of its own.

fig, axes = plt.subplots(1, 2, figsize=(12, 5.4), layout="constrained")
for ax, scale in zip(axes, (1, scales[counts.index(4)]), strict=True):
    model = Canopy(t1 * scale, t2 * scale, order="random", random_state=0).fit(X)
    plots.canopies(X, model.labels_, model.cluster_centers_, model.t1_, model.t2_, ax=ax)
plt.show()
