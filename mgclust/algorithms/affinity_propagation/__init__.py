"""Affinity propagation and its adaptive scan.

`estimator` and `adaptive` have the two estimators, and `exemplars` has their base class. `ranks` has the equations of
affinity propagation, and `adaptive_ranks` describes the adaptive method. The ranks begin their work in these two
modules. Both methods compute similarities and pass messages (`message_passing`). Then they assign each row to its most
similar exemplar; ties go to the exemplar with the lowest row number (`MessagePassing.assign`, `MessageRows.nearest`).

A rank stores its rows of the messages in one of three forms (`rows/`). `adaptive_scan` has the rules of the scan, and
`adaptive_state` has its state. `preference_search` searches for a number of clusters. `presentation` has the reports.

The oracles compute the methods in plain float64: `tests/oracles/affinity_propagation.py`,
`tests/oracles/adaptive_affinity_propagation.py` and `tests/oracles/sparse_affinity_propagation.py`.
"""
