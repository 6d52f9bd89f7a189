"""Communities of graphs by modularity.

`estimator` has both methods, `Communities` and `FastNewman`, with the base class in `clusterer`. The work of the ranks
is in `ranks`: they share the graph (`levels`). The parallel strategy (`parallel`) alternates local moves
(`local_moving`) and matching (`matching`) with contraction. The greedy strategy merges on one rank (`hierarchy`) and
returns a `merge_tree`. `modularity` scores communities, `memory` estimates what a graph needs, and `presentation` has
the reports.

`evidence` compares a fit with fits of `random_graphs`: with the same degrees, or without some of the edges. `consensus`
combines several seeds. `search_memory` has the state that checkpoints hold.

`tests/oracles/fast_newman.py` implements greedy merging and modularity in exact numbers, and
`tests/oracles/communities_evidence.py` the random graphs.
"""
