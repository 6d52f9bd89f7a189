"""
Fuzzy c-means of a file in chunks
=================================

Fuzzy c-means reads the rows once per iteration, and stores no memberships while it runs. So the rows can stay in a file
that is read in chunks, and the memberships can be written to another file. This example clusters the colours of a
photograph in a Zarr store.
"""

# %%
# 1. Write the pixels to a store
# ------------------------------
# The photograph has 214 x 320 pixels. Each pixel is a row with three features: red, green and blue.

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
# ``memory_limit`` bounds the memory of the fit. Here the rows, labels and sums together exceed the limit, so each
# iteration reads the rows block by block. The centres are bitwise identical to the centres of a fit of the whole array.
# A fuzzifier near 1 keeps the colours of the centres apart.

small = FuzzyCMeans(8, m=1.3, memory_limit="7 MiB", random_state=0).fit(path)
whole = FuzzyCMeans(8, m=1.3, random_state=0).fit(pixels)
print("same centres:", np.array_equal(small.cluster_centers_, whole.cluster_centers_))

# %%
# 3. Write memberships to another store
# -------------------------------------
# With ``out``, the memberships are written block by block. The call returns the store, open for reading.

memberships = small.predict_memberships(path, out=Path(folder.name) / "memberships.zarr")
print(memberships.shape, memberships.chunks)

# %%
# 4. Show the colours
# -------------------
# Left: the photograph. Middle: each pixel in the colour of its nearest centre, so there are eight colours. Right: each
# pixel as the mean of the eight centres, weighted by its memberships. Look at the sky: the steps between two colours in
# the middle picture are softer in the right one.

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
