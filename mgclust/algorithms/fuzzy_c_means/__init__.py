"""Fuzzy c-means: the estimator, its iterations on the ranks, where centres start, and memberships of any rows."""
