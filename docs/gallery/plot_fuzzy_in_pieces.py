"""
Fuzzy c-means of a file in pieces
=================================

Fuzzy c-means reads the rows once per iteration and stores no memberships meanwhile. Rows may therefore stay in a file
that is read in pieces, and memberships may go to another file. This example clusters the colours of a photograph from
a Zarr store.
"""

# %%
# 1. Write the pixels to a store
# ------------------------------
# 214 x 320 pixels; each is a row of three features: red, green and blue.

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr
from sklearn.datasets import load_sample_image

from mgclust import FuzzyCMeans

image = load_sample_image("china.jpg")[::2, ::2] / np.float32(255)
pixels = image.reshape(-1, 3)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "pixels.zarr"
zarr.create_array(path, data=pixels, chunks=(8_192, 3))
print(f"{len(pixels):,} rows in {path.name}")

# %%
# 2. Fit from the file
# --------------------
# ``memory_limit`` bounds the memory of the fit. Here the rows do not fit beside the labels and sums, so each
# iteration reads them block by block. The centres have the same bits as those of a fit of the whole array. A
# fuzzifier near 1 keeps the colours of the centres apart.

small = FuzzyCMeans(8, m=1.3, memory_limit="7 MiB", random_state=0).fit(path)
whole = FuzzyCMeans(8, m=1.3, random_state=0).fit(pixels)
print("same centres:", np.array_equal(small.cluster_centers_, whole.cluster_centers_))

# %%
# 3. Write memberships to another store
# -------------------------------------
# ``out`` writes them block by block and returns the store, opened for reading.

memberships = small.predict_memberships(path, out=Path(folder.name) / "memberships.zarr")
print(memberships.shape, memberships.chunks)

# %%
# 4. Show the colours
# -------------------
# Left: each pixel in the colour of its cluster. Right: the mean of the centres, weighted by memberships.

u = memberships[:]
fig, axes = plt.subplots(1, 3, figsize=(13, 3.4), layout="constrained")
pictures = {
    "photograph": pixels,
    "colour of the nearest centre": small.cluster_centers_[small.labels_],
    "mean of centres by membership": u @ small.cluster_centers_,
}
for ax, (title, values) in zip(axes, pictures.items(), strict=True):
    ax.imshow(np.clip(values, 0, 1).reshape(image.shape))
    ax.set(title=title, xticks=[], yticks=[])
plt.show()
folder.cleanup()
