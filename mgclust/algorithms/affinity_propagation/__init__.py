"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` are the two estimators, `exemplars` what they have in common. What the ranks run begins in
`ranks`, which has the equations, and in `adaptive_ranks`. Both make similarities (`similarity_matrix`;
`similarity_quantiles` gives their median), pass messages (`message_passing`) and assign each row to its most similar
exemplar, of equally similar ones to the one with the lowest row (`MessagePassing.assign`, `MessageRows.nearest`).
Messages have three forms: all pairs (`message_rows`), neighbour lists (`listed_rows`; `list_storage` has their memory,
`list_pace` the limits of a device) and a few columns (`column_rows`). `row_choice` chooses the first form. A sparse
matrix has the lists of its pairs (`sparse_pairs`). The rules of the scan are in `adaptive_scan`, over what it has seen
(`adaptive_state`), those of a search for a number of clusters in `preference_search`; `presentation` shows results.

The methods in plain float64 are `tests/oracles/affinity_propagation.py`, and `adaptive_` and `sparse_` of that name.
"""
