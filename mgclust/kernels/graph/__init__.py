"""Graphs as adjacency rows (`adjacency`): moves between communities, matching, groups of nodes, contraction.

On the CPU, `cpu` collects the functions of `cpu_moves`, `cpu_matching`, `cpu_groups`, `cpu_contraction` and `cpu_parts`
(pairs that are sent to other ranks), which share `cpu_adjacency`. On a GPU, `gpu` collects the functions of the
corresponding modules, whose kernels are in ``communities.cu``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from mgclust.kernels.graph.adjacency import Adjacency, Gain

if TYPE_CHECKING:
    from mgclust.kernels.graph import cpu, gpu

__all__ = ["GraphKernels"]

Array = Any


class GraphKernels(Protocol):
    """Functions that both devices have, with these meanings.

    Parameters of several functions:

    rows : Adjacency
        Rows of the nodes that this rank owns.
    strength : int64 array of shape (n,)
        Sum of the weights of each node, with its loops counted twice.
    labels : int32 array of shape (n,)
        Community of each node, a number below n.
    gain : Gain
        How the gain of a merge or a move is computed.
    """

    def apply_moves(self, proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
        """Move nodes and their strength to new communities.

        Parameters
        ----------
        proposal : int32 array of shape (n,)
            New community of each node; -1 if it stays.
        labels : int32 array of shape (n,)
            Community of each node, changed in place.
        totals : int64 array of shape (n,)
            Total strength of each community, changed in place.
        """

    def best_partners(
        self,
        rows: Adjacency,
        strength: Array,
        within: Array | None,
        *,
        gain: Gain,
        any_sign: bool,
        noise: float,
        salt: int,
        out: Array,
    ) -> None:
        """Find the best partner of each own node: the neighbour with the largest gain / sqrt(product of strengths).

        Parameters
        ----------
        within : int32 array of shape (n,), optional
            If given, only neighbours with the same number are considered.
        any_sign : bool
            Whether partners with a gain that is not positive are also allowed.
        noise : float
            Largest fraction of a score that is subtracted at random, from 0 to 1. It is the same for both ends.
        salt : int
            Seed of the noise, and of the hash that breaks ties.
        out : int32 array of shape (n,)
            Partner of each node, or -1. Overwritten.
        """

    def contract(self, rows: Adjacency, ids: Array, *, count: int) -> tuple[Array, Array, Array]:
        """Sum the entries of own rows by the groups of their ends, without entries within a group.

        Parameters
        ----------
        ids : int32 array of shape (n,)
            Group of each node of the graph, less than `count`.
        count : int
            Number of groups.

        Returns
        -------
        row, column : int32 arrays
            Pairs of groups, ascending by (row, column), each pair once.
        weight : array
            Sums of the weights: int64 if the weights are int64, else int32.
        """

    def contract_parts(
        self, rows: Adjacency, ids: Array, *, count: int, bounds: Sequence[int], largest: int
    ) -> list[Array]:
        """Split the pairs that `contract` would sum by the rank that owns the group of the row.

        Parameters
        ----------
        rows, ids, count
            As for `contract`.
        bounds, largest
            As for `pair_parts`.
        """

    def cross_weight(self, rows: Adjacency, labels: Array) -> int:
        """Sum the weights of the entries of own rows that connect different communities."""

    def relabel(self, representative: Array) -> tuple[Array, int]:
        """Number the groups in the order of their representative nodes.

        Parameters
        ----------
        representative : int32 array of shape (n,)
            The representative node of each node's group; a representative node is its own representative.

        Returns
        -------
        ids : int32 array of shape (n,)
            Number of each node's group.
        count : int
            Number of groups.
        """

    def pair_parts(
        self, row: Array, column: Array, weight: Array | None, *, count: int, bounds: Sequence[int], largest: int
    ) -> list[Array]:
        """Split pairs by the rank that owns the row, in the form in which they are sent.

        Parameters
        ----------
        row, column, weight, count
            As for `sum_pairs`.
        bounds : sequence of int
            Rank r owns rows ``bounds[r]`` to ``bounds[r + 1] - 1``.
        largest : int
            Upper bound of the weights on all ranks; 0 if `weight` is None on all ranks.

        Returns
        -------
        list of arrays
            One array for each rank, to be read by `sum_parts`.
        """

    def match_mutual(self, partner: Array, *, share: float) -> Array:
        """Merge nodes that are each other's partner; if there are few pairs, other nodes join their partner's pair.

        Parameters
        ----------
        partner : int32 array of shape (n,)
            Partner of each node; -1 if it has none.
        share : float
            Other nodes join if the number of pairs is less than this fraction of the number of nodes with a partner.

        Returns
        -------
        int32 array of shape (n,)
            Representative node of each node's group, which is one of its members.
        """

    def propose_moves(
        self,
        rows: Adjacency,
        strength: Array,
        labels: Array,
        totals: Array,
        active: Array,
        *,
        gain: Gain,
        classes: int,
        turn: int,
        salt: int,
        out: Array,
        tally: Array,
    ) -> None:
        """Find the best community of each own node whose turn it is.

        Parameters
        ----------
        totals : int64 array of shape (n,)
            Total strength of each community.
        active : uint8 array of shape (n,)
            Nodes with 0 are skipped.
        classes, turn, salt : int
            It is the turn of node v if ``(mix(v * 0x9E3779B97F4A7C15 + salt) >> 33) % classes == turn``.
        out : int32 array of shape (n,)
            New community of each node, or -1. A node that is best in a community of its own moves to the community with
            its own number, if this community is empty. Overwritten.
        tally : int64 array of shape (2,)
            The number of moves, and the modularity that they add, in units of 2^-40, are added to these elements.
        """

    def sweep_alone(
        self,
        rows: Adjacency,
        strength: Array,
        labels: Array,
        totals: Array,
        active: Array,
        *,
        gain: Gain,
        classes: int,
        salt: int,
        activated: Array,
        tally: Array,
    ) -> bool:
        """Do all turns of a sweep in one call, if this rank owns all nodes and one thread is enough for the graph.

        Each turn does the work of `propose_moves`, `apply_moves` and `activate_neighbors`; see there for parameters.

        Parameters
        ----------
        activated : uint8 array of shape (n,)
            Nodes of the next sweep, changed in place.

        Returns
        -------
        bool
            Whether the sweep was done. If False, nothing has changed.
        """

    def propagate_roots(self, rows: Adjacency, labels: Array, roots: Array) -> None:
        """Lower roots along own entries within a community, so that connected nodes get the smallest root among them.

        Parameters
        ----------
        roots : int32 array of shape (n,)
            For each node, a node of the same connected part, with a number not above its own. Changed in place.
        """

    def sum_by_id(self, values: Array, ids: Array, count: int) -> Array:
        """Sum the values of each group.

        Parameters
        ----------
        values : int64 array of shape (n,)
            The values.
        ids : int32 array of shape (n,)
            Group of each value, less than `count`.
        count : int
            Number of groups.

        Returns
        -------
        int64 array of shape (count,)
        """

    def sum_pairs(
        self, row: Array, column: Array, weight: Array | None, *, count: int
    ) -> tuple[Array, Array, Array | None]:
        """Sort pairs of numbers, sum the weights of equal pairs, and drop pairs of two equal numbers.

        Parameters
        ----------
        row, column : int32 arrays of shape (pairs,)
            Numbers less than `count`, in any order.
        weight : int32 or int64 array of shape (pairs,), optional
            Weights; None: all are 1.
        count : int
            Number of different numbers.

        Returns
        -------
        row, column : int32 arrays
            The pairs, ascending by (row, column).
        weight : array of the weights' type, or None
            Sums of the weights. If `weight` is None: int32, or None if all sums are 1.
        """

    def sum_parts(
        self, parts: Array, *, count: int, largest: int, kind: np.dtype | None
    ) -> tuple[Array, Array, Array | None]:
        """Sum pairs that came from several ranks.

        Parameters
        ----------
        parts : array
            Arrays of `pair_parts` or `contract_parts` from all ranks, one after the other.
        count, largest : int
            The same values as in these calls.
        kind : numpy.dtype, optional
            Type of the weights; None if all were 1.

        Returns
        -------
        row, column, weight
            As from `sum_pairs`.
        """

    def to_rows(self, row: Array, column: Array, weight: Array | None, *, first: int, stop: int) -> Adjacency:
        """Return sorted pairs as rows.

        Parameters
        ----------
        row, column : int32 arrays of shape (pairs,)
            The pairs, ascending by (row, column).
        weight : array of shape (pairs,), optional
            Weights; None: all are 1.
        first, stop : int
            The rows have the numbers first .. stop - 1.

        Returns
        -------
        Adjacency
        """

    def activate_neighbors(self, rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:
        """Activate the neighbours of nodes that moved, except neighbours in the same community.

        Parameters
        ----------
        proposal : int32 array of shape (n,)
            Not negative for nodes that moved.
        labels : int32 array of shape (n,)
            Communities after the moves.
        active : uint8 array of shape (n,)
            Set to 1 in place.
        """

    def weights_before(self, rows: Adjacency, ids: Array, order: Array) -> Array:
        """Sum each own node's weights to nodes of its group that come before it in an order.

        Parameters
        ----------
        ids : int32 array of shape (n,)
            Group of each node.
        order : int32 or int64 array of shape (n,)
            Position of each node in the order.

        Returns
        -------
        int64 array of shape (rows,)
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: GraphKernels = cpu
    _gpu: GraphKernels = gpu
