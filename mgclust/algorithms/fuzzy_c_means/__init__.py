"""Fuzzy c-means.

`estimator` has the parameters, and `run_spec` describes a run to `ranks`, which iterates: `initialization` finds the
first centres (`input` checks what a user gives to start from), `weighted_sums` is one pass over the rows, or
`covariances` if clusters have norms of their own, and `convergence` decides which iteration is the last.
`membership_iterations` is the variant that starts from memberships and converges by them, `noise` is the cluster of
outliers, and `validity` compares numbers of clusters. `prototypes` are centres with what else a cluster has,
`memberships` those of any rows in given clusters; `presentation` shows results, `result_warnings` lists their warnings.

The method in plain float64 is `tests/oracles/fuzzy_c_means.py`; covariances are `gustafson_kessel.py` there.
"""
