"""The clustering methods, and their declarations by the names on the command line.

Each method has its own folder. The methods share these modules:

- `declaration`: how a method declares its parameters;
- `base`: base classes of all methods;
- `presentation`: how results are shown, unless a method overrides it;
- `common`: computations that several methods use;
- `background`: fits in the background.

Estimators are derived from scikit-learn, which takes most of a second to import. So they are imported at first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mgclust.algorithms.affinity_propagation.adaptive import AdaptiveAffinityPropagation
    from mgclust.algorithms.affinity_propagation.estimator import AffinityPropagation
    from mgclust.algorithms.base import Clusterer, Method
    from mgclust.algorithms.canopy.estimator import Canopy
    from mgclust.algorithms.communities.estimator import Communities, FastNewman
    from mgclust.algorithms.communities.modularity import modularity
    from mgclust.algorithms.declaration import Declaration
    from mgclust.algorithms.density_peaks.estimator import DensityPeaks
    from mgclust.algorithms.fuzzy_c_means.estimator import FuzzyCMeans
    from mgclust.algorithms.nearest_neighbors.estimator import NearestNeighbors
    from mgclust.algorithms.parcellation.estimator import Parcellation
    from mgclust.algorithms.presentation import Presentation
    from mgclust.algorithms.silhouette.estimator import Silhouette, silhouette_samples, silhouette_score
    from mgclust.params import Option

    METHODS: dict[str, type[Method]]

__all__ = [
    "METHODS",
    "AdaptiveAffinityPropagation",
    "AffinityPropagation",
    "Canopy",
    "Clusterer",
    "Communities",
    "DensityPeaks",
    "FastNewman",
    "FuzzyCMeans",
    "Method",
    "NearestNeighbors",
    "Option",
    "Parcellation",
    "Presentation",
    "Silhouette",
    "declarations",
    "modularity",
    "presentation_of",
    "silhouette_samples",
    "silhouette_score",
]

# Module and class of each estimator. In the same folder, the module `options` has its declaration, and the module
# `presentation` has its presentation.
_METHODS = {
    "density-peaks": ("density_peaks.estimator", "DensityPeaks"),
    "affinity-propagation": ("affinity_propagation.estimator", "AffinityPropagation"),
    "adaptive-affinity-propagation": ("affinity_propagation.adaptive", "AdaptiveAffinityPropagation"),
    "canopy": ("canopy.estimator", "Canopy"),
    "fuzzy-c-means": ("fuzzy_c_means.estimator", "FuzzyCMeans"),
    "communities": ("communities.estimator", "Communities"),
    "fast-newman": ("communities.estimator", "FastNewman"),
    "parcellation": ("parcellation.estimator", "Parcellation"),
    "silhouette": ("silhouette.estimator", "Silhouette"),
    "nearest-neighbors": ("nearest_neighbors.estimator", "NearestNeighbors"),
}
_HOMES = {
    **{name: f"mgclust.algorithms.{home}" for home, name in _METHODS.values()},
    "Clusterer": "mgclust.algorithms.base",
    "Method": "mgclust.algorithms.base",
    "Option": "mgclust.params",
    "Presentation": "mgclust.algorithms.presentation",
    "modularity": "mgclust.algorithms.communities.modularity",
    "silhouette_samples": "mgclust.algorithms.silhouette.estimator",
    "silhouette_score": "mgclust.algorithms.silhouette.estimator",
}


def __getattr__(name: str) -> Any:
    if name == "METHODS":
        found: Any = {method: _load(*where) for method, where in _METHODS.items()}
    elif name in _HOMES:
        found = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'mgclust.algorithms' has no attribute {name!r}")
    globals()[name] = found
    return found


def _load(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"mgclust.algorithms.{module}"), name)


class _Declarations(Mapping[str, "type[Declaration]"]):
    """Declarations by the name of the method; each declaration is imported at first use."""

    def __getitem__(self, method: str) -> type[Declaration]:
        module, name = _METHODS[method]
        declared: type[Declaration] = _load(f"{module.partition('.')[0]}.options", f"{name}Options")
        return declared

    def __iter__(self) -> Iterator[str]:
        return iter(_METHODS)

    def __len__(self) -> int:
        return len(_METHODS)


def declarations() -> Mapping[str, type[Declaration]]:
    """Return the declarations of all methods.

    If the estimators have been imported, these are the estimators themselves, which are derived from the declarations.

    Returns
    -------
    mapping of str to type
        Declarations by the methods' names on the command line.
    """
    loaded: dict[str, type[Method]] | None = globals().get("METHODS")
    return _Declarations() if loaded is None else loaded


def presentation_of(method: str) -> Presentation:
    """Return the presentation of a method's results, without importing the estimators.

    Parameters
    ----------
    method : str
        Name of the method on the command line.

    Returns
    -------
    Presentation
        The presentation of the method, or the general presentation if no method has this name.
    """
    from mgclust.algorithms.presentation import Presentation

    loaded: dict[str, type[Method]] | None = globals().get("METHODS")
    if loaded is not None:
        return loaded[method].presentation if method in loaded else Presentation()
    if method not in _METHODS:
        return Presentation()
    module, name = _METHODS[method]
    found: Presentation = _load(f"{module.partition('.')[0]}.presentation", f"{name}Presentation")()
    return found
