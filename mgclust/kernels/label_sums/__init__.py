"""Sums over the rows that share a label, for many labelings at once; the nearest of given columns."""
