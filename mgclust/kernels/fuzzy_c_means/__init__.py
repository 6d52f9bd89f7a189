"""Fuzzy c-means: the weighted sums of one pass over the rows, and memberships in given centres.

On the CPU `cpu` hands panels of rows to `cpu_steps`. On a GPU `gpu` takes ``fuzzy.cu``, or `gpu_products` with
``products.cu`` where many centres are for tensor cores; both include ``approximations.cuh``. Clusters with norms of
their own have distances and sums of products in `cpu_covariances` and ``covariances.cu``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from mgclust.kernels.fuzzy_c_means import cpu, gpu

__all__ = ["FuzzyCMeansKernels"]

Array = Any


class FuzzyCMeansKernels(Protocol):
    """Functions that both devices have, with these meanings; `x` are rows, float32 or float64, and `m` is above 1."""

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

        With s_ij the squared distance to centre j, u_ij proportional to s_ij^(-1/(m-1)) with sum 1 over j (centres at
        distance 0 share a row), w the weights and g_ij = w_i u_ij^m 2^log2_scale.

        Parameters
        ----------
        x : array of shape (k, d)
        centers : array of shape (models, c, d), the rows' type
            Of each model.
        log2_scale : float
            A whole number, not 0 where u^m would vanish in all rows: near m log2 c. What it makes too large is cut off:
            rows that coincide with a centre, which then outweigh all others.
        weights : array of shape (k,), the rows' type, or None
            None: all 1.
        first_row : int
            Global number of the first row, a multiple of 1024.
        block_rows : int
            Rows of a block of the sums, a multiple of 1024.
        out : float64 array of shape (blocks, models, c * d + c + 3)
            Added to in place; row b belongs to block first_row // block_rows + b. Place j * d + f: sum of g_ij x_if;
            c * d + j: sum of g_ij; then the sums of g_ij s_ij, of w_i u_ij^2 and of -w_i u_ij log u_ij.
        """

    def memberships(self, x: Array, centers: Array, *, m: float, out: Array) -> None:
        """Write the memberships of rows: s_ij^(-1/(m-1)), scaled to sum 1 over the centres j.

        Parameters
        ----------
        x : array of shape (k, d)
        centers : array of shape (c, d), the rows' type
            Centres.
        out : array of shape (k, c), the rows' type
            Written. Centres at distance 0 share a row.
        """

    def norm_distances(self, x: Array, centers: Array, factors: Array, *, out: Array) -> None:
        """Write the squared distances of rows from centres, for each centre in a norm of its own.

        Parameters
        ----------
        x : array of shape (k, d)
        centers : array of shape (c, d), the rows' type
        factors : array of shape (c, d, d), the rows' type
            Upper triangular, with zeros below the diagonal.
        out : array of shape (k, c), the rows' type
            Written: ``|factors[j] @ (x[i] - centers[j])|^2``, the largest finite number at most. Equal rows have equal
            bits.
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
            Distances; centres at distance 0 share a row.
        log2_scale : float
            As in `fuzzy_sums`.
        weights : array of shape (k,), the rows' type, or None
            None: all 1.
        scores : float64 array of shape (k, 3), optional
            Written: what each row adds to the last three sums of `fuzzy_sums`. Without it the tile becomes memberships,
            and `log2_scale` and `weights` do not count.
        """

    def scatter_sums(self, x: Array, centers: Array, g: Array, *, first_row: int, block_rows: int, out: Array) -> None:
        """Add the sums of products of features that covariances are made of.

        Parameters
        ----------
        x : array of shape (k, d)
        centers : array of shape (c, d), the rows' type
        g : array of shape (k, c), the rows' type
            How much each row weighs in each cluster.
        first_row, block_rows : int
            As in `fuzzy_sums`.
        out : float64 array of shape (blocks, c, (d + 1) * (d + 2) / 2)
            Added to in place; blocks are those of `fuzzy_sums`. Of cluster j the upper triangle, row by row, of the sum
            over i of ``g[i, j]`` times the outer product of (x_i - centers_j, 1) with itself.
        """

    def weighted_means(self, sums: Array, centers: Array) -> Array:
        """Move centres to the means of the rows that their clusters weigh.

        Parameters
        ----------
        sums : float64 array of shape (models, c * d + c + 3)
            Of all rows, laid out as `fuzzy_sums` does.
        centers : float64 array of shape (models, c, d)

        Returns
        -------
        float64 array of shape (models, c, d)
            A cluster that no row has a membership in keeps its centre.
        """


if TYPE_CHECKING:  # both devices have what the contract says
    _cpu: FuzzyCMeansKernels = cpu
    _gpu: FuzzyCMeansKernels = gpu
