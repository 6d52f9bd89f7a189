import pickle

from sklearn.cluster import AffinityPropagation, affinity_propagation
from sklearn.datasets import make_blobs
from sklearn.metrics import euclidean_distances

X, _ = make_blobs(n_samples=120, centers=3, random_state=1)
S = -euclidean_distances(X, squared=True)
print(affinity_propagation(S, preference=-60, random_state=3, return_n_iter=True))
model = pickle.loads(pickle.dumps(AffinityPropagation(random_state=0, preference=-60).fit(X)))
print(sorted(vars(model)), model.labels_.tolist())
