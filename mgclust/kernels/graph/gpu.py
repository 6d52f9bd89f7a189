"""Adjacency rows on a CUDA device: moves between communities, matching, groups of nodes, contraction."""

from mgclust.kernels.graph.gpu_contraction import contract, sum_pairs, to_rows
from mgclust.kernels.graph.gpu_groups import propagate_roots, relabel, sum_by_id, weights_before
from mgclust.kernels.graph.gpu_matching import best_partners, match_mutual
from mgclust.kernels.graph.gpu_moves import activate_neighbors, apply_moves, cross_weight, propose_moves, sweep_alone
from mgclust.kernels.graph.gpu_parts import contract_parts, pair_parts, sum_parts

__all__ = [
    "activate_neighbors",
    "apply_moves",
    "best_partners",
    "contract",
    "contract_parts",
    "cross_weight",
    "match_mutual",
    "pair_parts",
    "propagate_roots",
    "propose_moves",
    "relabel",
    "sum_by_id",
    "sum_pairs",
    "sum_parts",
    "sweep_alone",
    "to_rows",
    "weights_before",
]
