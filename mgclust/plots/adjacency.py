"""The edges of a graph as an image, with its nodes in the order of their communities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.ticker import FuncFormatter, MaxNLocator

from mgclust.base.errors import InputError
from mgclust.plots.sources import holds_result, labels_of, result_of
from mgclust.plots.style import INK, MUTED, cluster_colors, own_axes, rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["adjacency"]

SIZE = (6.2, 6.2)  # inches: the image is square
MAX_CELLS = 720  # across: as many as the picture has pixels there
CELLS_PER_ENTRY = 3.0  # the mean of a row of a sparse graph: fewer cells than nodes make its entries visible
SINGLE_EDGES = 240  # nodes up to which every edge has cells of its own, whatever their number
NAMED_NODES = 90
FAINTEST = 0.4  # share of its colour that a cell with the lightest edge has, where cells are few
FRAMED, NUMBERED = 1 / 150, 1 / 25  # of the picture: communities so wide get a frame, and their number in it
PLACED = 1 << 22  # edges at a time: bounds the memory


def adjacency(
    edges: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    names: Any = None,
    total: int | None = None,
) -> Axes:
    """The adjacency matrix with its nodes by community, the largest first: edges within in colour, between in grey.

    Parameters
    ----------
    edges : array of shape (m, 2) or (m, 3)
        Node numbers 0 .. n - 1, perhaps weights; every undirected edge once, or a sample of them. Or an open graph.
    labels : array of shape (n,), int, Result or fitted estimator
        Communities 0 .. k - 1. A result and an estimator also bring the names of their nodes.
    ax : matplotlib Axes, optional
        Where to draw; a new figure by default.
    names : array of shape (n,), optional
        Written beside the rows of a graph of up to 90 nodes.
    total : int, optional
        Edges that `edges` was sampled from, for the title.

    Returns
    -------
    matplotlib Axes
        Of larger graphs a cell holds many pairs of nodes; the stronger its colour, on a logarithmic scale, the more
        weight their edges have.
    """
    edges = edges.read(0, edges.shape[0]) if hasattr(edges, "read") else edges
    edges = edges.get() if hasattr(edges, "get") else np.asarray(edges)
    if names is None and holds_result(labels):
        names = getattr(result_of(labels), "arrays", {}).get("names")
    labels = labels_of(labels)
    if edges.ndim != 2 or edges.shape[1] not in (2, 3):
        raise InputError(f"edges has shape {edges.shape}, it should be (m, 2), or (m, 3) with weights.")
    n, k = len(labels), int(labels.max(initial=-1)) + 1
    ids = edges[:, :2]
    if ids.size and not 0 <= ids.min() <= ids.max() < n:
        raise InputError(f"edges join nodes {ids.min():g} to {ids.max():g}, labels has {n} nodes: 0 to {n - 1}.")
    sizes = np.bincount(labels, minlength=k)
    by_size = np.argsort(-sizes, kind="stable")
    place = _places(ids, labels, by_size, n)
    cells = _cell_count(n, len(edges))
    weight, inside = _binned(edges, place, labels, cells)
    ax = own_axes(ax, SIZE)
    ax.grid(visible=False)
    bounds = np.concatenate([[0], np.cumsum(sizes[by_size])])
    image = _image(weight, by_size[np.searchsorted(bounds, _middles(n, cells), side="right") - 1], k)
    ax.imshow(image, extent=(0, n, n, 0), interpolation="nearest" if cells == n else "antialiased", aspect="equal")
    _frames(ax, bounds, by_size, k)
    _name_nodes(ax, place, names)
    ax.set_xlim(0, n)
    ax.set_ylim(n, 0)
    drawn = "" if total is None or total == len(edges) else f"\n({len(edges):,} of them drawn)"
    count = total or len(edges)
    many = f"{count:,} edge{'' if count == 1 else 's'}{drawn}"
    ax.set_xlabel(f"{n:,} node{'' if n == 1 else 's'} by community, the largest first; {many}")
    what = "edge weight" if edges.shape[1] == 3 else "edges"
    ax.set_title(f"{k:,} communit{'y holds' if k == 1 else 'ies hold'} {inside:.0%} of the {what}")
    return ax


def _places(ids: np.ndarray, labels: np.ndarray, by_size: np.ndarray, n: int) -> np.ndarray:
    """Place of each node: by community, within it those with many edges first."""
    degree = np.zeros(n, dtype=np.int64)
    for start in range(0, len(ids), PLACED):
        degree += np.bincount(ids[start : start + PLACED].astype(np.int64).ravel(), minlength=n)
    rank = np.empty(len(by_size), dtype=np.int64)
    rank[by_size] = np.arange(len(by_size))
    place = np.empty(n, dtype=np.int64)
    place[np.lexsort((-degree, rank[labels]))] = np.arange(n)
    return place


def _cell_count(n: int, m: int) -> int:
    if n <= SINGLE_EDGES:
        return max(n, 1)
    return int(min(n, np.clip(CELLS_PER_ENTRY * np.sqrt(2.0 * m), SINGLE_EDGES, MAX_CELLS)))


def _middles(n: int, cells: int) -> np.ndarray:
    return (np.arange(cells) + 0.5) * n / cells


def _binned(edges: np.ndarray, place: np.ndarray, labels: np.ndarray, cells: int) -> tuple[np.ndarray, float]:
    """Weight of the edges in each cell of the symmetric matrix, and the share of it that is within communities."""
    n = len(place)
    cell = place * cells // max(n, 1)
    cell_weights = np.zeros(cells * cells)
    inside = whole = 0.0
    for start in range(0, len(edges), PLACED):
        part = edges[start : start + PLACED]
        u, v = part[:, 0].astype(np.int64), part[:, 1].astype(np.int64)
        weights = part[:, 2].astype(np.float64) if part.shape[1] == 3 else None
        within = labels[u] == labels[v]
        inside += float(within.sum() if weights is None else weights[within].sum())
        whole += float(len(part) if weights is None else weights.sum())
        cell_weights += np.bincount(cell[u] * cells + cell[v], weights=weights, minlength=cells * cells)
    matrix = cell_weights.reshape(cells, cells)
    return matrix + matrix.T, inside / whole if whole else 0.0


def _image(weight: np.ndarray, community: np.ndarray, k: int) -> np.ndarray:
    """RGB: the colour of a community where row and column belong to it, grey elsewhere, by the logarithm of weight."""
    filled = weight > 0
    strength = np.zeros_like(weight)
    if filled.any():
        least = np.quantile(weight[filled], 0.02)
        most = np.quantile(weight[filled], 0.998)
        scaled = np.log1p(weight / least) - np.log(2)
        reach = np.log1p(most / least) - np.log(2)
        strength = np.clip(scaled / reach, 0, 1) if reach > 0 else np.ones_like(weight)
        # Single cells on white have to be seen; where nearly all are filled, the faintest may be white.
        floor = FAINTEST * (1 - filled.mean())
        strength = np.where(filled, floor + (1 - floor) * strength, 0.0)
    same = community[:, None] == community[None, :]
    shades = np.vstack([cluster_colors(k), [rgb(MUTED)]])
    color = shades[np.where(same, community[:, None], k)]
    image: np.ndarray = 1 - strength[..., None] * (1 - color)
    return image


def _frames(ax: Axes, bounds: np.ndarray, by_size: np.ndarray, k: int) -> None:
    """A square around each community that is wide enough, and its number in the corner with the fewest edges."""
    n, widths = bounds[-1], np.diff(bounds)
    colors = cluster_colors(k)
    framed = np.flatnonzero(widths >= max(1, FRAMED * n))
    squares = [
        [(a, a), (b, a), (b, b), (a, b), (a, a)]
        for a, b in zip(bounds[framed].tolist(), bounds[framed + 1].tolist(), strict=True)
    ]
    edge: dict[str, Any] = {"linewidths": 0.9, "alpha": 0.9, "clip_on": False}
    ax.add_collection(LineCollection(squares, colors=colors[by_size[framed]], **edge))
    if k < 2:
        return
    for at in np.flatnonzero(widths >= NUMBERED * n).tolist():
        number, corner = int(by_size[at]), bounds[at + 1]
        ax.annotate(
            str(number), (corner, corner), xytext=(-2.5, 2.5), textcoords="offset points", ha="right", va="bottom",
            fontsize=8, color=colors[number], fontweight="bold", annotation_clip=False,
            bbox={"facecolor": "white", "alpha": 0.6, "linewidth": 0, "pad": 0.5},
        )  # fmt: skip


def _name_nodes(ax: Axes, place: np.ndarray, names: Any) -> None:
    n = len(place)
    if names is None or n > NAMED_NODES:
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(MaxNLocator(6, integer=True))
            axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
        return
    order = np.argsort(place)
    ax.set_yticks(np.arange(n) + 0.5, [str(name) for name in np.asarray(names)[order].tolist()])
    figure: Any = ax.figure
    line = ax.get_window_extent().height / figure.dpi * 72 / n  # points that a row has, before the names take room
    ax.tick_params(axis="y", length=0, labelsize=float(np.clip(0.9 * line, 3.5, 9)), colors=INK)
    ax.set_xticks([])
