"""Adjacency rows on a CUDA device: moves between communities, matching, groups of nodes, contraction."""

from mgclust.kernels.graph.gpu_communities import (
    apply_moves,
    best_partners,
    cross_weight,
    number,
    pair_up,
    propose_moves,
    spread_roots,
    sum_by_id,
    wake,
    weights_before,
)
from mgclust.kernels.graph.gpu_contraction import contract, contract_parts, pair_parts, sum_pairs, sum_parts, to_rows

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
