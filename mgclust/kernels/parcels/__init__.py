"""Numerical work on parcels, on the CPU: merges by Ward's criterion, moves across borders, and correlations of pairs.

Rows are nodes of a graph of neighbours in compressed form: the neighbours of node i are
``columns[starts[i]:starts[i + 1]]``, ascending, and each edge is in the lists of both its nodes.
"""
