"""Sums over rows with the same label, for many labelings at once, and each row's most similar column among given ones.

`cpu` uses loops of `mgclust.kernels.pairs`; `gpu` uses ``label_sums.cu``, ``centred_sums.cu`` and the files of `pairs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.label_sums import cpu, gpu

__all__ = ["LabelSumKernels"]

Array = Any
PARTIAL = 512  # maximum number of columns of a partial sum; also in pairs/few_features.cu and pairs/many_features.cu


class LabelSumKernels(Protocol):
    """Functions that the CPU and GPU modules provide.

    Parameters of several functions:

    n : int
        Number of columns.
    scale : float
        Scale of the fixed-point sums, which add rint(value * scale).
    """

    def add_by_label(self, values: Array, labels: Array, *, n: int, scale: float, out: Array) -> None:
        """Add up each row's values in the columns of each cluster, for all clusters of several labelings.

        Parameters
        ----------
        values : array of shape (m, at least n)
            The values, float32 or float64; -inf is skipped.
        labels : int32 array of shape (L, n)
            Labels, as in `cluster_sums`.
        out : int64 array of shape (m, number of clusters)
            The sums are added to this array in place.
        """

    def best_columns(self, s: Array, columns: Array, *, out: Array) -> None:
        """Find each row's largest similarity among some columns.

        Parameters
        ----------
        s : array of shape (m, at least n)
            Similarities, float32 or float64.
        columns : int64 array of shape (K,)
            Numbers of the columns, ascending.
        out : int32 array of shape (m,)
            Overwritten with each row's best position in `columns`; ties go to the lowest position.
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
        """Add up each row's distances to the columns of each cluster, for all clusters of several labelings.

        Parameters
        ----------
        x, y : arrays of shape (m, d) and (k, d)
            Rows and columns, both float32 or both float64.
        labels : int32 array of shape (L, k)
            Cluster of each column in each labeling; clusters are numbered consecutively over all labelings.
        norm : {"l2", "l2-dot", "l1"}
            Reduced distance s to compute.
        root : bool
            Whether sqrt(s) is summed instead of s.
        scale : float
            Scale of the fixed-point sums. The values that are scaled and rounded are partial sums of at most 512
            columns of one cluster, within 1024 consecutive columns.
        y_start : int
            Global number of y's first row, a multiple of 1024.
        out : int64 array of shape (m, number of clusters)
            The sums are added to this array in place.
        about : tuple of two float64 arrays of shape (number of clusters, d) and (number of clusters,), optional
            Mean of each cluster's rows, and the mean squared distance of these rows to the mean. Every call must get
            the same values. Give them only if `near_share` is positive. Each distance d is then added as
            rint(d * unit) / unit * scale. The unit is a power of two for each row and cluster. The root mean square of
            their distances is at least 2**25 units, unless 1 / scale is coarser.
        """

    def group_sums(self, x: Array, labels: Array, *, scale: float, out: Array) -> None:
        """Add each row to its cluster's sum of rows.

        Parameters
        ----------
        x : array of shape (m, d)
            Rows, float32 or float64.
        labels : int32 array of shape (m,)
            Cluster of each row.
        out : int64 array of shape (number of clusters, d)
            The rows are added to this array in place.
        """

    def near_share(self, x: Array, *, n: int, norm: str, root: bool, labelings: int, clusters: int) -> float:
        """Return the fraction that defines near pairs; `cluster_sums` with means takes much longer for near pairs.

        Parameters
        ----------
        x : array of shape (any, d)
            Any rows; only their type and number of features are used.
        n : int
            Number of rows of the whole data.
        norm, root
            As in `cluster_sums`.
        labelings, clusters : int
            Number of labelings, and number of clusters in all labelings together.

        Returns
        -------
        float
            0: do not give means to `cluster_sums`. Otherwise, a pair is near if its reduced distance s is less than
            this fraction of the sum of both rows' reduced distances to the mean. Pairs with s above 256 times the row's
            mean s to the cluster also take longer.
        """

    def same_label_sums(self, s: Array, labels: Array, *, n: int, first_row: int, scale: float, out: Array) -> None:
        """Add to each column its similarities to this rank's rows with the same label, except the diagonal.

        Parameters
        ----------
        s : array of shape (m, padded(n))
            Similarities of this rank's rows, float32 or float64; finite within a label.
        labels : int32 array of shape (n,)
            Label of each row, not negative.
        first_row : int
            Global number of this rank's first row.
        out : int64 array of shape (n,)
            The sums are added to this array in place.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: LabelSumKernels = cpu
    _gpu: LabelSumKernels = gpu
