"""Canopies: a greedily chosen independent set of a few rows, and lists of the columns near to a row."""
