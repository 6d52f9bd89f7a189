"""Presentation of a method's results: `Presentation`, which each method extends in its own folder.

Command line, report, service and progress ask the method for its presentation and know no method by name. Modules of
presentations import no matplotlib before they draw: an estimator has its presentation as an attribute.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

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
SAMPLE_BYTES = 256 << 20  # of wide rows fewer are drawn


@dataclass(frozen=True)
class Sample:
    """Rows of a data set that stand for all of them in a picture.

    Attributes
    ----------
    index : ndarray of shape (m,), int
        Their row numbers, ascending.
    rows : ndarray of shape (m, n_features)
    centers : ndarray of shape (n_clusters, n_features), or None
        The centres, in label order.
    """

    index: np.ndarray
    rows: np.ndarray
    centers: np.ndarray | None


@dataclass(frozen=True)
class EdgeSample:
    """Edges of a graph that stand for all of them in a picture.

    Attributes
    ----------
    edges : ndarray of shape (m, 2) or (m, 3)
        Nodes, and weights where the graph has such.
    total : int
        Edges of the graph.
    """

    edges: np.ndarray
    total: int


class Score(NamedTuple):
    """A score in the reader's words, and how its value is written: by default with four significant digits.

    Parameters
    ----------
    name : str
        A few words.
    form : str
        A format of `format`.
    """

    name: str
    form: str = ""


class Fact(NamedTuple):
    """A diagnostic in the reader's words, and what its values mean.

    Parameters
    ----------
    name : str
        A few words.
    values : mapping
        From values to words; others are shown as they are.
    """

    name: str
    values: Mapping[Any, str] = {}


@dataclass(frozen=True)
class Table:
    """A table of the report.

    Attributes
    ----------
    heading : str
    columns : sequence of str
    rows : sequence of sequence
        Numbers and text; the report writes and escapes them.
    colors : ndarray of shape (n_rows, 3), optional
        Of the clusters that the rows are about.
    chosen : int, optional
        The row that stands out.
    words : bool
        The last column is text of any length.
    """

    heading: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    colors: np.ndarray | None = None
    chosen: int | None = None
    words: bool = False


class Axis(NamedTuple):
    """A quantity of rows by which centres are chosen, between limits that are parameters of the choice.

    Parameters
    ----------
    name : str
        Of the result's array, and of the limits: NAME_min and NAME_max.
    words : str
        A few words.
    """

    name: str
    words: str


class Presentation:
    """Presentation of a method's results; what a method does not replace is shown in general terms.

    Attributes
    ----------
    title : str
        Of the method; by default its name.
    scores : mapping of str to Score or None
        Own scores, and general ones that have another meaning here; None: not shown by itself.
    facts : mapping of str to Fact or None
        The same for diagnostics.
    captions : mapping of str to str
        Of own pictures.
    wide : tuple of str
        Pictures over the whole width of the page.
    progress : mapping of str to str
        Formats of the figures that come with the progress, in the order in which they are shown; others follow by name.
    decision_graph : tuple of two Axis
        Where other centres can be chosen as a box in a plane: what is drawn to the right and upwards. Else empty.
    references : mapping of str to str
        Publications, by their authors and year as `method_sentences` cites them.
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

    def title_of(self, method: str) -> str:
        """Title of the method of this name.

        Parameters
        ----------
        method : str
            Name in the registry.

        Returns
        -------
        str
        """
        return self.title or method.replace("-", " ").capitalize()

    def method_sentences(self, result: Result) -> list[str]:
        """Sentences for a paper: the method with citations, and the parameters that it found.

        Parameters
        ----------
        result : Result

        Returns
        -------
        list of str
            By default only the title of the method.
        """
        return [f"The method was {self.title_of(result.method)}."]

    def methods_text(self, result: Result, defaults: Mapping[str, Any]) -> str:
        """Write the paragraph that a paper needs, and the references that it cites.

        Parameters
        ----------
        result : Result
        defaults : mapping of str to object
            Defaults of the parameters, which the paragraph leaves out.
        """
        try:
            said = self.method_sentences(result)
        except KeyError:  # the result was not made by a run
            said = Presentation.method_sentences(self, result)
        return methods_text(result, said, self.references, defaults)

    def all_scores(self) -> dict[str, Score | None]:
        """Own scores and general ones."""
        return {
            "n_clusters": Score("clusters"),
            "n_iter": Score("iterations"),
            "ari": Score("agreement with the known truth (ARI, 1 = the same)", ".3f"),
            "nmi": Score("agreement with the known truth (NMI, 1 = the same)", ".3f"),
            "fowlkes_mallows": Score("agreement with the known truth (Fowlkes-Mallows, 1 = the same)", ".3f"),
            "purity": Score("share of rows of their cluster's most frequent true class", ".3f"),
            "error_rate": Score("share of rows beside the best one-to-one matching with the true classes", ".3f"),
            **self.scores,
        }

    def lead(self, result: Result) -> list[str]:
        """Text of the line below the title beside the size of the data and where they were computed.

        Parameters
        ----------
        result : Result

        Returns
        -------
        list of str
            Parts of the line; none by default.
        """
        return []

    def exactness(self, result: Result) -> list[tuple[str, Any]]:
        """Facts that lead the section on exactness; the diagnostics follow.

        Parameters
        ----------
        result : Result

        Returns
        -------
        list of (str, object)
            Names and values; none by default.
        """
        return []

    def sample(self, dataset: Dataset, result: Result, most: int) -> Sample | EdgeSample | None:
        """Read the rows that a picture shows: all, or an unchanging random choice, and those of the centres.

        Parameters
        ----------
        dataset : Dataset or Graph
            What was clustered.
        result : Result
        most : int
            Rows to choose at most.

        Returns
        -------
        Sample, EdgeSample or None
            None where the rows are no points.
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
        """Centres that the result holds as points, and not as row numbers alone.

        Parameters
        ----------
        result : Result

        Returns
        -------
        ndarray of shape (n_clusters, n_features), or None
            In label order; None, the default: there are none.
        """
        return None

    def faint(self, result: Result, index: np.ndarray) -> np.ndarray | None:
        """Mask of these rows that hardly belong to their cluster.

        Parameters
        ----------
        result : Result
        index : ndarray of shape (m,), int
            Row numbers.

        Returns
        -------
        ndarray of shape (m,), bool, or None
            True where a row is drawn faintly; None, the default: nowhere.
        """
        return None

    def draw(self, result: Result, sample: Any) -> Drawn:
        """Draw what suits the result, by name; without a sample only what needs none.

        Parameters
        ----------
        result : Result
        sample : Sample, EdgeSample or None
            What `sample` has read.

        Returns
        -------
        dict of str to matplotlib.axes.Axes
            By default a scatter plot of the rows in the colours of their clusters.
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
        """A row for each cluster: how large it is, where its centre is; no table without clusters.

        Parameters
        ----------
        result : Result

        Returns
        -------
        list of Table
        """
        from mgclust import plots

        sizes = result.cluster_sizes
        if not len(sizes):
            return []
        # A cluster may be the nearest of no row.
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

    def columns(self, result: Result, sizes: np.ndarray) -> dict[str, Iterable[Any]]:
        """More columns of the table of clusters, a value for each cluster.

        Parameters
        ----------
        result : Result
        sizes : ndarray of shape (n_clusters,), int
            Rows of each cluster.

        Returns
        -------
        dict of str to iterable
            Values by the column's heading; none by default.
        """
        return {}

    def summary(self, result: Result) -> list[tuple[str, str]]:
        """Lines of the command line, each a word and what it says.

        Parameters
        ----------
        result : Result

        Returns
        -------
        list of (str, str)
        """
        sizes = result.cluster_sizes
        if not len(sizes):
            return []
        spread = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        return [("clusters", f"{len(sizes):,}, of {spread} {'nodes' if 'n_nodes' in result.source else 'rows'}")]


def sample_index(shape: tuple[int, int], most: int) -> np.ndarray:
    """The rows that stand for all: the same ones whenever they are asked for.

    Parameters
    ----------
    shape : (int, int)
        Of the data set.
    most : int
        Rows to choose at most; fewer where rows are wide.

    Returns
    -------
    ndarray of int
        Row numbers, ascending.
    """
    n, d = shape
    most = min(most, max(1000, SAMPLE_BYTES // (8 * d)))
    return np.arange(n) if n <= most else np.sort(np.random.default_rng(0).choice(n, size=most, replace=False))


def shares(sizes: np.ndarray, total: int) -> list[str]:
    """Sizes in percent of all rows."""
    return [f"{100 * size / total:.1f} %" for size in sizes]


def number_text(value: float) -> str:
    """Write with four significant digits, and all digits before the point while they are few."""
    if value == 0 or not 1e-3 <= abs(value) < 1e9:
        return f"{value:.4g}"
    return f"{value:,.{max(0, 3 - math.floor(math.log10(abs(value))))}f}"
