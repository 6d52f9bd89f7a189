"""Passes over the pairs of rows, in three forms with the same methods.

`all_pairs` takes any metric, `near_linear` rows of one to three features, `precomputed_pairs` a matrix of distances.
`duplicate_rows` gives duplicate rows the same density.
"""
