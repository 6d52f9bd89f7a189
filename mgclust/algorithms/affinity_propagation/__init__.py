"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` are the two estimators. Both make similarities (`similarity_matrix`), pass messages
(`message_passing`) and assign rows to exemplars (`exemplars`). The messages are those of all pairs (`message_rows`) or
on neighbour lists (`listed_rows`), as `row_choice` decides. The rules of the scan are in `adaptive_scan`, over what it
has seen (`adaptive_state`); `presentation` shows results.
"""
