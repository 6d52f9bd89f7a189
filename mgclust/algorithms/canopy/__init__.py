"""Canopies.

`estimator` has the parameters. `centers` chooses the centres, `members` lists the rows of each, `presentation` shows
results.
"""
