"""Nearest neighbours: the k nearest rows of each row.

`estimator` contains the method and two functions, `ranks` runs the search, and `presentation` shows results.

`tests/oracles/nearest_neighbors.py` implements the method in plain float64.
"""
