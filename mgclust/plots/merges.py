"""Merges of communities: modularity against the number of communities, and the last merges as a tree."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.ticker import MaxNLocator

from mgclust.base.errors import InputError
from mgclust.plots.sources import holds_result, result_with
from mgclust.plots.style import ACCENT, FIGURE, INK, MUTED, cluster_colors, counts_axis, marks, own_axes, rgb

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from mgclust.results.result import Result

__all__ = ["dendrogram", "modularity"]

CURVE_POINTS = 2_000  # points of a curve, evenly spaced on its logarithmic axis
WHOLE_TREE = 120  # largest number of nodes for which the whole tree is drawn
FEWEST_MERGES, MAX_MERGES = 40, 100  # limits of the default number of merges that are drawn for a larger tree
LEAF_SIZES = ((90, 8.0), (130, 6.5), (220, 5.0))  # largest number of leaves, and size of their names in points
LEAF_WIDTH, WIDTHS = 0.14, (11.4, 14.0)  # inches
LARGEST_MARK = 1_100.0  # diameter of the mark of the largest leaf, in points times the number of leaves
GIVE = "give a result of 'communities' or 'fast-newman'"
DASHES = (0, (4, 3))


class _Tree(NamedTuple):
    """The last merges: L leaves in the order of their ids, then M merges, the oldest first."""

    ids: np.ndarray  # (L,) nodes that stand for the leaves
    sizes: np.ndarray  # (L,) number of nodes in each leaf
    children: np.ndarray  # (M, 2) the two branches that each merge joined
    place: np.ndarray  # (L + M,) horizontal position
    height: np.ndarray  # (L + M,) vertical position: M + 1 for leaves, down to 1 for the last merge


def modularity(result_or_history: Result | Any, ax: Axes | None = None) -> Axes:
    """Modularity against the number of communities that are left, with the chosen and the best number marked.

    Parameters
    ----------
    result_or_history : Result, fitted estimator or array of shape (n,)
        A result of ``communities`` or ``fast-newman``, a fitted estimator of these, or the history itself: modularity
        after 0, 1, ..., n - 1 merges. For a result that holds no history, the modularity after each round is drawn.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The result has no modularity to draw, or the history has more than one dimension.

    Examples
    --------
    >>> from mgclust import FastNewman, plots
    >>> model = FastNewman().fit([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])
    >>> plots.modularity(model).get_title()
    'Modularity: 0.3571 with 2 communities of 6 nodes'
    """
    result = result_with(result_or_history, "", GIVE) if holds_result(result_or_history) else None
    if result is not None and "modularity_history" not in result.arrays:
        return _rounds(result, own_axes(ax, FIGURE))
    history = np.asarray(result_or_history if result is None else result.arrays["modularity_history"], dtype=float)
    if history.ndim != 1 or not len(history):
        raise InputError(f"history has shape {history.shape}, it should be (n,): one value per number of communities.")
    n = len(history)
    best = n - int(np.argmax(history))
    chosen = best if result is None else int(result.scores["n_clusters"])
    ax = own_axes(ax, FIGURE)
    spaced = np.geomspace(1, n, CURVE_POINTS).round().astype(np.int64) if n > CURVE_POINTS else np.arange(1, n + 1)
    k = np.union1d(spaced, [best, chosen])
    ax.plot(k, history[n - k], color=ACCENT, linewidth=1.8, **marks(n, 3))
    counts_axis(ax, "x", n)
    ax.margins(y=0.12)
    components = 1 if result is None else int(result.diagnostics.get("n_components", 1))
    if components > 1:
        ax.axvspan(0.5, components, color=MUTED, alpha=0.07, linewidth=0, zorder=0)
        _note(ax, components, 0.02, f"{components:,} components ")
    if chosen != best:
        _mark(ax, best, n, history[n - best], f"best: {best:,}", MUTED)
    _mark(ax, chosen, n, history[n - chosen], f"K = {chosen:,}: Q = {history[n - chosen]:.4f}", INK)
    ax.set_xlim(1 / 1.06, max(n, 2) * 1.06)
    ax.set_xlabel("communities K that are left (merges go from right to left)")
    resolution = 1.0 if result is None else result.parameters.get("resolution", 1.0)
    ax.set_ylabel("modularity Q" + ("" if resolution == 1.0 else f" at resolution {resolution:g}"))
    ax.set_title(f"Modularity: {history[n - chosen]:.4f} with {_communities(chosen)} of {n:,} nodes")
    return ax


def dendrogram(result_or_merges: Result | Any, ax: Axes | None = None, *, last: int | None = None) -> Axes:
    """Tree of the last merges, in the colours of the communities.

    The height of each fork is the number of communities that are left after its merge. If there are at least as many
    communities as connected components, a separate tree is drawn for each component, because merges of unconnected
    communities show nothing about the graph.

    Parameters
    ----------
    result_or_merges : Result, fitted estimator or array of shape (n - 1, 2), int
        A result of ``communities`` or ``fast-newman``, a fitted estimator of these, or the merges themselves. Each
        merge is a pair: a node of the community that is kept, a node of the community that it absorbs.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure, as wide as the leaves need.
    last : int, optional
        Number of merges to draw. By default, all merges are drawn for a graph of up to 120 nodes. For larger graphs,
        the default is twice the number of merges that follow the chosen communities, but at least 40 and at most 100.

    Returns
    -------
    matplotlib Axes

    Raises
    ------
    InputError
        The result holds no merges, or `last` is out of range.

    Examples
    --------
    >>> from mgclust import FastNewman, plots
    >>> model = FastNewman().fit([(0, 1), (1, 2), (0, 2), (3, 4), (4, 5), (3, 5), (2, 3)])
    >>> plots.dendrogram(model).get_title()
    'All merges, cut into 2 communities'
    """
    result = result_with(result_or_merges, "", GIVE) if holds_result(result_or_merges) else None
    if result is not None and "merges" not in result.arrays and hasattr(result_or_merges, "merges_"):
        result, result_or_merges = None, result_or_merges.merges_  # these communities are not a cut of the tree
    merges = np.asarray(result_or_merges if result is None else _array(result, "merges"))
    if merges.ndim != 2 or merges.shape[1] != 2:
        raise InputError(
            f"merges has shape {merges.shape}, it should be (n - 1, 2): a node of the kept community, and a node of "
            "the absorbed community."
        )
    n = len(merges) + 1
    labels = None if result is None or result.labels is None else np.asarray(result.labels)
    if labels is not None and len(labels) != n:
        raise InputError(
            f"{len(merges)} merges should be one fewer than the {len(labels)} nodes; give merges of the same graph."
        )
    k = 1
    if labels is not None:  # communities that began with known labels may leave out numbers
        k = len(np.unique(labels))
    components = 1 if result is None else int(result.diagnostics.get("n_components", 1))
    top = components if k >= components else 1
    tree = _last_merges(merges, top, _merge_count(n, top, k, last))
    count = len(tree.ids)
    ax = own_axes(ax, (float(np.clip(LEAF_WIDTH * count + 1.2, *WIDTHS)), 5.2))
    ax.grid(visible=False, axis="x")
    colors = _branch_colors(tree, None if labels is None else labels[tree.ids])
    _draw_branches(ax, tree, colors, components - top + 1)
    _draw_leaves(ax, tree, colors[:count], None if result is None else result.arrays.get("names"))
    joined = len(tree.children)
    cut = k - top + 1
    if 1 < cut <= joined:
        ax.axhline(np.sqrt(cut * (cut - 1.0)), color=INK, linewidth=1.0, linestyle=DASHES, alpha=0.7)
    counts_axis(ax, "y", joined + 1, more=top - 1)
    ax.set_ylim((joined + 1) * 1.02 if joined else 1.5, 1 / 1.12)
    ax.set_xlim(-0.8, max(count, 1) - 0.2)
    ax.set_ylabel("communities that are left" + (f" ({top:,} components)" if top > 1 else ""))
    what = "All merges" if joined == n - top else f"The last {joined:,} of {n - top:,} merges"
    ax.set_title(what + (f", cut into {_communities(k)}" if 1 < cut <= joined else ""))
    return ax


def _communities(count: int) -> str:
    return f"{count:,} communit{'y' if count == 1 else 'ies'}"


def _array(result: Result, name: str) -> Any:
    if name not in result.arrays:
        attribute = {"merges": "merges_", "modularity_history": "modularity_history_"}[name]
        raise InputError(
            f"a result of method={result.method!r} holds no {name}; give model.{attribute} of `FastNewman` or "
            "`Communities`, or a result of FastNewman."
        )
    return result.arrays[name]


def _mark(ax: Axes, k: int, n: int, value: float, text: str, color: str) -> None:
    ax.plot([k], [value], marker="o", markersize=10, markerfacecolor="none", markeredgecolor=color, linestyle="none")
    right = k * k > n  # whether k lies right of the middle of the logarithmic axis
    ax.annotate(
        text, (k, value), xytext=(8 if right else -8, 10), textcoords="offset points", ha="right" if right else "left",
        fontsize=10, color=color, bbox={"facecolor": "white", "alpha": 0.85, "linewidth": 0, "pad": 1.5}, zorder=5,
    )  # fmt: skip


def _note(ax: Axes, x: float, y: float, text: str) -> None:
    ax.text(x, y, text, transform=ax.get_xaxis_transform(), ha="right", va="bottom", fontsize=9, color=MUTED)


def _rounds(result: Result, ax: Axes) -> Axes:
    """Draw the modularity after each round, for results whose merges were too many to be kept."""
    values = [entry["modularity"] for entry in result.diagnostics.get("rounds") or ()]
    if not values:
        raise InputError(f"a result of method={result.method!r} has no modularity; give a result of 'communities'.")
    rounds = np.arange(1, len(values) + 1)
    ax.plot(rounds, values, color=ACCENT, linewidth=1.8, **marks(len(values), 4))
    ax.xaxis.set_major_locator(MaxNLocator(integer=True))
    ax.set_xlabel("round")
    ax.set_ylabel("modularity Q")
    ax.set_title(f"Modularity: {max(values):.4f} in {len(values):,} round{'' if len(values) == 1 else 's'}")
    return ax


def _merge_count(n: int, top: int, k: int, last: int | None) -> int:
    if last is None:
        return n - top if n <= WHOLE_TREE else min(n - top, int(np.clip(2 * (k - top), FEWEST_MERGES, MAX_MERGES)))
    if not 1 <= last <= n - 1:
        raise InputError(f"last={last} should be from 1 to the number of merges, {n - 1}.")
    return min(int(last), n - top)


def _last_merges(merges: np.ndarray, top: int, count: int) -> _Tree:
    """Lay out the last `count` merges before `top` communities are left, with the larger branch at the left."""
    n = len(merges) + 1
    early, late = merges[: n - top - count], merges[n - top - count : n - top]
    root = np.arange(n, dtype=np.int32)
    root[early[:, 1]] = early[:, 0]
    while True:  # pointer jumping: each pass halves the chains of absorbed communities
        further = root[root]
        if np.array_equal(further, root):
            break
        root = further
    ids = np.unique(late)
    sizes = np.bincount(root, minlength=n)[ids]
    leaves = len(ids)
    total = np.concatenate([sizes, np.zeros(count, dtype=np.int64)])
    children = np.zeros((count, 2), dtype=np.int64)
    now = {int(node): leaf for leaf, node in enumerate(ids)}
    for t, (kept, absorbed) in enumerate(late.tolist()):
        pair = sorted((now[kept], now.pop(absorbed)), key=lambda node: -total[node])
        children[t], now[kept] = pair, leaves + t
        total[leaves + t] = total[pair].sum()
    height = np.concatenate([np.full(leaves, count + 1), np.arange(count, 0, -1)])
    trees = sorted(now.values(), key=lambda node: -total[node])
    return _Tree(ids, sizes, children, _places(children, leaves, trees), height)


def _places(children: np.ndarray, leaves: int, trees: list[int]) -> np.ndarray:
    """Place the leaves so that no branches cross, and every fork above the middle of its two branches."""
    place = np.zeros(leaves + len(children))
    waiting, after = trees[::-1], 0
    while waiting:
        node = waiting.pop()
        if node < leaves:
            place[node], after = after, after + 1
        else:
            waiting += children[node - leaves, ::-1].tolist()
    for t, pair in enumerate(children):
        place[leaves + t] = place[pair].mean()
    return place


def _branch_colors(tree: _Tree, labels: np.ndarray | None) -> np.ndarray:
    """Colour of each branch: the colour of its community, or dark if it joins several communities."""
    nodes, leaves = len(tree.place), len(tree.ids)
    if labels is None:
        return np.tile(rgb(ACCENT), (nodes, 1))
    k = int(labels.max(initial=-1)) + 1
    community = np.concatenate([labels, np.full(nodes - leaves, k)])
    for t, (left, right) in enumerate(tree.children):
        if community[left] == community[right]:
            community[leaves + t] = community[left]
    return np.vstack([cluster_colors(k), [rgb(INK)]])[community]


def _draw_branches(ax: Axes, tree: _Tree, colors: np.ndarray, first_forced: int) -> None:
    """Draw a bracket for each merge; brackets of merges that leave fewer communities than components are faint."""
    if not len(tree.children):
        return
    forks = np.arange(len(tree.ids), len(tree.place))
    x, y = tree.place[tree.children], tree.height[tree.children]  # (M, 2), for the two branches
    top = np.repeat(tree.height[forks][:, None], 2, axis=1)
    legs = np.stack([np.stack([x, y], axis=-1), np.stack([x, top], axis=-1)], axis=2)  # (M, branch, end, 2)
    bars = np.stack([x, top], axis=-1)  # (M, end, 2)
    forced = tree.height[forks] < first_forced
    width = 1.5 if len(tree.ids) <= WHOLE_TREE else 1.0
    for chosen, alpha, style in ((forced, 0.4, (0, (1, 1.2))), (~forced, 1.0, "solid")):
        lines = [*legs[chosen].reshape(-1, 2, 2), *bars[chosen]]
        shades = np.vstack([colors[tree.children[chosen].ravel()], colors[forks[chosen]]])
        look: dict[str, Any] = {"linewidths": width, "linestyles": [style], "alpha": alpha, "capstyle": "round"}
        ax.add_collection(LineCollection(lines, colors=shades, **look))


def _draw_leaves(ax: Axes, tree: _Tree, colors: np.ndarray, names: Any) -> None:
    """Write below each leaf the name of its node, or its number of nodes, which the area of a mark also shows."""
    count = len(tree.ids)
    single = not (tree.sizes > 1).any()
    if not single:
        largest = min(240.0, (LARGEST_MARK / count) ** 2)
        area = np.clip(largest * tree.sizes / tree.sizes.max(), 3, None)
        x, y = tree.place[:count], tree.height[:count]
        ax.scatter(x, y, s=area, c=colors, linewidths=0, zorder=3, clip_on=False)
    ax.set_xlabel("nodes" if single else "communities that earlier merges formed, with their numbers of nodes")
    room = next((size for most, size in LEAF_SIZES if count <= most), None)
    if room is None:
        ax.set_xticks([])
        return
    if not single:
        texts = [f"{size:,}" for size in tree.sizes.tolist()]
    elif names is None:
        texts = [str(node) for node in tree.ids.tolist()]
    else:
        texts = [str(name) for name in np.asarray(names)[tree.ids].tolist()]
    ax.set_xticks(tree.place[:count], texts, rotation=90)
    ax.tick_params(axis="x", length=0, pad=3 if single else 8, labelsize=room)
