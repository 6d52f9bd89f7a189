"""Nearest neighbours: the k nearest rows of each row.

`estimator` has the method and two functions, `ranks` searches, and `presentation` shows results.

`tests/oracles/nearest_neighbors.py` has the method in plain float64.
"""
