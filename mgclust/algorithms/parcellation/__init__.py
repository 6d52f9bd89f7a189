"""Parcels: connected clusters of voxels or vertices with similar series.

`options` declares the parameters, `estimator` checks them and publishes the result, and `ranks` computes. Ward's merges
and the moves across borders are in `mgclust.kernels.parcels`. `merge_cuts` cuts a list of merges, `voxel_communities`
finds communities of the graph of neighbours, and `exemplar_levels` finds exemplars in this graph by affinity
propagation. `parcel_graph` has the graph of the communities or exemplars, and `unit_rows` scales series. `evaluation`
compares several numbers of parcels by scores, and compares parcels with others that ignore the series.

The reference implementations of the tests compute in plain float64. `tests/oracles/parcels.py` has Ward's merges, the
levels of exemplars and the criterion of the moves, and `tests/oracles/parcel_evaluation.py` has the scores.
"""
