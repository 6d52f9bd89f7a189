"""Base classes of the methods: they check parameters, run on a cluster, and make the result.

A `Method` declares its parameters once, in the `constraints` of its `Declaration`. The constraints check values before
a run, and define the options of the command line; the values become part of the result. A `Clusterer` is a method that
finds clusters, and is also a scikit-learn estimator. Other methods, such as the silhouette, take clusters as input.
"""

from __future__ import annotations

import contextlib
import copy
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import validate_data

from mgclust import __version__
from mgclust.algorithms.common.atlas_comparison import with_atlas
from mgclust.algorithms.common.scikit_learn import BaseEstimator, ClusterMixin
from mgclust.algorithms.declaration import Declaration
from mgclust.algorithms.presentation import Presentation
from mgclust.base.dask_arrays import unannotated
from mgclust.base.errors import (
    ClusteringWarning,
    DataWarning,
    DegenerateClustersWarning,
    Doubt,
    InputError,
    ParameterWarning,
    warn_caller,
)
from mgclust.base.progress import ProgressLine, worded
from mgclust.data import Dataset, open_dataset
from mgclust.engine.checkpoint import CheckpointConfig
from mgclust.engine.dask.cluster import connect
from mgclust.engine.partition import Partition
from mgclust.engine.spmd import Outcome, RunSpec, Work, run
from mgclust.outside.quoting import shortened
from mgclust.params import check_parameters
from mgclust.params.relations import ignored_parameters
from mgclust.results.result import Result
from mgclust.results.versions import installed_versions

if TYPE_CHECKING:
    from mgclust.algorithms.common.weights import RowWeights

__all__ = ["Clusterer", "Inputs", "Method", "UnconvergedWarning", "WarmUp"]

Progress = Callable[[dict[str, Any]], None]
BLOCKS_OF_A_RANK = {"cpu": 1, "cuda": 1}  # a rank without a block has no rows
# Entries of `Dataset.describe` other than the content of the rows.
NAMES_OF_DATA = ("name", "kind", "labels", "files", "mask", "surfaces", "atlas", "atlas_sha256")


class UnconvergedWarning(ClusteringWarning, ConvergenceWarning):  # type: ignore[misc]
    """Warning that a fit ended before it converged; also a ``sklearn.exceptions.ConvergenceWarning``."""


@dataclass(frozen=True)
class WarmUp:
    """A small fit of generated rows for ``mgclust warmup``, to compile kernels that larger fits also use.

    Attributes
    ----------
    shape : tuple of (int, int)
        Shape of the rows. For a graph, the number of edges and 2.
    parameters : dict of str to object
        Parameters that differ from their defaults.
    seconds : float
        Approximate duration in seconds on one core if no kernel has been compiled yet. The longest fits start first.
    """

    shape: tuple[int, int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0


class Inputs(NamedTuple):
    """Inputs of a run in addition to its parameters.

    Attributes
    ----------
    dataset : mgclust.data.Dataset
        The rows.
    provenance : bool
        Whether the result contains the fingerprint of the data.
    weights : mgclust.algorithms.common.weights.RowWeights or None
        Weights of the rows, for methods that take them.
    queries : mgclust.data.Dataset or None
        Rows to compare with the rows of the data set, for methods that take them.
    """

    dataset: Dataset
    provenance: bool = True
    weights: RowWeights | None = None
    queries: Dataset | None = None


class Method(Declaration, BaseEstimator):
    """Base class of all methods, with everything that methods have in common.

    A method is derived from this class and from its declaration. It sets `presentation`, which shows its results, and
    implements `_run_spec` and `_publish`. `warm_ups` returns small fits that compile its kernels.
    """

    presentation: ClassVar[Presentation] = Presentation()
    # The constructor of each method sets the following attributes.
    client: Any
    device: str
    n_workers: int | None
    verbose: bool

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """Return small fits that compile the kernels of the default parameters.

        This general version returns one fit. A method overrides it if the computation depends on the number of rows or
        features, or if a parameter has no default that suits generated rows.

        Returns
        -------
        tuple of WarmUp
        """
        return (WarmUp((3000, 2 if cls.opens == "graph" else 8)),)

    def __sklearn_clone__(self) -> Self:
        # A client cannot be copied, so the clone refers to the same client.
        twin = copy.copy(self)
        twin.client = None
        made: Self = BaseEstimator.__sklearn_clone__(twin)
        made.client = self.client
        return made

    def __getstate__(self) -> dict[str, Any]:
        # A client belongs to its process: pickle the scheduler's address instead, if other processes can reach it.
        state: dict[str, Any] = super().__getstate__()
        return {**state, "client": _portable(state["client"])} if "client" in state else state

    def fit_dataset(
        self,
        dataset: Dataset,
        on_progress: Progress | None = None,
        *,
        provenance: bool = True,
        checkpoint: CheckpointConfig | None = None,
    ) -> Result:
        """Run the method on an open data set, and return a result with all facts about the run.

        Parameters
        ----------
        dataset : Dataset
            The rows, or a `mgclust.data.Graph` for communities. Precomputed distances or similarities are a square
            matrix.
        on_progress : callable, optional
            Called a few times a second with a dict of ``stage``, ``fraction``, ``elapsed`` (seconds), ``stage_rate``
            and ``stage_eta`` (see `mgclust.base.progress.paced`). A method may add values such as ``n_clusters``;
            ``details`` contains these values as text.
        provenance : bool
            Whether to store a hash of the data in the result, which needs one more pass over the data.
        checkpoint : CheckpointConfig, optional
            Where and how often to save the state of the run. If an earlier run with the same data, parameters and kind
            of device saved a state there, the run resumes from this state. The result is the same. The state is not
            removed at the end: see `mgclust.engine.checkpoint.CheckpointConfig.remove`. A method that saves no state
            starts from the beginning.

        Returns
        -------
        Result
            The result, which is also kept as `result_`.

        Raises
        ------
        InputError
            If a parameter is invalid, or does not fit the data.

        See Also
        --------
        mgclust.open_dataset : Open arrays and files as a data set.
        mgclust.open_graph : Open a graph.
        """
        return self._run(Inputs(dataset, provenance), on_progress, checkpoint)

    @unannotated
    def _run(self, inputs: Inputs, on_progress: Progress | None, checkpoint: CheckpointConfig | None) -> Result:
        """Run the method as `fit_dataset` describes."""
        if checkpoint is not None and not isinstance(checkpoint, CheckpointConfig):
            raise InputError(
                f"checkpoint={shortened(repr(checkpoint))} should be a CheckpointConfig of mgclust.engine.checkpoint; "
                "give CheckpointConfig('DIR')."
            )
        dataset, parameters = inputs.dataset, self._checked()
        if "random_state" in parameters:  # drawn once and reported, so that the result can be reproduced
            parameters["random_state"] = self._seed(parameters["random_state"])
        if inputs.queries is None:  # with queries, a single row is enough
            self._check_shape(dataset)
        spec = replace(self._run_spec(parameters, inputs), memory_limit=parameters["memory_limit"])
        if spec.work is None and inputs.queries is None:
            blocks = Partition.plan(dataset.shape[0], 1).blocks
            spec = replace(spec, work=Work(blocks, "block(s) of rows", BLOCKS_OF_A_RANK))
        digest = None if checkpoint is None else dataset.fingerprint()
        shown = ProgressLine() if self.verbose and on_progress is None else contextlib.nullcontext(on_progress)
        with shown as receiver:
            report = worded(receiver, self.presentation.progress)
            with connect(**self._place(), on_progress=report, work=spec.work) as cluster:
                if checkpoint is not None:
                    checkpoint = checkpoint.of_run(self._facts(spec, dataset, digest, cluster.device))
                    spec = replace(spec, checkpoint=checkpoint)
                outcome = run(spec, self._rows_of_run(dataset), cluster, report, inputs.queries)
        self._keep_features(dataset)
        self.timings_ = outcome.timings
        if digest is None and inputs.provenance:
            digest = dataset.fingerprint()
        result = self._publish(outcome, self._frame(outcome, dataset, parameters, digest), inputs)
        result = with_atlas(result, dataset)
        void = ignored_parameters(self.ignored_when, parameters, self.defaults())
        said = [Doubt(text, DataWarning) for text in self._warnings_of(dataset)] + [
            Doubt(text, ParameterWarning) for text in void
        ]
        self.result_ = replace(result, warnings=[*said, *result.warnings, *_all_alone(result, parameters, dataset)])
        return self.result_

    def _keep_data(self, dataset: Dataset) -> None:
        """Keep the data, which are read again after the fit."""
        self._dataset, self._checksum = dataset, dataset.checksum()

    def _kept_data(self) -> Dataset:
        """Return the data of the fit; raise an error if they have changed since the fit."""
        if self._dataset.checksum() != self._checksum:
            raise InputError("X was changed after fit, but its old values are needed; fit again, or use fit(X.copy()).")
        return self._dataset

    def _keep_features(self, dataset: Dataset) -> None:
        """Keep the number and names of the features, to compare them with the features of other rows."""
        self.n_features_in_ = dataset.shape[1]
        self.__dict__.pop("feature_names_in_", None)  # an earlier fit may have set it
        if dataset.feature_names is not None:
            self.feature_names_in_ = np.array(dataset.feature_names, object)

    def _check_feature_names(self, X: Any, dataset: Dataset) -> None:
        """Reject rows whose features have other names or another order; warn if only one side has names."""
        names = dataset.feature_names
        if names is not None:
            import pyarrow as pa

            X = pa.table([pa.nulls(0)] * len(names), names)  # scikit-learn reads names only from tables in memory
        validate_data(self, X, reset=False, skip_check_array=True, ensure_2d=False)

    def _check_shape(self, dataset: Dataset) -> None:
        """Reject data with too few rows for any method, or of a shape that the method does not take."""
        n = dataset.shape[0]
        if n < 2:
            raise InputError(f"n_samples={n} should be >= 2, because the method compares rows; give more rows.")

    def _warnings_of(self, dataset: Dataset) -> list[str]:
        """Return the warnings about the data that concern this method: by default, all of them."""
        return list(dataset.warnings)

    def _rows_of_run(self, dataset: Dataset) -> Dataset:
        """Return the rows that the ranks read: by default, the rows of the data set."""
        return dataset

    def _checked(self) -> dict[str, Any]:
        return check_parameters({**self.constraints, **self.common}, self.get_params())

    def _facts(self, spec: RunSpec, dataset: Dataset, digest: str | None, device: str) -> dict[str, Any]:
        """Return the facts that determine the result; a run resumes from a checkpoint only if all facts are equal."""
        data = {name: fact for name, fact in dataset.describe().items() if name not in NAMES_OF_DATA}
        return {
            "mgclust": __version__,
            "method": self.method,
            "data": {**data, "sha256": digest},
            "device": device,
            "dtype": spec.dtype,
            **spec.arguments,
            # These fingerprints are equal for a Dask array and a NumPy array of the same values.
            **{name: open_dataset(array[:, None]).fingerprint() for name, array in spec.row_arguments.items()},
        }

    def _frame(
        self, outcome: Outcome, dataset: Dataset, parameters: dict[str, Any], digest: str | None
    ) -> dict[str, Any]:
        """Return the part of a Result that is the same for all methods."""
        left_out = (
            "client",
            "n_workers",
            "workers",
            "resources",
            "retries",
            "verbose",
            "copy",
        )  # they do not change the result; `hardware` has the number of ranks
        parameters = {name: value for name, value in parameters.items() if name not in left_out}
        return {
            "method": self.method,
            "parameters": parameters,
            "source": {**dataset.describe(), "sha256": digest},
            "timings": outcome.timings,
            "hardware": outcome.hardware,
            "versions": installed_versions(),
        }

    def _place(self) -> dict[str, Any]:
        """Return the arguments of `connect`, which determine where to compute."""
        return {
            name: getattr(self, name) for name in ("client", "device", "n_workers", "workers", "resources", "retries")
        }

    @staticmethod
    def _seed(random_state: Any) -> int:
        """Draw one integer for all ranks from `random_state`; None gives 0."""
        if random_state is None:
            return 0
        if isinstance(random_state, Integral):
            return int(random_state)
        draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
        return int(draw(2**31 - 1))

    @abstractmethod
    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        """Describe the run to the ranks, from checked parameters; reject parameters that do not fit the data."""

    @abstractmethod
    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        """Set the fitted attributes and return the result."""


class Clusterer(ClusterMixin, Method):
    """Base class of the estimators, the methods that find clusters.

    `fit` issues each warning of the result as a Python warning, in the category of its ``mgclust.base.errors.Doubt``.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            The rows: anything that `open_dataset` accepts, such as NumPy, CuPy or Dask arrays, data frames, and files.
            If `X` is a Dask array or data frame, and the run uses the caller's own Dask client, fitted attributes with
            one entry per row are Dask arrays: see the page on clusters.
        y : ignored
            Not used; exists for compatibility with scikit-learn.

        Returns
        -------
        self
            The fitted estimator.
        """
        return self._fit(X)

    def _fit(self, X: Any, **beside: Any) -> Self:
        """Fit rows, with further arguments for `fit_dataset`; warnings point to the caller."""
        result = self.fit_dataset(self._open(X), provenance=False, **beside)
        for text in result.warnings:
            warn_caller(text)
        return self

    def __sklearn_tags__(self) -> Any:
        """Declare that rows may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _open(self, X: Any) -> Dataset:
        """Open the argument of `fit`."""
        validate_data(self, X, skip_check_array=True, ensure_2d=False)  # checks only the names of features
        return open_dataset(X)

    def _open_more(self, X: Any) -> Dataset:
        """Open other rows, which must have the features of the fitted rows."""
        dataset = open_dataset(X)
        self._check_feature_names(X, dataset)
        if dataset.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {dataset.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        return dataset


def _all_alone(result: Result, parameters: dict[str, Any], dataset: Dataset) -> list[Doubt]:
    """Return a warning if the requested number of clusters equals the number of rows or nodes."""
    what, n = ("nodes", result.source["n_nodes"]) if "n_nodes" in result.source else ("rows", dataset.shape[0])
    if n != parameters.get("n_clusters") or n != result.scores["n_clusters"]:
        return []
    text = f"n_clusters={n} equals the number of {what}, so each of them is its own cluster; request fewer clusters."
    return [Doubt(text, DegenerateClustersWarning)]


def _portable(client: Any) -> Any:
    """Replace a client or a cluster object by a value that another process can use: its address, or "auto"."""
    if client is None or isinstance(client, str):
        return client
    scheduler = getattr(client, "scheduler", None)
    address = str(getattr(client, "scheduler_address", None) or getattr(scheduler, "address", ""))
    return address if "://" in address and not address.startswith("inproc://") else "auto"
