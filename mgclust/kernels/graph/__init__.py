"""Adjacency rows (`adjacency`): moves between communities, matching, groups of nodes, contraction.

On the CPU `cpu` gathers `cpu_moves`, `cpu_matching`, `cpu_groups`, `cpu_contraction` and `cpu_parts` (pairs on their
way to their ranks), which share `cpu_adjacency`. On a GPU `gpu` gathers modules of the same names, whose kernels are in
``communities.cu``.
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
        Own rows.
    strength : int64 array of shape (n,)
        Summed weights of each node, its loops twice.
    labels : int32 array of shape (n,)
        Community of each node, a number below n.
    gain : Gain
        How the gain of a merge or a move is computed.
    """

    def apply_moves(self, proposal: Array, strength: Array, labels: Array, totals: Array) -> None:
        """Move nodes, and their strength.

        Parameters
        ----------
        proposal : int32 array of shape (n,)
            New communities, -1: stays.
        labels : int32 array of shape (n,)
            In place.
        totals : int64 array of shape (n,)
            In place.
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
        """Find the neighbour that each own node would merge with: the largest gain over the root of both strengths.

        Parameters
        ----------
        within : int32 array of shape (n,), optional
            Only neighbours of the same number are looked at.
        any_sign : bool
            Take partners whose gain is not positive as well.
        noise : float
            From 0 to 1: largest part of a score that is taken off at random, the same for both ends.
        salt : int
            Of the noise, and of the hash that decides between equal scores.
        out : int32 array of shape (n,)
            The partner, or -1. Overwritten.
        """

    def contract(self, rows: Adjacency, ids: Array, *, count: int) -> tuple[Array, Array, Array]:
        """Sum own entries by the groups of their ends, without those within a group.

        Parameters
        ----------
        ids : int32 array of shape (n,)
            Group of each node of the graph, below count.
        count : int

        Returns
        -------
        row, column : int32 arrays
            Ascending by (row, column), each pair once.
        weight : array
            int32, or int64 where the weights are.
        """

    def contract_parts(
        self, rows: Adjacency, ids: Array, *, count: int, bounds: Sequence[int], largest: int
    ) -> list[Array]:
        """Cut the pairs that `contract` would sum by the rank that owns the group of the row.

        Parameters
        ----------
        rows, ids, count
            As for `contract`.
        bounds, largest
            As for `pair_parts`.
        """

    def cross_weight(self, rows: Adjacency, labels: Array) -> int:
        """Sum of the weights between communities, own rows' entries."""

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
            How many groups there are.
        """

    def pair_parts(
        self, row: Array, column: Array, weight: Array | None, *, count: int, bounds: Sequence[int], largest: int
    ) -> list[Array]:
        """Cut pairs by the rank that owns the row, ready to be sent.

        Parameters
        ----------
        row, column, weight, count
            As for `sum_pairs`.
        bounds : sequence of int
            Rank r owns rows ``bounds[r]`` to ``bounds[r + 1] - 1``.
        largest : int
            No weight on any rank is above; 0 where all ranks come with None.

        Returns
        -------
        list of arrays
            One for each rank; `sum_parts` knows what is in them.
        """

    def match_mutual(self, partner: Array, *, share: float) -> Array:
        """Merge nodes that are each other's partner; where these are few, others join the pair of their partner.

        Parameters
        ----------
        partner : int32 array of shape (n,)
            -1: none.
        share : float
            Others join when the pairs are fewer than this share of the nodes that have a partner.

        Returns
        -------
        int32 array of shape (n,)
            The node that stands for each node's group, one of its members.
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
            Summed strength of each community.
        active : uint8 array of shape (n,)
            Nodes that are 0 stay.
        classes, turn, salt : int
            Node v moves now if ``(mix(v * 0x9E3779B97F4A7C15 + salt) >> 33) % classes == turn``.
        out : int32 array of shape (n,)
            The new community, or -1; a node that is best off alone moves into the community of its own number, where
            that is empty. Overwritten.
        tally : int64 array of shape (2,)
            The number of moves and what each adds to the modularity, in units of 2^-40, are added to it.
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
        """Do all turns of a sweep in one call, where rows of all nodes are so few that one thread does them.

        It does for each turn what `propose_moves`, `apply_moves` and `activate_neighbors` do, whose parameters it has.

        Parameters
        ----------
        activated : uint8 array of shape (n,)
            The nodes of the next sweep; in place.

        Returns
        -------
        bool
            False: nothing was done.
        """

    def propagate_roots(self, rows: Adjacency, labels: Array, roots: Array) -> None:
        """Lower the roots of nodes that own entries connect within a community to the smallest of them.

        Parameters
        ----------
        roots : int32 array of shape (n,)
            A node of the same connected part, at most the node itself. In place.
        """

    def sum_by_id(self, values: Array, ids: Array, count: int) -> Array:
        """Sum the values of each group.

        Parameters
        ----------
        values : int64 array of shape (n,)
        ids : int32 array of shape (n,)
            Below count.
        count : int

        Returns
        -------
        int64 array of shape (count,)
        """

    def sum_pairs(
        self, row: Array, column: Array, weight: Array | None, *, count: int
    ) -> tuple[Array, Array, Array | None]:
        """Sort pairs of numbers, add up those that are equal, and drop those of a number with itself.

        Parameters
        ----------
        row, column : int32 arrays of shape (pairs,)
            Below count, in any order.
        weight : int32 or int64 array of shape (pairs,), optional
            None: all are 1.
        count : int

        Returns
        -------
        row, column : int32 arrays
            Ascending by (row, column).
        weight : array of the weights' type, or None
            Their sums, int32 where they came as None; None where they came as None and all are 1.
        """

    def sum_parts(
        self, parts: Array, *, count: int, largest: int, kind: np.dtype | None
    ) -> tuple[Array, Array, Array | None]:
        """Sum pairs that came from several ranks, put one behind the other.

        Parameters
        ----------
        parts : array
            What `pair_parts` or `contract_parts` made on any ranks.
        count, largest : int
            As they were there.
        kind : numpy.dtype, optional
            Of the weights; None where all were 1.

        Returns
        -------
        row, column, weight
            As `sum_pairs` returns them.
        """

    def to_rows(self, row: Array, column: Array, weight: Array | None, *, first: int, stop: int) -> Adjacency:
        """Return sorted pairs as rows.

        Parameters
        ----------
        row, column : int32 arrays of shape (pairs,)
            Ascending by (row, column).
        weight : array of shape (pairs,), optional
            None: all are 1.
        first, stop : int
            The rows are numbered first .. stop - 1.

        Returns
        -------
        Adjacency
        """

    def activate_neighbors(self, rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:
        """Activate the neighbours of nodes that moved, but for those of the same community.

        Parameters
        ----------
        proposal : int32 array of shape (n,)
            Not negative where a node moved.
        labels : int32 array of shape (n,)
            Communities after the moves.
        active : uint8 array of shape (n,)
            Set to 1 in place.
        """

    def weights_before(self, rows: Adjacency, ids: Array, order: Array) -> Array:
        """Sum each own node's weights to nodes of its group that come before it.

        Parameters
        ----------
        ids : int32 array of shape (n,)
            Groups.
        order : int32 or int64 array of shape (n,)

        Returns
        -------
        int64 array of shape (rows,)
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: GraphKernels = cpu
    _gpu: GraphKernels = gpu
