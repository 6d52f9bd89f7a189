import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import make_blobs
from sklearn.metrics import pairwise_distances, silhouette_samples, silhouette_score

X, _ = make_blobs(n_samples=300, centers=4, random_state=2)
labels = KMeans(4, n_init=1, random_state=0).fit_predict(X)
for metric in ("euclidean", "cityblock", "cosine"):
    print(metric, round(silhouette_score(X, labels - 1, metric=metric), 9))
print(round(silhouette_score(pairwise_distances(X), labels, metric="precomputed"), 9))
print(round(silhouette_score(X, labels, sample_size=100, random_state=5), 9))
samples = silhouette_samples(X.astype(np.float32), labels.astype(str))
print(samples.dtype, np.round(samples[:5], 3).tolist())
