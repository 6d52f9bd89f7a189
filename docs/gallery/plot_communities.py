"""
Communities of a graph
======================

``FastNewman`` merges communities of a graph, at each step the two whose merge raises Newman's modularity most. The
merges form a tree, which can be cut into any number of communities. This example finds communities of the characters of
*Les Misérables*.
"""

# %%
# 1. Load the graph
# -----------------
# The nodes are 77 characters. The weight of an edge is the number of chapters in which both characters appear.

import matplotlib.pyplot as plt
import numpy as np

from mgclust import FastNewman, plots
from mgclust.data import samples

graph = samples.load("lesmis")
print(graph)

# %%
# 2. Merge
# --------
# Communities are numbered in the order of their smallest node. Each line lists the first six characters of a community.

model = FastNewman().fit(graph)
print(f"{model.n_clusters_} communities, modularity {model.modularity_:.4f}")
for k in range(model.n_clusters_):
    print(k, *model.node_names_[model.labels_ == k][:6])

# %%
# 3. Show the tree of merges
# --------------------------
# Each fork is a merge. Its height is the number of communities that are left after this merge. The dashed line shows
# where the tree is cut. Below it, branches have the colour of their community. The characters stand at the bottom.

fig, ax = plt.subplots(figsize=(13, 5.5), layout="constrained")
plots.dendrogram(model.result_, ax=ax)

# %%
# 4. Show modularity and the adjacency matrix
# -------------------------------------------
# Left: modularity against the number of communities. The circle marks the maximum, where the tree is cut. A flat top
# means that several numbers of communities are about as good. Right: each mark is an edge between the node of its row
# and the node of its column. Nodes are sorted by community. Edges within communities are in colour, and edges between
# communities in grey. Good communities are full squares on the diagonal.

fig, (left, right) = plt.subplots(1, 2, figsize=(13, 6), layout="constrained")
plots.modularity(model.result_, ax=left)
plots.adjacency(graph, model.labels_, ax=right)
plt.show()

# %%
# The same merges give other numbers of communities. Each line has the sizes of the communities and their modularity.

for k in (3, 5, 8):
    print(k, "communities:", np.bincount(model.cut(k)), f"{model.modularity_history_[graph.n_nodes - k]:.4f}")
