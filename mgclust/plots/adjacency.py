"""The adjacency matrix of a graph as an image, with the nodes sorted by community."""

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
MAX_CELLS = 720  # across the image: about its number of pixels
CELLS_PER_ENTRY = 3.0  # cells across the image divided by sqrt(entries): if it is small, single entries are visible
SINGLE_EDGES = 240  # largest number of nodes for which every edge has its own cells
NAMED_NODES = 90  # largest number of nodes whose names are written
FAINTEST = 0.4  # strength of the colour of the lightest edges, if few cells are filled
FRAMED, NUMBERED = 1 / 150, 1 / 25  # smallest fraction of the nodes for which a community has a frame, and a number
PLACED = 1 << 22  # edges that are processed at a time, which limits the memory


def adjacency(
    edges: Any,
    labels: Any,
    ax: Axes | None = None,
    *,
    names: Any = None,
    total: int | None = None,
) -> Axes:
    """Adjacency matrix with the nodes sorted by community, the largest community first.

    Edges within a community have its colour; edges between communities are grey. In a large graph, a cell stands for
    many pairs of nodes: the stronger its colour (on a logarithmic scale), the larger the weight of their edges.

    Parameters
    ----------
    edges : array of shape (m, 2) or (m, 3), or Graph
        Node numbers from 0 to n - 1, and optionally weights in the third column. Each undirected edge is listed once.
        The array may hold a sample of the edges; see `total`.
    labels : array of shape (n,), int, Result or fitted estimator
        Community of each node, from 0 to k - 1. A result or an estimator also provides the names of the nodes.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    names : array of shape (n,), optional
        Names of the nodes, written next to the rows if there are at most 90 nodes.
    total : int, optional
        Number of edges of the graph, for the title, if `edges` is a sample.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        `edges` has another shape, or names a node that has no label.

    Examples
    --------
    >>> from mgclust import plots
    >>> ax = plots.adjacency([(0, 1), (1, 2), (0, 2), (3, 4)], [0, 0, 0, 1, 1])
    >>> ax.get_title()
    '2 communities hold 100% of the edges'
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
        raise InputError(f"edges join nodes {ids.min():g} to {ids.max():g}, but labels has {n} nodes: 0 to {n - 1}.")
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
    """Position of each node: sorted by community, and within a community by decreasing number of edges."""
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
    """Weight of the edges in each cell of the symmetric matrix, and the fraction of the weight within communities."""
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
    """RGB image: the logarithm of the weight in the colour of the community, or in grey between communities."""
    filled = weight > 0
    strength = np.zeros_like(weight)
    if filled.any():
        least = np.quantile(weight[filled], 0.02)
        most = np.quantile(weight[filled], 0.998)
        scaled = np.log1p(weight / least) - np.log(2)
        reach = np.log1p(most / least) - np.log(2)
        strength = np.clip(scaled / reach, 0, 1) if reach > 0 else np.ones_like(weight)
        # Single cells on white must be visible; if nearly all cells are filled, the faintest cells may be white.
        floor = FAINTEST * (1 - filled.mean())
        strength = np.where(filled, floor + (1 - floor) * strength, 0.0)
    same = community[:, None] == community[None, :]
    shades = np.vstack([cluster_colors(k), [rgb(MUTED)]])
    color = shades[np.where(same, community[:, None], k)]
    image: np.ndarray = 1 - strength[..., None] * (1 - color)
    return image


def _frames(ax: Axes, bounds: np.ndarray, by_size: np.ndarray, k: int) -> None:
    """Draw a frame around each wide community, and its number in its lower right corner, where edges are few."""
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
    line = ax.get_window_extent().height / figure.dpi * 72 / n  # height of a row in points, before the names take room
    ax.tick_params(axis="y", length=0, labelsize=float(np.clip(0.9 * line, 3.5, 9)), colors=INK)
    ax.set_xticks([])
