"""Adjacency rows on the CPU: moves between communities, matching, groups of nodes, contraction."""

from mgclust.kernels.graph.cpu_contraction import contract, sum_pairs, to_rows
from mgclust.kernels.graph.cpu_groups import number, spread_roots, sum_by_id, weights_before
from mgclust.kernels.graph.cpu_matching import best_partners, pair_up
from mgclust.kernels.graph.cpu_moves import apply_moves, cross_weight, propose_moves, wake
from mgclust.kernels.graph.cpu_parts import contract_parts, pair_parts, sum_parts

__all__ = [
    "apply_moves",
    "best_partners",
    "contract",
    "contract_parts",
    "cross_weight",
    "number",
    "pair_parts",
    "pair_up",
    "propose_moves",
    "spread_roots",
    "sum_by_id",
    "sum_pairs",
    "sum_parts",
    "to_rows",
    "wake",
    "weights_before",
]
