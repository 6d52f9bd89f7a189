"""Sums over the rows that share a label, for many labelings at once; the nearest of given columns.

`cpu`, with loops of `mgclust.kernels.pairs`; `gpu`, with ``label_sums.cu``, ``centred_sums.cu`` and those of `pairs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.label_sums import cpu, gpu

__all__ = ["LabelSumKernels"]

Array = Any
PARTIAL = 512  # columns at most of a partial sum; in pairs/few_features.cu and pairs/many_features.cu, too


class LabelSumKernels(Protocol):
    """Functions that both devices have, with these meanings.

    Parameters of several functions:

    n : int
        Columns.
    scale : float
        Of the fixed-point sums: rint(value * scale) is added.
    """

    def add_by_label(self, values: Array, labels: Array, *, n: int, scale: float, out: Array) -> None:
        """Add to each row, for each cluster of several labelings, its summed values in the cluster's columns.

        Parameters
        ----------
        values : array of shape (m, at least n)
            float32 or float64; -inf is left out.
        labels : int32 array of shape (L, n)
            As in `cluster_sums`.
        out : int64 array of shape (m, number of clusters)
            Added to in place.
        """

    def best_columns(self, s: Array, columns: Array, *, out: Array) -> None:
        """Find each row's largest similarity among some columns.

        Parameters
        ----------
        s : array of shape (m, at least n)
            Similarities, float32 or float64.
        columns : int64 array of shape (K,)
            Ascending.
        out : int32 array of shape (m,)
            Positions in `columns`, the lowest of equals; written.
        """

    def cluster_sums(
        self,
        x: Array,
        y: Array,
        labels: Array,
        *,
        norm: str,
        root: bool,
        scale: float,
        y_start: int,
        out: Array,
        about: tuple[Array, Array] | None = None,
    ) -> None:
        """Add to each row, for each cluster of several labelings, its summed distances to the cluster's columns.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows, both float32 or both float64.
        labels : int32 array of shape (L, k)
            Each column's cluster in each labeling; clusters are numbered through over all labelings.
        norm : {"l2", "l2-dot", "l1"}
            Which reduced distance s.
        root : bool
            Sum sqrt(s), not s.
        scale : float
            The values are partial sums of at most 512 columns of one cluster, within 1024 consecutive ones.
        y_start : int
            Global number of y's first row, a multiple of 1024.
        out : int64 array of shape (m, number of clusters)
            Added to in place.
        about : tuple of two float64 arrays of shape (number of clusters, d) and (number of clusters,), optional
            The mean of all rows of each cluster, and their mean squared distance to it, the same in every call.
            Where `near_share` is positive alone. Each distance d is then added as rint(d * unit) / unit * scale, with
            a power of two as the unit of a row and cluster: 2**25 or more units are the root mean square of their
            distances, as far as 1 / scale is not coarser.
        """

    def group_sums(self, x: Array, labels: Array, *, scale: float, out: Array) -> None:
        """Add each row to its cluster's sum of rows.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, float32 or float64.
        labels : int32 array of shape (m,)
            Clusters.
        out : int64 array of shape (number of clusters, d)
            Added to in place.
        """

    def near_share(self, x: Array, *, n: int, norm: str, root: bool, labelings: int, clusters: int) -> float:
        """Bound of the near pairs, which cost `cluster_sums` much more than others, if it is given means.

        Parameters
        ----------
        x : array of shape (any, d)
            Rows; for their type and features.
        n : int
            Rows of the whole data.
        norm, root
            As in `cluster_sums`.
        labelings, clusters : int
            How many, and how many clusters they have together.

        Returns
        -------
        float
            Those whose reduced distance s is below this share of the sum of both rows' to the mean, and those with s
            above 256 times the row's mean s to the cluster. 0 where means are not to be given.
        """

    def same_label_sums(self, s: Array, labels: Array, *, n: int, first_row: int, scale: float, out: Array) -> None:
        """Add to each column its similarities to the own rows of its label, but for its own row.

        Parameters
        ----------
        s : array of shape (m, padded(n))
            Similarities of own rows, float32 or float64; finite within a label.
        labels : int32 array of shape (n,)
            Not negative.
        first_row : int
            Global number of the first own row.
        out : int64 array of shape (n,)
            Added to in place.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: LabelSumKernels = cpu
    _gpu: LabelSumKernels = gpu
