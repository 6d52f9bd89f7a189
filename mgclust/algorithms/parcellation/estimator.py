"""Estimator of parcellations: the graph of neighbours, checks of the parameters, and the result."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, Self

import numpy as np
from scipy.sparse.csgraph import connected_components
from sklearn.utils.validation import check_is_fitted

from mgclust.algorithms.base import Clusterer, Inputs, UnconvergedWarning, WarmUp
from mgclust.algorithms.parcellation.evaluation.null_parcels import neighbor_matrix
from mgclust.algorithms.parcellation.evaluation.number_choice import kept
from mgclust.algorithms.parcellation.options import ParcellationOptions
from mgclust.algorithms.parcellation.presentation import ParcellationPresentation
from mgclust.algorithms.parcellation.ranks import ParcellationOutput, estimate, parcellate
from mgclust.algorithms.parcellation.subject_series import (
    Runs,
    SubjectColumns,
    columns_of_runs,
    columns_of_subjects,
    first_halves,
)
from mgclust.base.errors import AmbiguousCountWarning, DataWarning, Doubt, InputError, WeakStructureWarning
from mgclust.data import Dataset
from mgclust.data.neighbors import (
    RowNeighbors,
    checked_coordinates,
    checked_neighbors,
    coordinates_of,
    neighbors_of,
)
from mgclust.data.readers.volumes import VolumeDataset
from mgclust.engine.spmd import Outcome, RunSpec, Work
from mgclust.kernels.parcels.borders import PASSES
from mgclust.outside.quoting import shortened
from mgclust.params import Integer
from mgclust.results.result import Result

__all__ = ["Parcellation"]

ONE_RANK = {"cpu": float("inf"), "cuda": float("inf")}  # after the rows are collected, rank 0 does all the work
DEVIATIONS = 4  # by so many standard deviations, the DCBC must exceed the mean of random parcels
ROUNDING = 1e-9  # smaller deviations of the DCBC of random parcels are rounding errors: all draws are equal
LEAST_POINTS = 4  # with fewer points in time, Fisher's variance of a correlation, 1 / (points - 3), has no value
LEAST_HALF = 10  # smallest number of points in time of a half; correlations of fewer cannot be compared


class Parcellation(ParcellationOptions, Clusterer):
    """Connected parcels of voxels with similar series, by merges, communities or exemplars; moves of borders.

    Every parcel is one connected piece of the graph of neighbours, and the number of parcels is exact. With several
    numbers of parcels, the halves of the series are parcelled as well, and their comparison chooses the number.

    Parameters
    ----------
    n_parcels : int or sequence of int, default=200
        Number of parcels, or several numbers to compare; as text "50,100,200". Each number must be at least the number
        of connected pieces of the graph, because no parcel spans two pieces.
    algorithm : {"ward", "communities", "affinity-propagation"}, default="ward"
        How parcels are found before their borders are refined.

        - "ward": begin with each voxel as a parcel, and always make the cheapest merge of two neighbouring parcels
          (Ward 1963). The cost of a merge is the increase of the sum of squared distances between standardised series
          and the mean of their parcel. The merges are those of scikit-learn's Ward clustering with connectivity.
        - "communities": find communities of the graph of neighbours, in which the edge of two voxels with correlation
          r has the weight r^4. The resolution is chosen so that their number is near the requested number of parcels;
          Ward's merges make the number exact.
        - "affinity-propagation": affinity propagation between neighbours, with the similarity -(1 - r) / 2, gives
          clusters that consist of a row and some of its neighbours (Frey and Dueck 2007). The mean series of these
          clusters are clustered again, level by level. The last level with at least the requested number of clusters
          is kept, and Ward's merges make the number exact.
    refine : bool, default=True
        Move voxels across borders, each to the neighbouring parcel with whose mean it correlates more, as long as both
        parcels stay connected, until no move makes the parcels more homogeneous (Dhillon and Modha 2001).
    compactness : float, default=0.01
        Weight of each neighbour in the same parcel when a move is judged, compared with correlations from -1 to 1.
        Larger values give smoother borders, which agree more between the halves of a series, but less homogeneous
        parcels. `compactness` has no effect without `refine`.
    connectivity : {6, 18, 26}, default=26
        Neighbours of a voxel: voxels that share a face (6), a face or an edge (18), or a face, an edge or a corner
        (26). It has no effect if `fit` is given the neighbours.
    evaluate : bool, optional
        Whether to compare the parcels of both halves of the series. By default, several numbers of parcels are
        compared, and a single number is not. False has no effect with several numbers, because the comparison chooses
        one of them. The first half of a series is the first half of each of its runs.
    group : bool, default=False
        Whether the rows are BOLD series of several subjects. The similarity of two voxels is then the mean over the
        subjects of the correlations of their series, and the halves are halves of the subjects: the first half of them,
        sorted by name, and the others. With `refine`, each subject also gets individual parcels: they begin as the
        group's parcels, and their borders move by the subject's own series, so that parcel p of a subject corresponds
        to parcel p of the group.

        The subject is the BIDS entity ``sub-`` in the name of a file, or else in the name of a folder. If no file
        states a subject, each file is a subject. Without `group`, files of several subjects are rejected.
    device : {"auto", "cpu", "cuda"}, default="auto"
        See `DensityPeaks`. Only communities and affinity propagation use a GPU.
    client, n_workers, workers, resources, retries, verbose
        See `DensityPeaks`. Rank 0 computes the parcels; the other ranks only read their part of the rows.
    memory_limit : int or str, optional
        Memory by which one rank may grow, in bytes or as text such as "4 GiB".
    random_state : int, Generator or RandomState, optional
        Seed of the communities, of the noise that breaks ties in affinity propagation, and of the random parcels of the
        evaluation. None means 0.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
        Parcel of each row, for the chosen number of parcels, from 0.
    n_clusters_ : int
        Chosen number of parcels.
    cluster_centers_indices_ : ndarray of shape (n_clusters,), int64
        For each parcel, the row of this parcel that correlates most with the mean of the parcel.
    homogeneity_ : float
        Mean correlation of two rows of the same parcel; parcels are weighted by their number of rows.
    evaluation_ : dict of str to ndarray, or None
        Scores of each number of parcels, if they were evaluated: see
        `mgclust.algorithms.parcellation.evaluation.number_choice.evaluate`, without the prefix ``scan_``.
    subjects_ : list of str, or None
        Names of the subjects of a group, in the order of the columns of `individual_labels_`.
    individual_labels_ : ndarray of shape (n_samples, n_subjects), int32, or None
        Parcels of each subject of a group, for the chosen number of parcels; None without `group` or `refine`.
    individual_scores_ : dict of str to ndarray of shape (n_subjects,), or None
        Scores of the subjects' parcels: see
        ``mgclust.algorithms.parcellation.individual_parcels.IndividualParcels``, without the prefix ``subject_``.
    timings_, result_, n_features_in_
        See `DensityPeaks`.

    See Also
    --------
    AdaptiveAffinityPropagation : Finds the number of clusters itself; its clusters need not be connected.

    References
    ----------
    J. H. Ward, Hierarchical grouping to optimize an objective function, J. Am. Stat. Assoc. 58:236-244, 1963.
    B. J. Frey, D. Dueck, Clustering by passing messages between data points, Science 315:972-976, 2007.
    I. S. Dhillon, D. S. Modha, Concept decompositions for large sparse text data using clustering, Machine Learning
    42:143-175, 2001.
    D. Zhi, M. King, C. R. Hernandez-Castillo, J. Diedrichsen, Evaluating brain parcellations using the
    distance-controlled boundary coefficient, Human Brain Mapping 43:3706-3720, 2022.

    Examples
    --------
    >>> import numpy as np
    >>> from mgclust import Parcellation
    >>> series = np.repeat(np.random.default_rng(0).normal(size=(3, 40)), 4, axis=0)  # 12 voxels in a line
    >>> line = [(i, i + 1) for i in range(11)]
    >>> Parcellation(3, client=None).fit(series, neighbors=line).labels_.tolist()
    [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2]
    """

    presentation = ParcellationPresentation()

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """See `mgclust.algorithms.Method.warm_ups`."""
        return (WarmUp((3000, 40), {"n_parcels": [20, 40]}, seconds=2),)

    _checksums: dict[str, Any]
    _neighbors: Any = None  # arguments of `fit`, which are kept only during a fit
    _coordinates: Any = None

    def fit(self, X: Any, y: Any = None, *, neighbors: Any = None, coordinates: Any = None) -> Self:
        """Find parcels of the rows of `X`.

        Parameters
        ----------
        X : path, array of shape (n_samples, n_features) or Dataset
            A BOLD series that `open_dataset` has opened with its mask or, for a CIFTI file, with its surfaces; or
            other rows if `neighbors` is given.
        y : ignored
            Not used; exists for compatibility with scikit-learn.
        neighbors : sparse matrix of shape (n_samples, n_samples), or int array of shape (n_edges, 2), optional
            Pairs of rows that are neighbours, in the form that `mgclust.data.neighbors.checked_neighbors` takes. By
            default, voxels of a BOLD series are neighbours if they touch (see `connectivity`), and vertices are
            neighbours if an edge of their surface joins them. The diagnostics of `result_` have a checksum of a given
            graph.
        coordinates : array of shape (n_samples, 3), optional
            Coordinates x, y and z of each row, in mm. The evaluation needs them. By default, they are the coordinates
            of the voxels or vertices of a BOLD series.

        Returns
        -------
        self
            The fitted estimator.

        Raises
        ------
        InputError
            The neighbours of the rows are unknown, an evaluation needs their coordinates, a number of parcels is not
            possible with their graph, or the number of subjects does not suit `group`.
        """
        self._neighbors, self._coordinates = neighbors, coordinates
        try:
            return self._fit(X)
        finally:
            del self._neighbors, self._coordinates

    def labels_for(self, k: int) -> Any:
        """Return the labels for one of the fitted numbers of parcels.

        Parameters
        ----------
        k : int
            Number of parcels; must be in `n_parcels`.

        Returns
        -------
        ndarray or Dask array of shape (n_samples,), int32
            Parcel of each row.

        Raises
        ------
        InputError
            `n_parcels` does not contain k.
        """
        check_is_fitted(self, "labels_")
        k = Integer(at_least=1).check("k", k)
        if k not in self._numbers:
            raise InputError(f"k={k} should be one of the fitted numbers of parcels: {list(self._numbers)}.")
        return self._candidates[:, self._numbers.index(k)].copy()

    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        dataset, numbers = inputs.dataset, parameters["n_parcels"]
        subjects = columns_of_subjects(dataset, parameters["group"])
        graph = self._graph(dataset, parameters["connectivity"])
        n, t = dataset.shape
        pieces, piece = connected_components(neighbor_matrix(*graph), directed=False)
        points = {dataset.name: t}
        if subjects is not None:
            points = {name: sum(stop - start for start, stop in own) for name, own in subjects.items()}
        for name, count in points.items():
            if count < LEAST_POINTS:
                raise InputError(
                    f"{name} should have >= {LEAST_POINTS} points in time, not {count}, because correlations of fewer "
                    "points are arbitrary; give longer series."
                )
        if numbers[-1] > n:
            raise InputError(f"n_parcels={numbers[-1]} should be <= {n}, the number of rows; request fewer parcels.")
        if numbers[0] < pieces:
            masked = isinstance(dataset, VolumeDataset) and dataset.kind == "nifti"
            raise InputError(
                f"n_parcels={numbers[0]} should be >= {pieces}: the rows are {pieces} pieces without a connection, the "
                f"smallest of {int(np.bincount(piece).min())} row(s); request more parcels"
                f"{', or give a mask of fewer pieces' if masked else ''}."
            )
        evaluated = parameters["evaluate"] or len(numbers) > 1
        runs = columns_of_runs(dataset)
        if evaluated:
            _check_lengths(runs, subjects)
        places = None if self._coordinates is None else checked_coordinates(self._coordinates, n)
        self._checksums = {}  # what identifies the arguments of `fit`
        if self._neighbors is not None:
            self._checksums["neighbors"] = {"pairs": len(graph.columns) // 2, "sha256": _sha256(*graph)}
        if places is not None:
            self._checksums["coordinates"] = {"sha256": _sha256(places)}
        arguments = {
            "numbers": numbers,
            "algorithm": parameters["algorithm"],
            "compactness": parameters["compactness"] if parameters["refine"] else None,
            "evaluated": evaluated,
            "starts": graph.starts,
            "columns": graph.columns,
            "coordinates": (_coordinates(dataset) if places is None else places) if evaluated else None,
            "runs": runs,
            "subjects": subjects,
            "seed": parameters["random_state"],
        }
        need = partial(
            estimate,
            entries=len(graph.columns),
            algorithm=parameters["algorithm"],
            evaluated=evaluated,
            n_subjects=len(subjects or ()),
            count=len(numbers),
        )
        return RunSpec(parcellate, arguments, need, "float32", metric="correlation", work=Work(n, "rows", ONE_RANK))

    def _graph(self, dataset: Dataset, connectivity: int) -> RowNeighbors:
        if self._neighbors is not None:
            return checked_neighbors(self._neighbors, dataset.shape[0])
        if not isinstance(dataset, VolumeDataset):
            raise InputError(
                f"{dataset.name} holds rows without places, so their neighbours are unknown; give a BOLD series "
                "(.nii or .nii.gz) with its mask or, in Python, fit(X, neighbors=...)."
            )
        return neighbors_of(dataset, connectivity)

    def _warnings_of(self, dataset: Dataset) -> list[str]:
        """See `Method`; a parcellation never joins the subjects as one series."""
        joined = dataset.joined_subjects if isinstance(dataset, VolumeDataset) else []
        return [text for text in dataset.warnings if text not in joined]

    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        value: ParcellationOutput = outcome.value
        table = value.evaluation
        self._numbers, self._candidates = value.numbers, outcome.arrays["candidates"]
        at = value.chosen
        self.n_clusters_ = value.numbers[at]
        self.labels_ = self._candidates[:, at].copy()
        self.cluster_centers_indices_, self.homogeneity_ = value.centers[at], value.homogeneity[at]
        self.evaluation_ = None if table is None else {name[5:]: column for name, column in table.items()}
        arrays: dict[str, Any] = {"centers": self.cluster_centers_indices_}
        if len(value.numbers) > 1:
            arrays |= {"candidates": self._candidates, "candidate_centers": np.concatenate(value.centers)}
        arrays |= table or {}
        if value.random_dcbc is not None:
            arrays["random_dcbc"] = value.random_dcbc
        diagnostics: dict[str, Any] = {"passes": value.passes[at], "unconverged_levels": value.unconverged}
        diagnostics |= self._checksums
        self.subjects_ = self.individual_labels_ = self.individual_scores_ = None
        if frame["parameters"]["group"] and isinstance(inputs.dataset, VolumeDataset):
            self.subjects_ = diagnostics["subjects"] = list(inputs.dataset.runs_of_subjects())
        warnings = _doubts(value, inputs.dataset.shape[0], self.subjects_ or [])
        if value.individual is not None:
            self.individual_labels_ = outcome.arrays["individual_labels"]
            self.individual_scores_ = {name[8:]: scores for name, scores in value.individual.scores.items()}
            arrays |= {"individual_labels": self.individual_labels_, **value.individual.scores}
            warnings += _individual_doubts(value.individual.passes, diagnostics["subjects"])
        scores = {"n_clusters": self.n_clusters_, "homogeneity": self.homogeneity_}
        if self.evaluation_ is not None:
            scores |= {name: float(self.evaluation_[name][at]) for name in ("held_out", "dcbc", "split_half_ari")}
        return Result(
            labels=self.labels_,
            arrays=arrays,
            scores=scores,
            diagnostics=diagnostics,
            warnings=warnings,
            **frame,
        )


def _doubts(value: ParcellationOutput, n: int, names: list[str]) -> list[Doubt]:
    """Return doubts about the series, the moves and the chosen number of parcels; `names` are those of the subjects."""
    doubts = [
        Doubt(
            f"{len(same)} subjects have equal series ({shortened(', '.join(names[at] for at in same), 60)}), so one "
            f"subject counts {len(same)} times; give each subject its own files.",
            DataWarning,
        )
        for same in value.equal_subjects
    ]
    doubts += [
        Doubt(f"the borders of {k} parcels still moved after {PASSES} passes; raise compactness.", UnconvergedWarning)
        for k, passes in zip(value.numbers, value.passes, strict=True)
        if passes == PASSES
    ]
    if value.n_constant:
        text = (
            f"{value.n_constant} of {n} series are constant, so they correlate with no series and their parcels "
            "are arbitrary; leave them out."
        )
        doubts.append(Doubt(text, DataWarning))
    if value.evaluation is None or value.random_dcbc is None:
        return doubts
    return doubts + _evidence_doubts(value, value.evaluation, value.random_dcbc)


def _evidence_doubts(value: ParcellationOutput, table: dict[str, np.ndarray], null: np.ndarray) -> list[Doubt]:
    """Return doubts about the chosen number; `null` has the DCBC of random parcels of this number."""
    at, k = value.chosen, value.numbers[value.chosen]
    found = float(table["scan_dcbc"][at])
    if not np.isfinite(found):
        text = f"n_parcels={k} has no DCBC: no pairs of rows within parcels, or none between; request another number."
        return [Doubt(text, AmbiguousCountWarning)]
    drawn = null[np.isfinite(null)]
    mean, deviation = (float(drawn.mean()), float(drawn.std(ddof=1))) if len(drawn) > 1 else (0.0, 0.0)
    if deviation < ROUNDING:
        text = (
            f"n_parcels={k} leaves no choice: all random parcels have the same DCBC, {mean:.4f}; request more parcels "
            "than the graph has pieces, and fewer than rows."
        )
        return [Doubt(text, AmbiguousCountWarning)]
    if not found > mean + DEVIATIONS * deviation:
        text = (
            f"the DCBC of {k} parcel{'s' * (k != 1)} is {found:.4f}, and random parcels have {mean:.4f} +- "
            f"{deviation:.4f}: chance may explain the parcels; use longer or smoothed series, or other numbers."
        )
        return [Doubt(text, WeakStructureWarning)]
    if not kept(table)[at]:
        highest = max(0.0, float(table["scan_random_dcbc"][at]), float(table["scan_coordinates_dcbc"][at]))
        text = (
            f"the DCBC of {k} parcel{'s' * (k != 1)}, {found:.4f}, does not exceed {highest:.4f}, the DCBC of "
            "parcels that ignore the series; use longer or smoothed series, or other numbers."
        )
        return [Doubt(text, WeakStructureWarning)]
    doubts = []
    agreed, by_place = float(table["scan_split_half_ari"][at]), float(table["scan_coordinates_split_half_ari"][at])
    if agreed < by_place:
        text = (
            f"the halves agree on {k} parcels (ARI {agreed:.2f}) less than compact parcels of the coordinates do "
            f"({by_place:.2f}): the number and the borders are uncertain; compare other numbers."
        )
        doubts.append(Doubt(text, AmbiguousCountWarning))
    if len(value.numbers) > 1 and k == value.numbers[-1]:
        text = (
            f"the largest number of n_parcels, {k}, was chosen, and larger numbers may be better; add larger numbers."
        )
        doubts.append(Doubt(text, AmbiguousCountWarning))
    return doubts


def _individual_doubts(passes: list[int], subjects: list[str]) -> list[Doubt]:
    """Return doubts about the moves of the subjects' parcels; `passes` has the passes of each subject."""
    names = [name for name, done in zip(subjects, passes, strict=True) if done == PASSES]
    if not names:
        return []
    text = (
        f"the borders of {len(names)} subject(s) ({shortened(', '.join(names), 60)}) still moved after {PASSES} "
        "passes; raise compactness."
    )
    return [Doubt(text, UnconvergedWarning)]


def _coordinates(dataset: Dataset) -> np.ndarray:
    """Return the coordinates of each row of a BOLD series, in mm."""
    if isinstance(dataset, VolumeDataset):
        return coordinates_of(dataset)
    raise InputError(
        f"{dataset.name} holds rows without coordinates, which an evaluation needs; give fit(..., coordinates=...) of "
        f"shape {(dataset.shape[0], 3)} in mm, or one number of parcels without evaluate."
    )


def _sha256(*arrays: np.ndarray) -> str:
    """Return the SHA-256 of the bytes of some arrays, one after the other, with the smallest byte of a number first."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()


def _check_lengths(runs: Runs, subjects: SubjectColumns | None) -> None:
    """Reject series that are too short to be compared in halves."""
    halves = {name: first_halves(own) for name, own in ({"": runs} if subjects is None else subjects).items()}
    whose = min(halves, key=halves.__getitem__)
    if halves[whose] < LEAST_HALF:
        raise InputError(
            f"half of the series{whose and f' of {whose}'} should have >= {LEAST_HALF} points in time to be compared "
            f"with the other half, not {halves[whose]}; give one number of parcels without evaluate, or longer series."
        )
