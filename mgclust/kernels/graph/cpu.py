"""Adjacency rows on the CPU: moves between communities, matching, groups of nodes, contraction."""

from mgclust.kernels.graph.cpu_contraction import contract, crossing_rows, join_rows, rows_of_edges
from mgclust.kernels.graph.cpu_groups import propagate_roots, relabel, sum_by_id, weights_before
from mgclust.kernels.graph.cpu_matching import best_partners, match_mutual
from mgclust.kernels.graph.cpu_moves import activate_neighbors, apply_moves, cross_weight, propose_moves, sweep_alone

__all__ = [
    "activate_neighbors",
    "apply_moves",
    "best_partners",
    "contract",
    "cross_weight",
    "crossing_rows",
    "join_rows",
    "match_mutual",
    "propagate_roots",
    "propose_moves",
    "relabel",
    "rows_of_edges",
    "sum_by_id",
    "sweep_alone",
    "weights_before",
]
