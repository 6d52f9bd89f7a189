"""Canopies: the estimator, the choice of centres, and the members of each."""
