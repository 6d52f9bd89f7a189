"""Density peaks.

From parameters to a run: `run_spec` makes the description of the run that the `estimator` passes on. It rejects
contradictions (`refusals`), estimates the memory (`memory`) and resolves the fraction of the pairs within dc.

On every rank: `ranks` runs the method from start to end, and `density_state` is the state that a checkpoint holds.
`passes` reads the pairs of rows, `cutoff_distance` finds dc, and `topography` computes densities with errors and
tests which peaks are significant. `decision_graph` chooses the centres, `clusters` labels the rows, and `lost_groups`
counts groups without a centre.

From a fit to a result: `findings` and `result_warnings` collect values and warnings. `stability` compares the clusters
with the clusters of half the rows, `prediction` labels new rows, and `presentation` shows results.

`tests/oracles/density_peaks.py` has the method in plain float64, and `density_topography.py` next to it has the
significant peaks.
"""
