"""The public names, as type checkers see them: those of ``__init__.py``, which imports each when it is used."""

from mgclust import algorithms as algorithms
from mgclust import data as data
from mgclust import datasets as datasets
from mgclust import engine as engine
from mgclust import kernels as kernels
from mgclust import output as output
from mgclust import plots as plots
from mgclust.algorithms import AdaptiveAffinityPropagation as AdaptiveAffinityPropagation
from mgclust.algorithms import AffinityPropagation as AffinityPropagation
from mgclust.algorithms import Canopy as Canopy
from mgclust.algorithms import Communities as Communities
from mgclust.algorithms import DensityPeaks as DensityPeaks
from mgclust.algorithms import FastNewman as FastNewman
from mgclust.algorithms import FuzzyCMeans as FuzzyCMeans
from mgclust.algorithms.background import submit as submit
from mgclust.algorithms.communities.modularity import modularity as modularity
from mgclust.algorithms.nearest_neighbors.estimator import kneighbors_graph as kneighbors_graph
from mgclust.algorithms.nearest_neighbors.estimator import nearest_neighbors as nearest_neighbors
from mgclust.algorithms.silhouette.estimator import silhouette_samples as silhouette_samples
from mgclust.algorithms.silhouette.estimator import silhouette_score as silhouette_score
from mgclust.base.errors import ClusteringWarning as ClusteringWarning
from mgclust.base.errors import ClusterUnavailableError as ClusterUnavailableError
from mgclust.base.errors import CollectiveTimeout as CollectiveTimeout
from mgclust.base.errors import DeviceUnavailableError as DeviceUnavailableError
from mgclust.base.errors import InputError as InputError
from mgclust.base.errors import InsufficientMemoryError as InsufficientMemoryError
from mgclust.base.errors import MgclustError as MgclustError
from mgclust.base.errors import RunCancelled as RunCancelled
from mgclust.base.errors import RunFailed as RunFailed
from mgclust.base.errors import WorkerLost as WorkerLost
from mgclust.data import open_dataset as open_dataset
from mgclust.data import open_graph as open_graph
from mgclust.results.label_agreement import compare_labels as compare_labels
from mgclust.results.result import Result as Result
from mgclust.results.result import load_result as load_result
from mgclust.service.client import Service as Service

__version__: str
