"""Passes over all pairs of rows, in three modules that offer the same methods.

`all_pairs` takes any metric, `near_linear` takes rows of one to three features, and `precomputed_pairs` takes a matrix
of distances. `duplicate_rows` gives duplicate rows the same density, and `half_pairs` takes each pair once.
"""
