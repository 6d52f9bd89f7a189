"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` are the two estimators. Both make similarities (`similarity_matrix`), pass messages
(`message_passing`; of all pairs or on neighbour lists: `message_rows`) and assign rows to exemplars (`exemplars`); the
rules of the scan are in `adaptive_scan`, over what it has seen (`adaptive_state`); `presentation` shows results.
"""
