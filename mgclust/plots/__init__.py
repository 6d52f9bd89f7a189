"""Pictures of results.

Every function takes a fitted estimator or its result, or the arrays that they hold. It draws on the axes it is given,
or makes its own figure, and returns the axes, which a notebook shows as the picture; the figure is ``ax.figure``.
Only matplotlib's object-oriented interface is used: no global state, no window, safe in a thread of a service. All
pictures of a result have the same colours for its clusters (`cluster_colors`); the service's page, which is dark on
demand, draws with colours of its own.

`clusters` has the decision graph and rows in the plane, `canopies`, `prominence` (of peaks), `silhouette`, `merges` (of
communities),
`iterations` (the objective), `validity` (of numbers of clusters), `adjacency` (of graphs) and `volumes` (slices of
voxels) what their names say; `style` and `sources` are shared.
"""

from mgclust.plots.adjacency import adjacency
from mgclust.plots.canopies import canopies
from mgclust.plots.clusters import decision_graph, scatter
from mgclust.plots.iterations import objective
from mgclust.plots.merges import dendrogram, modularity
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
    "objective",
    "png",
    "prominence",
    "scan",
    "scatter",
    "silhouettes",
    "validity",
]
