"""Adjacency rows on a CUDA device: moves between communities, matching, groups of nodes, contraction."""

from mgclust.kernels.graph.gpu_contraction import contract, contract_parts, pair_parts, sum_pairs, sum_parts, to_rows
from mgclust.kernels.graph.gpu_moves import (
    activate_neighbors,
    apply_moves,
    best_partners,
    cross_weight,
    match_mutual,
    propagate_roots,
    propose_moves,
    relabel,
    sum_by_id,
    weights_before,
)

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
    "to_rows",
    "weights_before",
]
