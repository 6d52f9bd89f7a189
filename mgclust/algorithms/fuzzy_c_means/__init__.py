"""Fuzzy c-means.

`estimator` has the parameters. `run_spec` describes a run to `ranks`, which iterates. Each iteration is one pass over
the rows: by `weighted_sums`, or by `covariances` if each cluster has its own covariance. `initialization` finds the
first centres, and `input` checks centres or memberships that a user gives. `convergence` decides which iteration is the
last. `membership_iterations` is a variant that starts from memberships, and ends when the memberships converge. `noise`
adds a cluster for outliers, and `validity` compares numbers of clusters. `prototypes` holds the centres and
covariances, and `memberships` computes the memberships of any rows. `presentation` makes the report, and
`result_warnings` makes the warnings.

`tests/oracles/fuzzy_c_means.py` computes the method in plain float64, and `tests/oracles/gustafson_kessel.py` computes
it with covariances.
"""
