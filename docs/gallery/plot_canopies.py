"""
Canopies: a cheap first look
============================

Canopy clustering covers the rows with overlapping balls. The first row that is left becomes a centre: its canopy is
every row within ``t1``, and rows within ``t2`` become no centres themselves. The number of canopies tells where the
data are before a more expensive method runs.
"""

# %%
# 1. Make the data
# ----------------
# Four clusters of different sizes and spreads.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_blobs

from mgclust import Canopy, plots

places = [(0, 0), (9, 1), (5, 9), (14, 8)]
X, _ = make_blobs([4000, 1500, 500, 100], centers=places, cluster_std=[0.7, 0.6, 0.4, 0.5], random_state=0)

# %%
# 2. Start from suggested thresholds
# ----------------------------------
# Without ``t1`` and ``t2`` the fit takes a suggestion from a sample of the rows. It is a start, to be scaled up or
# down. ``order="random"`` picks centres in random order instead of the order of the rows.

t1, t2 = Canopy().suggest_thresholds(X)
print(f"suggested: t1 = {t1:.2f}, t2 = {t2:.2f}")

# %%
# 3. Vary the scale
# -----------------
# The number of canopies falls as the thresholds grow. Where it stays the same over a range, it is a property of the
# data and not of the thresholds.

scales = np.geomspace(0.3, 12, 30)
counts = [Canopy(t1 * scale, t2 * scale, order="random", random_state=0).fit(X).n_canopies_ for scale in scales]
fig, ax = plt.subplots(figsize=(7, 4), layout="constrained")
ax.loglog(t2 * scales, counts, marker="o")
ax.axhline(4, color="0.6", linestyle="--")
ax.set(xlabel="t2", ylabel="canopies", title="Canopies by threshold (dashed: 4)")

# %%
# 4. Draw the canopies
# --------------------
# Left: the suggested thresholds; right: the smallest ones of the list with four canopies. Lines are at ``t1`` and
# dots at ``t2``; colours tell the nearest centre.

fig, axes = plt.subplots(1, 2, figsize=(12, 5.4), layout="constrained")
for ax, scale in zip(axes, (1, scales[counts.index(4)]), strict=True):
    model = Canopy(t1 * scale, t2 * scale, order="random", random_state=0).fit(X)
    plots.canopies(X, model.labels_, model.cluster_centers_, model.t1_, model.t2_, ax=ax)
plt.show()
