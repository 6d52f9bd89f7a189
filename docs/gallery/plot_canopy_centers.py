"""
Canopies as initial centres
===========================

Fuzzy c-means and k-means start from initial centres and improve them. Canopy centres lie more than ``t2`` apart, so no
two of them start close together. This example compares three starts of fuzzy c-means by the objective that they reach.
"""

# %%
# 1. Make the data
# ----------------
# There are 25 clusters on a grid. Neighbouring centres are 8 apart, and the standard deviation of a cluster is 1.

import matplotlib.pyplot as plt
from sklearn.metrics import adjusted_rand_score

from mgclust import Canopy, FuzzyCMeans, plots
from mgclust.datasets import make_gaussian_grid

X, truth, _ = make_gaussian_grid(side=5, cluster_size=200, spacing=8.0, random_state=0)

# %%
# 2. Find canopies
# ----------------
# If ``t2`` is somewhat smaller than the distance of neighbouring centres, there is one canopy per cluster.

canopy = Canopy(t1=8.0, t2=6.2, order="random", random_state=0).fit(X)
print(canopy.n_canopies_, "canopies")

# %%
# 3. Compare starts
# -----------------
# ``init="random"`` draws rows, and ``init="k-means++"`` prefers rows that are far apart. An array contains the initial
# centres themselves. (``init="canopy"`` finds canopies with thresholds that it chooses.)

starts = {"random rows": "random", "k-means++": "k-means++", "canopy centres": canopy.cluster_centers_}
models = {name: FuzzyCMeans(canopy.n_canopies_, init=init, random_state=0).fit(X) for name, init in starts.items()}
for name, model in models.items():
    print(f"{name}: {model.n_iter_} iterations, objective {model.objective_:.0f}")

# %%
# 4. Look at the result
# ---------------------
# Left: the objective after each iteration, for each start; lower is better. The curves of k-means++ and of canopy
# centres lie on each other. Middle and right: the points in the colours of their clusters, and the centres with their
# numbers. Look for clusters with two colours in the middle picture: two centres that start in one cluster often stay
# there, and elsewhere two clusters share one centre.

fig, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
for name, model in models.items():
    left.plot(model.objective_history_, marker=".", label=name)
left.set(xlabel="iteration", ylabel="objective", title="Objective from each start")
left.legend()
for ax, name in ((middle, "random rows"), (right, "canopy centres")):
    plots.scatter(X, models[name].labels_, models[name].cluster_centers_, ax=ax)
    ax.set_title(f"{name}: ARI {adjusted_rand_score(truth, models[name].labels_):.3f}")
plt.show()
