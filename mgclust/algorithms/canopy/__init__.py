"""Canopies.

`estimator` has the parameters. `centers` chooses the centres, `members` lists the rows of each, `agglomeration` and
`means` cluster within them, `presentation` shows results.
"""
