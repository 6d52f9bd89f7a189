"""Silhouettes of given labels.

`estimator` has the method and two functions, `labels` checks and numbers the labels, and `ranks` adds up distances.
`presentation` shows results, also of methods that choose the number of clusters by silhouettes.

`silhouette` of `tests/oracles/affinity_propagation.py` is the method in plain float64.
"""
