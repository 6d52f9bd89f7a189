"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` are the two estimators, `exemplars` what they have in common. What the ranks run begins in
`ranks`, which has the equations, and in `adaptive_ranks`. Both make similarities (`similarity_matrix`), pass messages
(`message_passing`) and assign each row to its most similar exemplar, of equally similar ones to that with the lowest
row (`MessagePassing.assign`, `MessageRows.nearest`). The messages are those of all pairs (`message_rows`) or on
neighbour lists (`listed_rows`), as `row_choice` decides; or of the pairs of a sparse matrix (`sparse_pairs`). The rules
of the scan are in `adaptive_scan`, over what it has seen (`adaptive_state`), those of a search for a number of clusters
in `preference_search`; `presentation` shows results.

The methods in plain float64 are `tests/oracles/affinity_propagation.py`, and `adaptive_` and `sparse_` of that name.
"""
