"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` are the two estimators, and `exemplars` has what they share. On the ranks, the methods
begin in `ranks`, which has the equations, and in `adaptive_ranks`. Both make similarities and pass messages
(`message_passing`). Then they assign each row to its most similar exemplar; of equally similar exemplars, the one
with the lowest row (`MessagePassing.assign`, `MessageRows.nearest`). A rank keeps its rows of the messages in one of
three forms (`rows/`). `adaptive_scan` has the rules of the scan, over its history (`adaptive_state`).
`preference_search` searches for a number of clusters, and `presentation` shows results.

The methods in plain float64 are `tests/oracles/affinity_propagation.py`, and `adaptive_` and `sparse_` of that name.
"""
