"""Silhouettes of given labels.

`estimator` has the method and two functions, `labels` checks and numbers the labels, and `ranks` adds up distances.
`presentation` shows results, also for methods that choose the number of clusters by silhouettes.

The function `silhouette` in `tests/oracles/affinity_propagation.py` computes the method in plain float64.
"""
