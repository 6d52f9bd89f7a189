"""
Fuzzy c-means: degrees of membership
====================================

Fuzzy c-means gives each row a membership in every cluster. The memberships of a row lie between 0 and 1, and their sum
is 1. They show which rows lie between clusters. This example clusters the iris flowers and varies the fuzzifier ``m``.
"""

# %%
# 1. Fit
# ------
# The data are four lengths of each of 150 flowers, from three species.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris

from mgclust import FuzzyCMeans, plots

iris = load_iris()
model = FuzzyCMeans(3, m=2.0, random_state=0).fit(iris.data)
print(f"{model.n_iter_} iterations, partition coefficient {model.partition_coefficient_:.3f}")

# %%
# 2. Show the memberships
# -----------------------
# Left: each column is a flower, and the heights of its colours are its memberships. Flowers are sorted by species, and
# within a species by membership. Right: each point is a flower, by its petal length and width. Its colour is its
# largest membership, and crosses are the centres. Look for columns with two colours, and for dark points: these flowers
# lie between two clusters. The first species is a clear cluster, and the other two overlap.

memberships = model.memberships_
order = np.lexsort((memberships[:, 0] - memberships[:, 1], iris.target))
fig, (left, right) = plt.subplots(1, 2, figsize=(12, 4.6), layout="constrained", width_ratios=(1.5, 1))
bottom = np.zeros(len(order))
for k, color in enumerate(plots.cluster_colors(3)):
    left.bar(range(150), memberships[order, k], bottom=bottom, width=1.0, color=color, label=f"cluster {k}")
    bottom += memberships[order, k]
left.set(xlabel="flower", ylabel="membership", xlim=(-0.5, 149.5), ylim=(0, 1), title="Memberships at m = 2")
left.set_xticks([25, 75, 125], iris.target_names)
left.legend(loc="lower left")
drawn = right.scatter(iris.data[:, 2], iris.data[:, 3], c=memberships.max(axis=1), cmap="viridis", vmin=1 / 3, vmax=1)
right.scatter(*model.cluster_centers_[:, 2:].T, marker="X", s=120, color="crimson", edgecolor="white", label="centre")
right.set(xlabel=iris.feature_names[2], ylabel=iris.feature_names[3], title="Largest membership of each flower")
right.legend(loc="upper left")
fig.colorbar(drawn, ax=right)

# %%
# 3. Vary the fuzzifier
# ---------------------
# Each line is a fit with another ``m``. It shows the largest membership of each flower, in decreasing order. Near
# ``m = 1``, nearly all memberships are 0 or 1, as in k-means. With larger ``m``, the memberships of a flower become
# more similar, so the line falls earlier.

fig, ax = plt.subplots(figsize=(7, 4.2), layout="constrained")
for m in (1.1, 1.5, 2.0, 3.0):
    largest = FuzzyCMeans(3, m=m, random_state=0).fit(iris.data).memberships_.max(axis=1)
    ax.plot(np.sort(largest)[::-1], label=f"m = {m}")
ax.set(xlabel="flowers, sorted", ylabel="largest membership", ylim=(1 / 3, 1.02), title="How clear the partition is")
ax.legend()
plt.show()
