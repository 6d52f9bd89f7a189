"""
Affinity propagation: exemplars of handwritten digits
=====================================================

Affinity propagation finds exemplars: rows of the data that represent the other rows. You do not give the number of
clusters, but a ``preference``: the higher it is, the more rows become exemplars. This example finds exemplars of 500
images and shows how their number depends on the preference.
"""

# %%
# 1. Load images
# --------------
# The data are 500 images of handwritten digits, with 8 x 8 pixels each.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_digits
from sklearn.metrics import pairwise_distances

from mgclust import AffinityPropagation

digits = load_digits()
X, images = digits.data[:500], digits.images[:500]

# %%
# 2. Pass messages
# ----------------
# The similarity of two images is minus their squared Euclidean distance. The default preference is the median
# similarity, which gives many small clusters. A lower preference gives fewer clusters.

median = np.median(-pairwise_distances(X, metric="sqeuclidean"))
models = [AffinityPropagation(damping=0.9, preference=scale * median, max_iter=1000).fit(X) for scale in (1, 4, 10, 16)]
for model in models:
    print(f"{len(model.cluster_centers_indices_)} exemplars after {model.n_iter_} iterations")

# %%
# 3. Show the exemplars
# ---------------------
# Each line shows one cluster of the run with the lowest preference: first its exemplar, in blue, and then up to eight
# members of its cluster. Look for members that show another digit than their exemplar: there are more digits than
# exemplars, so some clusters hold several digits.

model = models[-1]
exemplars = model.cluster_centers_indices_
fig, axes = plt.subplots(len(exemplars), 9, figsize=(7, 0.78 * len(exemplars)), layout="constrained")
for k, row in enumerate(exemplars):
    members = np.flatnonzero((model.labels_ == k) & (np.arange(len(X)) != row))[:8]
    for ax in axes[k]:
        ax.axis("off")
    for ax, i in zip(axes[k], (row, *members), strict=False):
        ax.imshow(images[i], cmap="Blues" if i == row else "gray_r")
fig.suptitle("Exemplars (blue) and members of their clusters")
plt.show()
