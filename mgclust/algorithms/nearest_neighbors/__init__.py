"""Each row's nearest rows.

`estimator` is the method and two functions, `ranks` searches on the ranks, `presentation` shows results.

The method in plain float64 is `tests/oracles/nearest_neighbors.py`.
"""
