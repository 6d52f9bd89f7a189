"""Presentation of a method's results: the class `Presentation`, which each method extends in its own folder.

The command line, the report, the service and the progress line use the presentation of a method, and do not know
methods by name. An estimator has its presentation as an attribute, so modules of presentations import matplotlib only
when they draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

import numpy as np

from mgclust.algorithms.common.methods_text import methods_text
from mgclust.data import Dataset
from mgclust.results.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "Axis",
    "Drawn",
    "EdgeSample",
    "Fact",
    "Presentation",
    "Sample",
    "Score",
    "Table",
    "number_text",
    "sample_index",
]

Drawn: TypeAlias = "dict[str, Axes]"  # pictures by name
SAMPLE_BYTES = 256 << 20  # memory limit of a sample: fewer rows are drawn if rows are wide


@dataclass(frozen=True)
class Sample:
    """Sample of the rows of a data set, to draw instead of all rows.

    Attributes
    ----------
    index : ndarray of shape (m,), int
        Row numbers of the sample, ascending.
    rows : ndarray of shape (m, n_features)
        The rows.
    centers : ndarray of shape (n_clusters, n_features), or None
        The centres, in label order.
    """

    index: np.ndarray
    rows: np.ndarray
    centers: np.ndarray | None


@dataclass(frozen=True)
class EdgeSample:
    """Sample of the edges of a graph, to draw instead of all edges.

    Attributes
    ----------
    edges : ndarray of shape (m, 2) or (m, 3)
        The two nodes of each edge, and its weight if the graph has weights.
    total : int
        Number of edges of the graph.
    """

    edges: np.ndarray
    total: int


class Score(NamedTuple):
    """Label of a score, and the format of its value.

    Parameters
    ----------
    name : str
        Label, in a few words.
    form : str
        A format specification for `format`; by default, four significant digits.
    better : {"", "higher", "lower"}
        Which of two results of the method is better. By default, the score does not tell.
    """

    name: str
    form: str = ""
    better: Literal["", "higher", "lower"] = ""


class Fact(NamedTuple):
    """Label of a diagnostic, and the meaning of its values.

    Parameters
    ----------
    name : str
        Label, in a few words.
    values : mapping
        Text to show for each value. Values without a text are shown unchanged.
    """

    name: str
    values: Mapping[Any, str] = {}


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes
    ----------
    heading : str
        Title of the table.
    columns : sequence of str
        Headings of the columns.
    rows : sequence of sequence
        Numbers and text; the report formats and escapes them.
    colors : ndarray of shape (n_rows, 3), optional
        Colours of the clusters that the rows describe.
    chosen : int, optional
        Index of the row to highlight.
    words : bool
        Whether the last column is text of any length.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    colors: np.ndarray | None = None
    chosen: int | None = None
    words: bool = False


class Axis(NamedTuple):
    """Axis of a decision graph: a quantity of the rows, and its limits. Rows within the limits are centres.

    Parameters
    ----------
    name : str
        Name of the result's array. The limits are the parameters NAME_min and NAME_max.
    words : str
        Label, in a few words.
    """

    name: str
    words: str


class Presentation:
    """Presentation of a method's results, with general defaults that a method can override.

    Attributes
    ----------
    title : str
        Title of the method; by default its name.
    scores : mapping of str to Score or None
        Labels of scores that only this method has, or that have another meaning for this method. None: the score is not
        shown as a separate value.
    facts : mapping of str to Fact or None
        Labels of diagnostics. None: the diagnostic is not shown as a separate value.
    captions : mapping of str to str
        Captions by the names of this method's pictures.
    wide : tuple of str
        Names of pictures that take the whole width of the page.
    progress : mapping of str to str
        Formats of the values that are shown with the progress, in this order; other values follow by name.
    decision_graph : tuple of two Axis
        The horizontal and the vertical axis of a plane in which users can choose other centres by drawing a box. Empty
        if the method does not offer this choice.
    references : mapping of str to str
        Publications by their short citation (authors and year), as `method_sentences` writes it.
    colored_by_place : bool
        Whether clusters of voxels are coloured by their place (`mgclust.plots.parcel_colors`) instead of by their
        labels (`mgclust.plots.cluster_colors`). This suits clusters that are connected.
    """

    title: str = ""
    scores: Mapping[str, Score | None] = {}
    facts: Mapping[str, Fact | None] = {}
    captions: Mapping[str, str] = {}
    wide: tuple[str, ...] = ()
    progress: Mapping[str, str] = {
        "iteration": "iteration {:,}",
        "max_iter": "of at most {:,}",
        "n_clusters": "K={:,} clusters",
        "rate": "{:,.0f} it/s",
    }
    decision_graph: tuple[Axis, ...] = ()
    references: Mapping[str, str] = {}
    colored_by_place: bool = False

    def title_of(self, method: str) -> str:
        """Return the title of a method.

        Parameters
        ----------
        method : str
            Name of the method on the command line.

        Returns
        -------
        str
            `title`, or the name as words if there is none.
        """
        return self.title or method.replace("-", " ").capitalize()

    def method_sentences(self, result: Result) -> list[str]:
        """Write sentences for a paper: the method with citations, and the parameters that the fit chose.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        list of str
            By default one sentence with the title of the method.
        """
        return [f"The method was {self.title_of(result.method)}."]

    def methods_text(self, result: Result, defaults: Mapping[str, Any]) -> str:
        """Write a paragraph for the methods section of a paper, with the references that it cites.

        Parameters
        ----------
        result : Result
            Result of the method.
        defaults : mapping of str to object
            Default values of the parameters. The paragraph leaves out parameters that have their default value.

        Returns
        -------
        str
        """
        try:
            said = self.method_sentences(result)
        except KeyError:  # a result that was not made by a run may lack scores
            said = Presentation.method_sentences(self, result)
        return methods_text(result, said, self.references, defaults)

    def all_scores(self) -> dict[str, Score | None]:
        """Return the labels of all scores: general scores, and the scores of this method.

        Returns
        -------
        dict of str to Score or None
        """
        return {
            "n_clusters": Score("clusters"),
            "n_iter": Score("iterations"),
            "ari": Score("agreement with the known truth (ARI, 1 = the same)", ".3f"),
            "nmi": Score("agreement with the known truth (NMI, 1 = the same)", ".3f"),
            "fowlkes_mallows": Score("agreement with the known truth (Fowlkes-Mallows, 1 = the same)", ".3f"),
            "purity": Score("fraction of rows in the most frequent true class of their cluster", ".3f"),
            "error_rate": Score("fraction of rows outside the best one-to-one matching with the true classes", ".3f"),
            "atlas_ari": Score("agreement with the atlas (ARI, 1 = the same)", ".3f"),
            "atlas_rows": Score("rows with a cluster and a label of the atlas"),
            **self.scores,
        }

    def all_captions(self) -> dict[str, str]:
        """Return the captions of all pictures: pictures that several methods have, and the pictures of this method.

        Returns
        -------
        dict of str to str
        """
        return {
            "label_slices": "Clusters at their place, over the mean of the series. Dark lines separate neighbouring "
            "clusters. In the label volume, cluster k has the value k + 1, and the background is 0.",
            "scatter": "Rows coloured by cluster. Large marks are the cluster centres, if the method has centres. "
            "Faint rows are in a halo or, with fuzzy c-means, have a second membership of more than half the largest.",
            **self.captions,
        }

    def lead(self, result: Result) -> list[str]:
        """Return text for the line below the title, in addition to the size of the data and the place of computation.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        list of str
            Parts of the line; empty by default.
        """
        return []

    def exactness(self, result: Result) -> list[tuple[str, Any]]:
        """Return the facts at the start of the section on exactness; the diagnostics follow them.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        list of (str, object)
            Labels and values; empty by default.
        """
        return []

    def sample(self, dataset: Dataset, result: Result, most: int) -> Sample | EdgeSample | None:
        """Read the rows that a picture shows: all rows or a fixed random sample, and the rows of the centres.

        Parameters
        ----------
        dataset : Dataset or Graph
            The clustered data.
        result : Result
            Result of the method.
        most : int
            Maximum number of rows in the sample.

        Returns
        -------
        Sample, EdgeSample or None
            None if the rows are not points.
        """
        index = sample_index(dataset.shape, most)
        own = self.centers(result)
        centers = np.asarray(result.arrays.get("centers", ()) if own is None else (), dtype=np.int64)
        wanted = np.union1d(index, centers)
        rows = dataset.take(wanted).astype(np.float64)
        if len(centers):
            own = rows[np.searchsorted(wanted, centers)]
        return Sample(index, rows[np.searchsorted(wanted, index)], own)

    def centers(self, result: Result) -> np.ndarray | None:
        """Return the coordinates of the centres if the result contains them, not only row numbers.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        ndarray of shape (n_clusters, n_features), or None
            The centres in label order. None, the default, if the result does not contain coordinates of centres.
        """
        return None

    def faint(self, result: Result, index: np.ndarray) -> np.ndarray | None:
        """Return which rows are drawn faintly, because they hardly belong to their cluster.

        Parameters
        ----------
        result : Result
            Result of the method.
        index : ndarray of shape (m,), int
            Row numbers.

        Returns
        -------
        ndarray of shape (m,), bool, or None
            True for each row that is drawn faintly. None, the default, if no row is.
        """
        return None

    def draw(self, result: Result, sample: Any) -> Drawn:
        """Draw the pictures of the result; without a sample, only the pictures that do not need a sample.

        Parameters
        ----------
        result : Result
            Result of the method.
        sample : Sample, EdgeSample or None
            Return value of the method `sample`.

        Returns
        -------
        dict of str to matplotlib.axes.Axes
            Pictures by name. By default a scatter plot of the rows in the colours of their clusters.
        """
        from mgclust import plots

        if sample is None or result.labels is None:
            return {}
        labels = np.asarray(result.labels)
        faint = self.faint(result, sample.index)
        names = result.source.get("columns")
        ax = plots.scatter(
            sample.rows, labels[sample.index], sample.centers, halo=faint, total=len(labels), feature_names=names
        )
        return {"scatter": ax}

    def tables(self, result: Result) -> list[Table]:
        """Make the tables of the report: by default one, with the size and the centre of each cluster.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        list of Table
            Empty if there are no clusters.
        """
        from mgclust import plots

        sizes = result.cluster_sizes
        if not len(sizes):
            return []
        # The last clusters have no entry in `cluster_sizes` if they have no rows.
        sizes = np.pad(sizes, (0, max(0, len(result.arrays.get("cluster_centers", ())) - len(sizes))))
        columns: dict[str, Iterable[Any]] = {
            "cluster": range(len(sizes)),
            "rows": sizes.tolist(),
            "share": shares(sizes, sizes.sum()),
        }
        centers = result.arrays.get("centers")
        if centers is not None and len(centers) == len(sizes):
            columns["centre (row)"] = np.asarray(centers).tolist()
        columns.update(self.columns(result, sizes))
        rows = list(zip(*columns.values(), strict=True))
        return [Table(f"{len(sizes):,} clusters", list(columns), rows, plots.cluster_colors(len(sizes)))]

    def all_tables(self, result: Result, colors: np.ndarray | None = None) -> list[Table]:
        """Make the tables of the report: the tables of the method, and the comparison with an atlas.

        Parameters
        ----------
        result : Result
            Result of the method.
        colors : ndarray of shape (n_clusters, 3), float, optional
            Red, green and blue from 0 to 1 of each cluster in the comparison with an atlas. By default,
            `mgclust.plots.cluster_colors`.

        Returns
        -------
        list of Table
        """
        if "atlas_dice" not in result.arrays:
            return self.tables(result)
        from mgclust import plots

        index, names, dice = (np.asarray(result.arrays[f"atlas_{name}"]).tolist() for name in ("index", "name", "dice"))
        sizes = np.pad(result.cluster_sizes, (0, max(0, len(dice) - len(result.cluster_sizes)))).tolist()
        columns: dict[str, Iterable[Any]] = {
            "value in the label volume": range(1, len(dice) + 1),
            "rows": sizes,
            "value in the atlas": [each or "none" for each in index],
            "Dice coefficient": [f"{each:.3f}" for each in dice],
            "name in the atlas": names,
        }
        if not any(names):
            del columns["name in the atlas"]
        rows = list(zip(*columns.values(), strict=True))
        heading = "Label of the atlas with the largest overlap"
        if colors is None or len(colors) < len(dice):
            colors = plots.cluster_colors(len(dice))
        return [*self.tables(result), Table(heading, list(columns), rows, colors)]

    def columns(self, result: Result, sizes: np.ndarray) -> dict[str, Iterable[Any]]:
        """Return additional columns of the table of clusters, with one value per cluster.

        Parameters
        ----------
        result : Result
            Result of the method.
        sizes : ndarray of shape (n_clusters,), int
            Number of rows in each cluster.

        Returns
        -------
        dict of str to iterable
            Values of each column by its heading; empty by default.
        """
        return {}

    def summary(self, result: Result) -> list[tuple[str, str]]:
        """Return the summary that the command line prints, as pairs of a label and a text.

        Parameters
        ----------
        result : Result
            Result of the method.

        Returns
        -------
        list of (str, str)
            One pair per line.
        """
        sizes = result.cluster_sizes
        if not len(sizes):
            return []
        spread = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        return [("clusters", f"{len(sizes):,}, of {spread} {'nodes' if 'n_nodes' in result.source else 'rows'}")]


def sample_index(shape: tuple[int, int], most: int) -> np.ndarray:
    """Choose the rows of a sample; calls with equal arguments return the same rows.

    Parameters
    ----------
    shape : (int, int)
        Shape of the data set.
    most : int
        Maximum number of rows; less if the rows are wide.

    Returns
    -------
    ndarray of int
        Row numbers, ascending.
    """
    n, d = shape
    most = min(most, max(1000, SAMPLE_BYTES // (8 * d)))
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, size=most, replace=False))


def shares(sizes: np.ndarray, total: int) -> list[str]:
    """Write sizes as percentages of all rows."""
    return [f"{100 * size / total:.1f} %" for size in sizes]


def number_text(value: float) -> str:
    """Format a number with four significant digits; below a billion, with all digits before the decimal point.

    Parameters
    ----------
    value : float

    Returns
    -------
    str
    """
    if value == 0 or not 1e-3 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
