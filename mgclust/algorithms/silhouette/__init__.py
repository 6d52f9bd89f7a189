"""Silhouettes of given labels: the estimator, the sums on the ranks, and labels from files."""
