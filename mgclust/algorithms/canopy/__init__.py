"""Canopies.

`estimator` has the parameters. `centers` chooses the centres, `members` lists the rows of each, `agglomeration`
clusters within them, `presentation` shows results.
"""
