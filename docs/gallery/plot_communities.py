"""
Communities of a graph
======================

``FastNewman`` joins communities of a graph so that Newman's modularity rises most at each step. The
merges form a tree that can be cut anywhere. This example finds communities of the characters of *Les Misérables*.
"""

# %%
# 1. Load the graph
# -----------------
# 77 characters; the weight of an edge is the number of chapters in which both appear.

import matplotlib.pyplot as plt
import numpy as np

from mgclust import FastNewman, plots
from mgclust.data import samples

graph = samples.load("lesmis")
print(graph)

# %%
# 2. Merge
# --------
# Communities are numbered by their smallest node.

model = FastNewman().fit(graph)
print(f"{model.n_clusters_} communities, modularity {model.modularity_:.4f}")
for k in range(model.n_clusters_):
    print(k, *model.node_names_[model.labels_ == k][:6])

# %%
# 3. Show the tree of merges
# --------------------------
# Each fork stands as high as the number of communities that it left. The colours are those of the communities.

fig, ax = plt.subplots(figsize=(13, 5.5), layout="constrained")
plots.dendrogram(model.result_, ax=ax)

# %%
# 4. Show modularity and the adjacency matrix
# -------------------------------------------
# The tree is cut where modularity is largest. In the matrix, nodes are sorted by community: edges within communities
# are in colour, edges between them in grey.

fig, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
plots.modularity(model.result_, ax=left)
plots.adjacency(graph, model.labels_, ax=right)
plt.show()

# %%
# Other numbers of communities follow from the same merges.

for k in (3, 5, 8):
    print(k, "communities:", np.bincount(model.cut(k)), f"{model.modularity_history_[graph.n_nodes - k]:.4f}")
