"""Density peaks.

The `estimator` calls `ranks`, whose passes are those of `all_pairs`, `near_linear` or `given_pairs`. `pair_quantile`
finds dc, `random_pairs` an approximation of it, `duplicate_rows` makes densities of equal rows equal, `decision_graph`
chooses the centres. `prediction` labels new rows, `presentation` shows results. `refusals` are of parameters that
contradict each other, `findings` and `result_warnings` what a result has of a fit, `stability` its agreement with fits
of half the rows.

The method in plain float64 is `tests/oracles/density_peaks.py`; significant peaks are `density_topography.py` there.
"""
