import numpy as np
from sklearn.cluster import AffinityPropagation
from sklearn.datasets import make_blobs

X, _ = make_blobs(n_samples=200, centers=4, cluster_std=0.6, random_state=0)
model = AffinityPropagation(preference=-50, random_state=0).fit(X)
print(model, model.labels_.tolist(), model.cluster_centers_indices_.tolist(), model.n_iter_, model.labels_.dtype)
print(model.predict(X[:5] + 0.1).tolist(), np.round(model.affinity_matrix_[:2, :3], 6).tolist())
