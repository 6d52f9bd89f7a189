"""Fuzzy c-means: weighted sums of one pass over the rows, and memberships for given centres.

On the CPU, `cpu` passes panels of rows to `cpu_steps`. On a GPU, `gpu` uses ``fuzzy.cu``. For many centres, it can use
`gpu_products` with ``products.cu`` instead, on tensor cores. Both ``.cu`` files include ``approximations.cuh``. If each
cluster has its own norm, `cpu_covariances` and ``covariances.cu`` compute the distances and the sums of products.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.fuzzy_c_means import cpu, gpu

__all__ = ["FuzzyCMeansKernels"]

Array = Any


class FuzzyCMeansKernels(Protocol):
    """Functions that the CPU and GPU modules provide; `x` has rows in float32 or float64, and `m` is above 1."""

    def fuzzy_sums(
        self,
        x: Array,
        centers: Array,
        *,
        m: float,
        log2_scale: float = 0.0,
        weights: Array | None,
        first_row: int,
        block_rows: int,
        out: Array,
    ) -> None:
        """Add the sums of one iteration of fuzzy c-means, for several models at once.

        s_ij is the squared distance of row i to centre j. The membership u_ij is proportional to s_ij^(-1/(m-1)), with
        sum 1 over j; centres at distance 0 share it. g_ij = w_i u_ij^m 2^log2_scale, where w_i is the weight of row i.

        Parameters
        ----------
        x : array of shape (k, d)
            The rows.
        centers : array of shape (models, c, d), the rows' type
            Centres of each model.
        log2_scale : float
            A whole number near m log2 c if u^m would vanish in all rows, else 0. Values that become too large are cut
            off. This concerns only rows that coincide with a centre; these rows then outweigh all other rows.
        weights : array of shape (k,), the rows' type, or None
            Weights of the rows; None: all are 1.
        first_row : int
            Global number of the first row, a multiple of 1024.
        block_rows : int
            Number of rows per block of the sums, a multiple of 1024.
        out : float64 array of shape (blocks, models, c * d + c + 3)
            The sums are added to this array in place; out[b] belongs to block first_row // block_rows + b. For each
            model, element j * d + f is the sum of g_ij x_if, and element c * d + j is the sum of g_ij. The last three
            elements are the sums of g_ij s_ij, of w_i u_ij^2 and of -w_i u_ij log u_ij.
        """

    def memberships(self, x: Array, centers: Array, *, m: float, out: Array) -> None:
        """Write the memberships of rows: s_ij^(-1/(m-1)), scaled to sum 1 over the centres j.

        Parameters
        ----------
        x : array of shape (k, d)
            The rows.
        centers : array of shape (c, d), the rows' type
            Centres.
        out : array of shape (k, c), the rows' type
            Overwritten with the memberships. Centres at distance 0 share a row's membership.
        """

    def norm_distances(self, x: Array, centers: Array, factors: Array, *, out: Array) -> None:
        """Write the squared distances of rows to centres; each centre has its own norm.

        Parameters
        ----------
        x : array of shape (k, d)
            The rows.
        centers : array of shape (c, d), the rows' type
            Centres.
        factors : array of shape (c, d, d), the rows' type
            Upper triangular factors of the norms, with zeros below the diagonal.
        out : array of shape (k, c), the rows' type
            Overwritten with ``|factors[j] @ (x[i] - centers[j])|^2``; the largest finite number replaces infinity.
            Duplicate rows get bitwise identical distances.
        """

    def tile_memberships(
        self,
        tile: Array,
        *,
        m: float,
        log2_scale: float = 0.0,
        weights: Array | None = None,
        scores: Array | None = None,
    ) -> None:
        """Turn squared distances s_ij of rows into g_ij as in `fuzzy_sums`, or into memberships, in place.

        Parameters
        ----------
        tile : array of shape (k, c), the rows' type
            Squared distances; centres at distance 0 share a row's membership.
        log2_scale : float
            As in `fuzzy_sums`.
        weights : array of shape (k,), the rows' type, or None
            Weights of the rows; None: all are 1.
        scores : float64 array of shape (k, 3), optional
            Overwritten with each row's terms of the last three sums of `fuzzy_sums`. If None, the tile becomes
            memberships, and `log2_scale` and `weights` are ignored.
        """

    def scatter_sums(self, x: Array, centers: Array, g: Array, *, first_row: int, block_rows: int, out: Array) -> None:
        """Add the sums of products of features; covariances are computed from these sums.

        Parameters
        ----------
        x : array of shape (k, d)
            The rows.
        centers : array of shape (c, d), the rows' type
            Centres.
        g : array of shape (k, c), the rows' type
            Weight of each row in each cluster.
        first_row, block_rows : int
            As in `fuzzy_sums`.
        out : float64 array of shape (blocks, c, (d + 1) * (d + 2) / 2)
            The sums are added to this array in place; the blocks are the same as in `fuzzy_sums`. The elements of
            cluster j are the upper triangle, row by row, of a matrix: the sum over i of ``g[i, j]`` times the outer
            product of (x_i - centers_j, 1) with itself.
        """

    def weighted_means(self, sums: Array, centers: Array) -> Array:
        """Return the new centres, which are weighted means of the rows.

        Parameters
        ----------
        sums : float64 array of shape (models, c * d + c + 3)
            Sums over all rows, in the layout of `fuzzy_sums`.
        centers : float64 array of shape (models, c, d)
            The old centres.

        Returns
        -------
        float64 array of shape (models, c, d)
            The new centres. A cluster in which no row has a membership keeps its centre.
        """


if TYPE_CHECKING:  # mypy checks that both devices follow the protocol
    _cpu: FuzzyCMeansKernels = cpu
    _gpu: FuzzyCMeansKernels = gpu
