"""The methods, by their names on the command line."""

from mgclust.algorithms.adaptive_affinity_propagation import AdaptiveAffinityPropagation
from mgclust.algorithms.affinity_propagation import AffinityPropagation
from mgclust.algorithms.base import Clusterer, Method, Option
from mgclust.algorithms.canopy import Canopy
from mgclust.algorithms.density_peaks import DensityPeaks
from mgclust.algorithms.fast_newman import FastNewman
from mgclust.algorithms.fuzzy_c_means import FuzzyCMeans
from mgclust.algorithms.modularity import modularity
from mgclust.algorithms.silhouette import Silhouette, silhouette_samples, silhouette_score

__all__ = [
    "METHODS",
    "AdaptiveAffinityPropagation",
    "AffinityPropagation",
    "Canopy",
    "Clusterer",
    "DensityPeaks",
    "FastNewman",
    "FuzzyCMeans",
    "Method",
    "Option",
    "Silhouette",
    "modularity",
    "silhouette_samples",
    "silhouette_score",
]

METHODS: dict[str, type[Method]] = {
    method.method: method
    for method in (
        DensityPeaks,
        AffinityPropagation,
        AdaptiveAffinityPropagation,
        Canopy,
        FuzzyCMeans,
        FastNewman,
        Silhouette,
    )
}
