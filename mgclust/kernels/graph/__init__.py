"""Graphs as adjacency rows (`adjacency`): moves between communities, matching, groups of nodes, contraction.

On the CPU, `cpu` collects the functions of `cpu_moves`, `cpu_matching`, `cpu_groups`, `cpu_contraction` and `cpu_parts`
(pairs that are sent to other ranks), which share `cpu_adjacency`. On a GPU, `gpu` collects the functions of the
corresponding modules, whose kernels are in ``communities.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from mgclust.kernels.graph.adjacency import Adjacency, Gain

if TYPE_CHECKING:
    from mgclust.kernels.graph import cpu, gpu

__all__ = ["GraphKernels"]

Array = Any


class GraphKernels(Protocol):
    """Functions that the CPU and GPU modules provide.

    Parameters of several functions:

    rows : Adjacency
        Local rows: the rows of the nodes that this rank owns.
    strength : int64 array of shape (n,)
        Sum of the weights of each node's edges, with loops counted twice.
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
        """Find the best partner of each local node: the neighbour with the largest gain / sqrt(product of strengths).

        Parameters
        ----------
        within : int32 array of shape (n,), optional
            Number for each node. If given, a node's partner must have the same number as the node.
        any_sign : bool
            Whether partners with a zero or negative gain are also allowed.
        noise : float
            Largest fraction, from 0 to 1, that is subtracted at random from a score. The random number is the same for
            both ends of an edge.
        salt : int
            Seed of the noise, and of the hash that breaks ties.
        out : int32 array of shape (n,)
            Partner of each node, or -1. Overwritten.
        """

    def contract(
        self,
        rows: Adjacency,
        ids: Array,
        *,
        count: int,
        groups: Array | None = None,
        first: int = 0,
        stop: int | None = None,
    ) -> Adjacency:
        """Sum the entries of rows for each pair of groups that they connect, without entries within a group.

        Parameters
        ----------
        rows : Adjacency
            Rows of any nodes.
        ids : int32 array of shape (n,)
            Group of each node of the graph, less than `count`.
        count : int
            Number of groups.
        groups : int32 array of shape (rows,), optional
            Group of each row; by default, the rows are consecutive nodes, whose groups are in `ids`.
        first, stop : int, optional
            Rows of groups ``first`` to ``stop - 1`` are summed, and others are skipped; by default, all are summed.

        Returns
        -------
        Adjacency
            A row for each group from `first` to ``stop - 1``. The weights are int64 if the weights of `rows` are int64
            or do not fit into int32, else int32; they are never None.
        """

    def crossing_rows(self, rows: Adjacency, ids: Array, *, first: int, stop: int) -> tuple[Array, Array, Array | None]:
        """Copy the rows of the local nodes of some groups, without entries within a group.

        Parameters
        ----------
        ids : int32 array of shape (n,)
            Group of each node of the graph.
        first, stop : int
            The groups are ``first`` to ``stop - 1``.

        Returns
        -------
        lengths : int32 array
            Number of entries that are copied for each of the nodes, in the order of the nodes.
        columns : int32 array of shape (entries,)
            Neighbours, row after row.
        weights : array of shape (entries,), or None
            None if `rows` has no weights.
        """

    def cross_weight(self, rows: Adjacency, labels: Array) -> int:
        """Sum the weights of those entries of local rows that connect different communities."""

    def relabel(self, representative: Array) -> tuple[Array, int]:
        """Number the groups in the order of their representative nodes.

        Parameters
        ----------
        representative : int32 array of shape (n,)
            Representative node of each node's group. A representative node represents itself.

        Returns
        -------
        ids : int32 array of shape (n,)
            Number of each node's group.
        count : int
            Number of groups.
        """

    def join_rows(
        self, lengths: Array, columns: Array, weights: Array | None, *, count: int, first: int, rows: int
    ) -> Adjacency:
        """Sum rows of which several ranks have sent entries; loops are dropped.

        Parameters
        ----------
        lengths : int32 array of shape (ranks * rows,)
            Number of entries in each row from the first rank, then from the second rank, and so on.
        columns : int32 array of shape (entries,)
            Entries in the same order, less than `count`.
        weights : int32 or int64 array of shape (entries,), optional
            Weights; None: all are 1.
        count : int
            Number of nodes.
        first, rows : int
            Number of the first row, and number of rows.

        Returns
        -------
        Adjacency
            The weights are None if `weights` is None and all sums are 1.
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
            Representative node of each node's group, which is a member of the group.
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
        """Find the best community of each local node whose turn it is.

        Parameters
        ----------
        totals : int64 array of shape (n,)
            Total strength of each community.
        active : uint8 array of shape (n,)
            Nodes with 0 are skipped.
        classes, turn, salt : int
            It is the turn of node v if ``(mix(v * 0x9E3779B97F4A7C15 + salt) >> 33) % classes == turn``.
        out : int32 array of shape (n,)
            New community of each node, or -1. If a node is best alone, it moves to the community that has the node's
            number, provided that this community is empty. Overwritten.
        tally : int64 array of shape (2,)
            The number of moves is added to element 0. The modularity that they add, in units of 2^-40, is added to
            element 1.
        """

    def rows_of_edges(
        self, edges: list[tuple[Array, Array, Array | None]], *, count: int, summed: bool = True
    ) -> Adjacency:
        """Return the rows of edges in both directions.

        Parameters
        ----------
        edges : list of (u, v, weight)
            Ends in int32 less than `count`, in any order, and weights in int32 or int64; None: all are 1.
        count : int
            Number of nodes; each has a row.
        summed : bool, default=True
            Whether equal edges are summed and loops dropped. If False, `join_rows` does this later.

        Returns
        -------
        Adjacency
            The weights have the type of the edges' weights. If the edges have no weights, the weights are None if
            `summed` is False or all sums are 1, else int32.
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
        """Do all turns of a sweep in one call, if this rank owns all nodes and the device gains from it.

        Each turn does the work of `propose_moves`, `apply_moves` and `activate_neighbors`; see there for parameters.

        Parameters
        ----------
        activated : uint8 array of shape (n,)
            Set to 1 in place for nodes that are active in the next sweep.

        Returns
        -------
        bool
            Whether the sweep was done. If False, nothing has changed.
        """

    def propagate_roots(self, rows: Adjacency, labels: Array, roots: Array) -> bool:
        """Lower roots along local entries within communities: connected nodes get the smallest of their roots.

        Parameters
        ----------
        roots : int32 array of shape (n,)
            For each node, a node of the same connected part, with a number not above its own. Changed in place.

        Returns
        -------
        bool
            Whether each node surely has the root of its part. If False, another call may lower the roots.
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

    def activate_neighbors(self, rows: Adjacency, proposal: Array, labels: Array, active: Array) -> None:
        """Activate the neighbours of nodes that moved, except neighbours in the same community.

        Parameters
        ----------
        proposal : int32 array of shape (n,)
            New community of each node that moved; negative for other nodes.
        labels : int32 array of shape (n,)
            Communities after the moves.
        active : uint8 array of shape (n,)
            Set to 1 in place.
        """

    def weights_before(self, rows: Adjacency, ids: Array, order: Array) -> Array:
        """Sum, for each local node, the weights of its edges to nodes of its group that come before it in an order.

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
