from sklearn.cluster import AffinityPropagation
from sklearn.datasets import make_blobs

X, _ = make_blobs(n_samples=60, centers=3, random_state=0)
model = AffinityPropagation(max_iter=3, random_state=0).fit(X)  # which does not converge
print(model.labels_.tolist(), model.n_iter_)
