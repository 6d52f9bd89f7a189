"""Fuzzy c-means: the weighted sums of one pass over the rows, and memberships in given centres."""
