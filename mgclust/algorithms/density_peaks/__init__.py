"""Density peaks.

From parameters to a run: the `estimator` takes a description from `run_spec`, which refuses contradictions
(`refusals`), states the memory (`memory`) and resolves the fraction of the pairs within dc.

On every rank: `ranks` is the method from top to bottom, and `density_state` is what a checkpoint holds of it. Its
passes are those of `all_pairs`, `near_linear` or `precomputed_pairs`. `cutoff` finds dc: by `pair_quantile`, or by
`random_pairs` approximately. If the fraction is automatic, `fraction_choice` chooses it on a sample of rows
(`sample_passes`), and `separation` finds clusters separated by low density. `duplicate_rows` makes densities of equal
rows equal, `adaptive_density` has densities with errors (`intrinsic_dimension`), `decision_graph` chooses the centres,
`significance` tests peaks.

From a fit to a result: `findings` and `result_warnings`; `stability` compares the clusters with those of half the rows,
`prediction` labels new rows, `presentation` shows results.

The method in plain float64 is `tests/oracles/density_peaks.py`; significant peaks are `density_topography.py` there.
"""
