import multiprocessing
import os
import sys

import numpy as np
from sklearn.metrics import silhouette_score

X, labels = np.arange(40.0).reshape(20, 2) ** 1.5, np.arange(20) // 10


def score(number):
    return round(silhouette_score(X + number, labels), 9)


if __name__ == "__main__":
    print(score(0), sys.argv, __name__, os.path.basename(__file__), os.path.basename(sys.path[0]))
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(score, range(3)))
