"""Style of all pictures: colours, axes, number of points drawn, PNG files."""

from __future__ import annotations

import io
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

__all__ = [
    "ACCENT",
    "FIGURE",
    "GRID",
    "INK",
    "MAX_POINTS",
    "MUTED",
    "POINT",
    "UNASSIGNED",
    "Picture",
    "cluster_colors",
    "counted_title",
    "counts_axis",
    "drawn_rows",
    "faint_axis",
    "marks",
    "oklab_of_oklch",
    "oklab_of_srgb",
    "own_axes",
    "png",
    "rgb",
    "srgb_of_oklab",
]

MAX_POINTS = 50_000  # largest number of drawn points: more points only darken the picture and slow it down
MARKED = 60  # largest number of values of a line for which each value has a mark
FIGURE = (6.6, 5.6)  # inches

INK = "#22262b"
MUTED = "#6b7280"
GRID = "#e6e8eb"
UNASSIGNED = "#a9aeb6"
POINT = "#8f99a8"
ACCENT = "#3566b0"

# Ten hues that most kinds of colour vision can tell apart. More than ten clusters take hues all around the circle.
_FIRST = (
    "#3566b0", "#e07b27", "#2f9560", "#c8453b", "#7b5ab5",
    "#8a6242", "#d062a4", "#5f6b78", "#a3a329", "#29a3b8",
)  # fmt: skip
# Oklab to the roots of the cones' responses, and these responses to linear sRGB.
_CONES_OF_OKLAB = np.array(
    [[1, 0.3963377774, 0.2158037573], [1, -0.1055613458, -0.0638541728], [1, -0.0894841775, -1.2914855480]]
)
_LINEAR_OF_CONES = np.array(
    [
        [4.0767416621, -3.3077115913, 0.2309699292],
        [-1.2684380046, 2.6097574011, -0.3413193965],
        [-0.0041960863, -0.7034186147, 1.7076147010],
    ]
)
_GOLDEN = 0.6180339887498949  # golden ratio: its multiples modulo 1 spread evenly, however many there are


def cluster_colors(n_clusters: int) -> np.ndarray:
    """RGB colour of each cluster, in the order of the labels.

    Neighbouring labels differ in hue and in lightness, for any number of clusters.

    Parameters
    ----------
    n_clusters : int
        Number of clusters.

    Returns
    -------
    ndarray of shape (n_clusters, 3), float
        Red, green and blue from 0 to 1. Up to 10 clusters have ten fixed hues. For more than 10 clusters, the colour of
        a label does not depend on the number of clusters.

    Examples
    --------
    >>> from mgclust import plots
    >>> plots.cluster_colors(3).shape
    (3, 3)
    """
    if n_clusters <= len(_FIRST):
        return np.array([rgb(code) for code in _FIRST[:n_clusters]]).reshape(-1, 3)
    k = np.arange(n_clusters)
    lightness = np.array([0.56, 0.70, 0.47])[k % 3]
    chroma = np.array([0.15, 0.125])[k % 2]
    return _oklch(lightness, chroma, 0.72 + k * _GOLDEN)


def png(ax: Axes, dpi: int = 160) -> bytes:
    r"""Encode the figure of some axes as a PNG file.

    Parameters
    ----------
    ax : matplotlib.axes.Axes
        Axes of the figure.
    dpi : int, default=160
        Pixels per inch.

    Returns
    -------
    bytes
        Content of the file.

    Examples
    --------
    >>> from mgclust import plots
    >>> plots.png(plots.objective([9.0, 4.0, 3.5]))[:4]
    b'\x89PNG'
    """
    buffer = io.BytesIO()
    figure: Any = ax.figure
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


class Picture(Axes):
    """Axes with their own figure, which a notebook shows as a picture."""

    def _repr_png_(self) -> bytes:
        return png(self, dpi=100)


def own_axes(ax: Axes | None, size: tuple[float, float]) -> Axes:
    """Give the axes the style that all pictures share; make new axes if `ax` is None."""
    if ax is None:
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        FigureCanvasAgg(figure)
        ax = figure.add_subplot(axes_class=Picture)
    ax.set_axisbelow(True)
    ax.grid(color=GRID, linewidth=0.8)
    for side, spine in ax.spines.items():
        spine.set_visible(side in ("left", "bottom"))
        spine.set_color("#c3c7cd")
    ax.tick_params(which="both", colors=MUTED, labelsize=9, length=3)
    ax.ticklabel_format(style="sci", scilimits=(-3, 5), useMathText=True)
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_offset_text().set(fontsize=9, color=MUTED)
    ax.title.set(fontsize=12, color=INK)
    ax.xaxis.label.set(fontsize=10, color=INK)
    ax.yaxis.label.set(fontsize=10, color=INK)
    return ax


def faint_axis(ax: Axes, label: str) -> Axes:
    """Make a second vertical axis at the right, behind everything else, for curves that are drawn faintly."""
    right = own_axes(ax.twinx(), FIGURE)
    right.grid(visible=False)
    right.set_zorder(ax.get_zorder() - 1)
    ax.patch.set_visible(False)
    right.spines["left"].set_visible(False)
    right.set_ylabel(label, color=MUTED)
    right.yaxis.label.set(fontsize=9, color=MUTED)
    right.tick_params(axis="y", which="both", labelsize=8)
    return right


def marks(count: int, size: int) -> dict[str, Any]:
    """Arguments of `plot` that mark each value of a line, if there are few values."""
    return {"marker": "o", "markersize": size} if count <= MARKED else {}


def drawn_rows(n: int, always: np.ndarray | None = None) -> np.ndarray:
    """Indices of the rows to draw, ascending: all rows, or a fixed random choice that contains the rows `always`."""
    if n <= MAX_POINTS:
        return np.arange(n)
    chosen = np.random.default_rng(0).choice(n, size=MAX_POINTS, replace=False)
    if always is not None:
        chosen = np.union1d(chosen[: MAX_POINTS - len(always)], always)
    return np.sort(chosen)


def counted_title(what: str, shown: int, total: int) -> str:
    """Return a title with the number of points and, if not all are drawn, the number of drawn points."""
    if shown == total:
        return f"{what}, {total:,} points"
    return f"{what}, {total:,} points ({shown:,} drawn)"


def counts_axis(ax: Axes, which: Literal["x", "y"], reach: int, more: int = 0) -> None:
    """Make an axis of counts up to `reach` logarithmic; its labels are whole numbers, each increased by `more`."""
    (ax.set_xscale if which == "x" else ax.set_yscale)("log")
    axis = ax.xaxis if which == "x" else ax.yaxis
    axis.set_major_locator(LogLocator(subs=(1, 2, 5) if reach <= 3_000 else (1,)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value + more:,.0f}"))
    axis.set_minor_formatter(NullFormatter())


def _oklch(lightness: np.ndarray, chroma: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Convert from Oklch, in which equal lightness looks equally light in every hue, to sRGB."""
    return srgb_of_oklab(oklab_of_oklch(lightness, chroma, turn))


def oklab_of_oklch(lightness: np.ndarray, chroma: np.ndarray, turn: np.ndarray) -> np.ndarray:
    """Convert from Oklch to Oklab; the hue is a fraction of a turn."""
    return np.stack([lightness, chroma * np.cos(2 * np.pi * turn), chroma * np.sin(2 * np.pi * turn)], axis=-1)


def srgb_of_oklab(colors: np.ndarray) -> np.ndarray:
    """Convert from Oklab (B. Ottosson, 2020), in which distances are differences that people see, to sRGB (0 to 1)."""
    linear = ((colors @ _CONES_OF_OKLAB.T) ** 3 @ _LINEAR_OF_CONES.T).clip(0, 1)
    return np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055).clip(0, 1)


def oklab_of_srgb(colors: np.ndarray) -> np.ndarray:
    """Convert from sRGB (0 to 1) to Oklab."""
    linear = np.where(colors <= 0.04045, colors / 12.92, ((colors + 0.055) / 1.055) ** 2.4)
    return np.cbrt(linear @ np.linalg.inv(_LINEAR_OF_CONES).T) @ np.linalg.inv(_CONES_OF_OKLAB).T


def rgb(code: str) -> tuple[float, float, float]:
    """Convert ``#rrggbb`` to red, green and blue from 0 to 1."""
    return tuple(int(code[i : i + 2], 16) / 255 for i in (1, 3, 5))  # type: ignore[return-value]
