"""Numerical work on parcels, on the CPU: merging by Ward's criterion, and moves across their borders.

Rows are nodes of a graph of neighbours in compressed form: the neighbours of node i are
``columns[starts[i]:starts[i + 1]]``, ascending, and each edge is in the lists of both its nodes.
"""
