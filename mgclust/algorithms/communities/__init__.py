"""Communities of graphs by modularity.

`estimator` has both methods, `Communities` and `FastNewman`. A graph is spread over the ranks (`levels`). The parallel
strategy (`parallel`) alternates
`local_moving` and `matching` with contraction; the greedy one merges on one rank (`hierarchy`) and leaves a
`merge_tree`. `modularity` scores, `memory` says what a graph needs, `presentation` shows results.

Greedy merging and modularity in exact numbers are `tests/oracles/fast_newman.py`.
"""
