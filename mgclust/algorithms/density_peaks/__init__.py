"""Density peaks.

From parameters to a run: `run_spec` makes the description of the run that the `estimator` passes on. It rejects
contradictions (`refusals`), estimates the memory (`memory`) and decides how the fraction of the pairs within dc is
found.

On every rank: `ranks` runs the method from start to end, and `density_state` is the state that a checkpoint holds.
`passes` reads the pairs of rows, `cutoff_distance` finds dc, and `topography` computes densities with errors and
tests which peaks are significant. `decision_graph` chooses the centres, `clusters` labels the rows, and `lost_groups`
counts distant groups of rows without a centre.

From a fit to a result: `findings` and `result_warnings` collect values and warnings. `stability` compares the clusters
with the clusters of random halves of the rows, `prediction` labels new rows, and `presentation` shows results.

`tests/oracles/density_peaks.py` computes the method in plain float64, and `density_topography.py` in the same folder
computes the significant peaks.
"""
