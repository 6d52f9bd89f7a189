"""Silhouettes of given labels.

`estimator` is the method and two functions, `labels` checks and numbers the labels, `ranks` sums distances on the
ranks, `presentation` shows results, also those of methods that choose by silhouettes.

The method in plain float64 is `silhouette` of `tests/oracles/affinity_propagation.py`.
"""
