"""Parcels: connected clusters of voxels or vertices by their series.

`options` declares the parameters, `estimator` checks them and publishes the result, and `ranks` computes. Ward's merges
and the moves across borders are in `mgclust.kernels.parcels`. `merge_cuts` cuts a list of merges, `voxel_communities`
finds communities of the graph of neighbours, `exemplar_levels` finds its exemplars by affinity propagation, and
`evaluation` compares numbers of parcels.

`tests/oracles/parcels.py` has Ward's merges, the levels of exemplars and the criterion of the moves in plain float64,
and `tests/oracles/parcel_evaluation.py` the scores.
"""
