import sys

from sklearn.metrics import silhouette_score

print("before", sys.argv[1:])


def fail():
    silhouette_score([[0.0], [1.0], [2.0]], [0, 0])


if len(sys.argv) > 1:
    sys.exit(int(sys.argv[1]))
fail()
