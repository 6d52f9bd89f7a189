"""Pictures of results.

Every function takes a fitted estimator or its result, or the arrays that they hold. It draws on the axes that are
passed, or makes a new figure, and returns the axes. A notebook shows the returned axes as a picture; the figure is
``ax.figure``. The functions use only the object-oriented interface of matplotlib, without global state and without
windows, so they may run in a thread of a service.

All pictures of a result have the same colours for its clusters (`cluster_colors`). Only the page of the service, which
can be dark, has its own colours.

Modules: `clusters` (decision graph, and rows in the plane), `canopies`, `prominence` (of density peaks), `silhouette`,
`merges` (of communities), `neighbors` (distances), `iterations` (objective), `validity` (indices against the number of
clusters), `parcels` (evaluation of parcels), `places` (colours of parcels), `adjacency`
(of graphs) and `volumes` (slices of voxels). `style` and `sources` are shared.
"""

from mgclust.plots.adjacency import adjacency
from mgclust.plots.canopies import canopies
from mgclust.plots.clusters import decision_graph, scatter
from mgclust.plots.iterations import objective
from mgclust.plots.merges import dendrogram, modularity
from mgclust.plots.neighbors import neighbor_distances
from mgclust.plots.parcels import parcel_evaluation
from mgclust.plots.places import parcel_colors
from mgclust.plots.prominence import prominence
from mgclust.plots.silhouette import scan, silhouettes
from mgclust.plots.style import MAX_POINTS, cluster_colors, png
from mgclust.plots.validity import validity
from mgclust.plots.volumes import label_slices

__all__ = [
    "MAX_POINTS",
    "adjacency",
    "canopies",
    "cluster_colors",
    "decision_graph",
    "dendrogram",
    "label_slices",
    "modularity",
    "neighbor_distances",
    "objective",
    "parcel_colors",
    "parcel_evaluation",
    "png",
    "prominence",
    "scan",
    "scatter",
    "silhouettes",
    "validity",
]
