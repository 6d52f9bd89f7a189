"""Fuzzy c-means.

`estimator` has the parameters. `run_spec` describes a run to `ranks`, which iterates. Each iteration is one pass over
the rows: `weighted_sums`, or `covariances` if each cluster has its own covariance. `initialization` finds the first
centres, and `input` checks centres or memberships that a user gives. `convergence` decides which iteration is the last.
`membership_iterations` is a variant that starts from memberships and converges by them. `noise` is the cluster of
outliers, and `validity` compares numbers of clusters. `prototypes` holds the centres and covariances, and `memberships`
computes the memberships of any rows. `presentation` has the report, and `result_warnings` the warnings.

The oracle in plain float64 is `tests/oracles/fuzzy_c_means.py`; for covariances, `tests/oracles/gustafson_kessel.py`.
"""
