"""Common base of the methods of mgclust: parameters, running on a cluster, and a result.

A `Method` declares its parameters once, in the `constraints` of its `Declaration`. They check values before a run and
make the options of the command line; the values go into a result. A `Clusterer` is a method that is a scikit-learn
estimator too: it finds the clusters that others, such as the silhouette, are given.
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
BLOCKS_OF_A_RANK = {"cpu": 1, "cuda": 1}  # others have no rows
NAMES_OF_DATA = ("name", "kind", "labels", "files", "mask")  # of what a data set says of itself: not its content


class UnconvergedWarning(ClusteringWarning, ConvergenceWarning):  # type: ignore[misc]
    """A fit ended before it had settled; also scikit-learn's warning of that."""


@dataclass(frozen=True)
class WarmUp:
    """A small fit of made rows, for ``mgclust warmup``: it compiles the kernels that larger ones use, too.

    Attributes
    ----------
    shape : tuple of (int, int)
        Of the rows; of a graph, edges and twice 1.
    parameters : dict of str to object
        Those that differ from their defaults.
    seconds : float
        About how long it takes on a core while nothing is compiled: the longest fits begin first.
    """

    shape: tuple[int, int]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    seconds: float = 1.0


class Inputs(NamedTuple):
    """Inputs of a run beside its parameters.

    Attributes
    ----------
    dataset : mgclust.data.Dataset
    provenance : bool
        Whether the result gets the fingerprint of the data.
    weights : mgclust.algorithms.common.weights.RowWeights or None
        Of rows, in methods that take them.
    queries : mgclust.data.Dataset or None
        Rows to compare with those of the data set, in methods that take them.
    """

    dataset: Dataset
    provenance: bool = True
    weights: RowWeights | None = None
    queries: Dataset | None = None


class Method(Declaration, BaseEstimator):
    """Base of all methods: everything but the method itself.

    A method is derived from its declaration as well, says in `presentation` how its results are shown, and
    implements `_run_spec` and `_publish`. `warm_ups` are small fits that compile its kernels.
    """

    presentation: ClassVar[Presentation] = Presentation()
    # The constructor of each method sets these.
    client: Any
    device: str
    n_workers: int | None
    verbose: bool

    @classmethod
    def warm_ups(cls) -> tuple[WarmUp, ...]:
        """Fits that compile what it uses by default; here one with default parameters.

        A method has its own where another path is taken with few features or many, few rows or many, or where a
        parameter has no default that fits.
        """
        return (WarmUp((3000, 2 if cls.opens == "graph" else 8)),)

    def __sklearn_clone__(self) -> Self:
        # A client cannot be copied, and is the same one in a copy of the parameters.
        twin = copy.copy(self)
        twin.client = None
        made: Self = BaseEstimator.__sklearn_clone__(twin)
        made.client = self.client
        return made

    def __getstate__(self) -> dict[str, Any]:
        # A client lives in its process: what is pickled has the address of its scheduler, if others can reach that.
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
        """Run on an open data set and say everything about the run.

        Parameters
        ----------
        dataset : Dataset
            A `mgclust.data.Graph` for communities; square where its rows are precomputed similarities.
        on_progress : callable, optional
            Called with a dict of ``stage``, ``fraction``, ``elapsed`` (seconds), ``stage_rate`` and ``stage_eta`` (see
            `mgclust.base.progress.paced`) a few times a second; a method may add figures, such as ``n_clusters``, which
            ``details`` holds in words.
        provenance : bool
            Hash the data, which reads them once more.
        checkpoint : CheckpointConfig, optional
            Save the state of the run now and then, and resume from what an earlier run with the same data and
            parameters saved there, on the same kind of device; the result is the same. Nothing is removed at the end:
            see `mgclust.engine.checkpoint.CheckpointConfig.remove`. A method that saves no state runs from its start.

        Returns
        -------
        Result
            Also kept as `result_`.
        """
        return self._run(Inputs(dataset, provenance), on_progress, checkpoint)

    @unannotated
    def _run(self, inputs: Inputs, on_progress: Progress | None, checkpoint: CheckpointConfig | None) -> Result:
        """Do what `fit_dataset` says."""
        if checkpoint is not None and not isinstance(checkpoint, CheckpointConfig):
            raise InputError(
                f"checkpoint={shortened(repr(checkpoint))} should be a CheckpointConfig of mgclust.engine.checkpoint, "
                "such as CheckpointConfig('DIR')."
            )
        dataset, parameters = inputs.dataset, self._checked()
        if "random_state" in parameters:  # drawn once, and said, so that the result can be had again
            parameters["random_state"] = self._seed(parameters["random_state"])
        if inputs.queries is None:  # beside other rows, a single one will do
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
        void = ignored_parameters(self.ignored_when, parameters, self.defaults())
        said = [Doubt(text, DataWarning) for text in dataset.warnings] + [
            Doubt(text, ParameterWarning) for text in void
        ]
        self.result_ = replace(result, warnings=[*said, *result.warnings, *_all_alone(result, parameters, dataset)])
        return self.result_

    def _keep_data(self, dataset: Dataset) -> None:
        """Keep data that are read again after the fit."""
        self._dataset, self._checksum = dataset, dataset.checksum()

    def _kept_data(self) -> Dataset:
        """The data of the fit, unless their owner has changed them since."""
        if self._dataset.checksum() != self._checksum:
            raise InputError("X was changed after fit, but its old values are needed; fit again, or use fit(X.copy()).")
        return self._dataset

    def _keep_features(self, dataset: Dataset) -> None:
        """Keep what other rows should agree with."""
        self.n_features_in_ = dataset.shape[1]
        self.__dict__.pop("feature_names_in_", None)  # of an earlier fit
        if dataset.feature_names is not None:
            self.feature_names_in_ = np.array(dataset.feature_names, object)

    def _check_feature_names(self, X: Any, dataset: Dataset) -> None:
        """Refuse other rows whose features have other names, or another order; warn where only some have names."""
        names = dataset.feature_names
        if names is not None:
            import pyarrow as pa

            X = pa.table([pa.nulls(0)] * len(names), names)  # scikit-learn knows names of tables in memory alone
        validate_data(self, X, reset=False, skip_check_array=True, ensure_2d=False)

    def _check_shape(self, dataset: Dataset) -> None:
        """Refuse data that are too few for any method, or that are not what the method takes."""
        n = dataset.shape[0]
        if n < 2:
            raise InputError(f"n_samples={n} should be >= 2: a single row leaves nothing to find; give more rows.")

    def _rows_of_run(self, dataset: Dataset) -> Dataset:
        """Rows that the ranks read: those of the data set."""
        return dataset

    def _checked(self) -> dict[str, Any]:
        return check_parameters({**self.constraints, **self.common}, self.get_params())

    def _facts(self, spec: RunSpec, dataset: Dataset, digest: str | None, device: str) -> dict[str, Any]:
        """Facts that the result depends on: a run resumes from a checkpoint where all of them are the same."""
        data = {name: fact for name, fact in dataset.describe().items() if name not in NAMES_OF_DATA}
        return {
            "mgclust": __version__,
            "method": self.method,
            "data": {**data, "sha256": digest},
            "device": device,
            "dtype": spec.dtype,
            **spec.arguments,
            # The same for a Dask array and for a NumPy array.
            **{name: open_dataset(array[:, None]).fingerprint() for name, array in spec.row_arguments.items()},
        }

    def _frame(
        self, outcome: Outcome, dataset: Dataset, parameters: dict[str, Any], digest: str | None
    ) -> dict[str, Any]:
        """The part of a Result that is the same for all methods."""
        left_out = (
            "client",
            "n_workers",
            "workers",
            "resources",
            "retries",
            "verbose",
            "copy",
        )  # `hardware` says on how many
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
        """Place to compute, as `connect` takes it."""
        return {
            name: getattr(self, name) for name in ("client", "device", "n_workers", "workers", "resources", "retries")
        }

    @staticmethod
    def _seed(random_state: Any) -> int:
        """One integer for all ranks from whatever `random_state` is."""
        if random_state is None:
            return 0
        if isinstance(random_state, Integral):
            return int(random_state)
        draw = random_state.integers if hasattr(random_state, "integers") else random_state.randint
        return int(draw(2**31 - 1))

    @abstractmethod
    def _run_spec(self, parameters: dict[str, Any], inputs: Inputs) -> RunSpec:
        """Describe what the ranks run, from checked parameters; refuse those that do not fit the data."""

    @abstractmethod
    def _publish(self, outcome: Outcome, frame: dict[str, Any], inputs: Inputs) -> Result:
        """Set the fitted attributes and make the Result."""


class Clusterer(ClusterMixin, Method):
    """Base of the estimators: methods that find clusters.

    `fit` makes a Python warning of each warning of the result, of the kind that the ``mgclust.base.errors.Doubt`` has.
    """

    def fit(self, X: Any, y: Any = None) -> Self:
        """Cluster the rows of `X`.

        Parameters
        ----------
        X : array of shape (n_samples, n_features), path, URL or Dataset
            Whatever `open_dataset` understands: NumPy, CuPy or Dask arrays, data frames, files. Of a Dask array or
            data frame on a cluster whose client is the caller's own, attributes with a row for each of its rows are
            Dask arrays: see the page on clusters.
        y : ignored

        Returns
        -------
        self
        """
        return self._fit(X)

    def _fit(self, X: Any, **beside: Any) -> Self:
        """Fit rows with what `fit_dataset` takes beside them; its caller is warned."""
        result = self.fit_dataset(self._open(X), provenance=False, **beside)
        for text in result.warnings:
            warn_caller(text)
        return self

    def __sklearn_tags__(self) -> Any:
        """Say that rows may be sparse."""
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def _open(self, X: Any) -> Dataset:
        """Open what `fit` was given."""
        validate_data(self, X, skip_check_array=True, ensure_2d=False)  # the names of its features alone
        return open_dataset(X)

    def _open_more(self, X: Any) -> Dataset:
        """Open other rows with the features that were fitted."""
        dataset = open_dataset(X)
        self._check_feature_names(X, dataset)
        if dataset.shape[1] != self.n_features_in_:
            raise InputError(
                f"X has {dataset.shape[1]} features, but {type(self).__name__} is expecting {self.n_features_in_} "
                "features as input."
            )
        return dataset


def _all_alone(result: Result, parameters: dict[str, Any], dataset: Dataset) -> list[Doubt]:
    """A warning where as many clusters were asked for as there are rows, or nodes."""
    what, n = ("nodes", result.source["n_nodes"]) if "n_nodes" in result.source else ("rows", dataset.shape[0])
    if n != parameters.get("n_clusters") or n != result.scores["n_clusters"]:
        return []
    text = f"n_clusters={n} is the number of {what}: each is a cluster of its own; ask for fewer clusters."
    return [Doubt(text, DegenerateClustersWarning)]


def _portable(client: Any) -> Any:
    """Replace a client or a cluster object by what another process can use: its address, or "auto"."""
    if client is None or isinstance(client, str):
        return client
    scheduler = getattr(client, "scheduler", None)
    address = str(getattr(client, "scheduler_address", None) or getattr(scheduler, "address", ""))
    return address if "://" in address and not address.startswith("inproc://") else "auto"
