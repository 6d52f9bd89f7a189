"""Fuzzy c-means.

`estimator` has the parameters and calls `ranks`, which iterates: `initialization` finds the first centres (`input`
checks what a user gives to start from), `weighted_sums` is one pass over the rows, and `settling` tells which one was
the last. `memberships` are those of any rows in given centres; `presentation` shows results.
"""
