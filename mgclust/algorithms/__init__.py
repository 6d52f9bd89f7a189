"""The methods, by their names on the command line.

A folder each; `base` is what they have in common, `presentation` how results are shown unless a method says otherwise,
`common` what several share.
"""

from mgclust.algorithms.affinity_propagation.adaptive import AdaptiveAffinityPropagation
from mgclust.algorithms.affinity_propagation.estimator import AffinityPropagation
from mgclust.algorithms.base import Clusterer, Method, Option
from mgclust.algorithms.canopy.estimator import Canopy
from mgclust.algorithms.communities.estimator import FastNewman
from mgclust.algorithms.communities.modularity import modularity
from mgclust.algorithms.density_peaks.estimator import DensityPeaks
from mgclust.algorithms.fuzzy_c_means.estimator import FuzzyCMeans
from mgclust.algorithms.nearest_neighbors.estimator import NearestNeighbors
from mgclust.algorithms.presentation import Presentation
from mgclust.algorithms.silhouette.estimator import Silhouette, silhouette_samples, silhouette_score

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
    "NearestNeighbors",
    "Option",
    "Presentation",
    "Silhouette",
    "modularity",
    "presentation_of",
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
        NearestNeighbors,
    )
}


def presentation_of(method: str) -> Presentation:
    """The presentation of a method's results.

    Parameters
    ----------
    method : str
        Name in the registry.

    Returns
    -------
    Presentation
        In general terms where there is no such method.
    """
    return METHODS[method].presentation if method in METHODS else Presentation()
