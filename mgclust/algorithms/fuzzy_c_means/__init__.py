"""Fuzzy c-means.

`estimator` has the parameters and calls `ranks`, which iterates: `initialization` finds the first centres (`input`
checks what a user gives to start from), and `weighted_sums` is one pass over the rows. `memberships` are those of any
rows in given centres; `presentation` shows results.
"""
