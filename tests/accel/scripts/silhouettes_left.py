from sklearn.datasets import make_blobs
from sklearn.metrics import silhouette_score

X, labels = make_blobs(n_samples=60, centers=3, random_state=0)
print(round(silhouette_score(X, labels, metric="chebyshev"), 9))
print(round(silhouette_score(X, labels, metric=lambda a, b: abs(a - b).sum()), 9))
try:
    silhouette_score(X, [0] * 60)
except ValueError as error:
    print(error)
