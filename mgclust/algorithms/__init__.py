"""The clustering methods, by their names on the command line."""

from mgclust.algorithms.base import Clusterer, Option
from mgclust.algorithms.density_peaks import DensityPeaks

__all__ = ["METHODS", "Clusterer", "DensityPeaks", "Option"]

METHODS: dict[str, type[Clusterer]] = {estimator.method: estimator for estimator in (DensityPeaks,)}
