"""Fuzzy c-means.

`estimator` has the parameters, and `run_spec` describes a run to `ranks`, which iterates: `initialization` finds the
first centres (`input` checks what a user gives to start from), `weighted_sums` is one pass over the rows, or
`covariances` if clusters have norms of their own, and `convergence` decides which iteration is the last. `prototypes`
are centres with what else a cluster has, `memberships` those of any rows in given clusters; `presentation` shows
results, `result_warnings` lists their warnings.

The method in plain float64 is `tests/oracles/fuzzy_c_means.py`; covariances are `gustafson_kessel.py` there.
"""
