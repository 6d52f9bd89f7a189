import random

import igraph

graph = igraph.Graph.Famous("Zachary")
merges = graph.community_fastgreedy()
print(merges.optimal_count, merges.as_clustering().membership, len(merges.as_clustering(5)), len(merges.merges))
print(round(graph.community_leiden("modularity").modularity, 2))
random.seed(1)
print(graph.community_leiden(resolution=0.1).sizes())
