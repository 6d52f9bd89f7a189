"""Parameters of parcellations, as the command line and the service offer them."""

from __future__ import annotations

from typing import Any, ClassVar

from mgclust.algorithms.declaration import Declaration
from mgclust.params import Boolean, Choice, Constraint, IntegerOf, Integers, Real
from mgclust.params.relations import Ignored

__all__ = ["ALGORITHMS", "CONNECTIVITIES", "ParcellationOptions"]

ALGORITHMS = ("ward", "communities", "affinity-propagation")
CONNECTIVITIES = (6, 18, 26)


class ParcellationOptions(Declaration):
    """Connected parcels of voxels with similar series, by merges, communities or exemplars; moves of borders."""

    method = "parcellation"
    opens = "series"
    constraints: ClassVar[dict[str, Constraint]] = {
        "n_parcels": Integers(at_least=1, help="Number of parcels, or several numbers to compare, such as 50,100,200."),
        "algorithm": Choice(
            *ALGORITHMS,
            help="ward: merge the two most similar neighbours; communities: modularity; affinity-propagation: "
            "exemplars among neighbours.",
        ),
        "refine": Boolean(help="Move voxels across borders to the neighbouring parcel to which they are more similar."),
        "compactness": Real(
            at_least=0,
            help="With refine: what a neighbour in the same parcel is worth, beside correlations from -1 to 1.",
        ),
        "connectivity": IntegerOf(
            *CONNECTIVITIES,
            help="Neighbours of a voxel: 6 (faces), 18 (faces, edges) or 26 (corners too).",
            remedy="give the number of neighbours of a voxel",
        ),
        "evaluate": Boolean(help="Compare the numbers of parcels between halves of the series; always with several."),
        "group": Boolean(
            help="Find parcels of several subjects, by their mean similarity, and parcels of each subject."
        ),
    }

    ignored_when = (Ignored("compactness", {"refine": False}),)

    def __init__(
        self,
        n_parcels: Any = 200,
        *,
        algorithm: str = "ward",
        refine: bool = True,
        compactness: float = 0.01,
        connectivity: int = 26,
        evaluate: bool = False,
        group: bool = False,
        device: str = "auto",
        client: Any = "auto",
        n_workers: int | None = None,
        workers: Any = None,
        resources: dict[str, float] | None = None,
        retries: int = 0,
        memory_limit: int | str | None = None,
        random_state: Any = None,
        verbose: bool = False,
    ) -> None:
        self.n_parcels = n_parcels
        self.algorithm = algorithm
        self.refine = refine
        self.compactness = compactness
        self.connectivity = connectivity
        self.evaluate = evaluate
        self.group = group
        self.device = device
        self.client = client
        self.n_workers = n_workers
        self.workers = workers
        self.resources = resources
        self.retries = retries
        self.memory_limit = memory_limit
        self.random_state = random_state
        self.verbose = verbose
