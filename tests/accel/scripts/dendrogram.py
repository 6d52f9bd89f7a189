import random

import igraph

graph = igraph.Graph.Famous("Zachary")
merges = graph.community_fastgreedy()
print(merges.optimal_count, merges.as_clustering().membership, len(merges.as_clustering(5)), len(merges.merges))
print(round(graph.community_leiden("modularity").modularity, 2))
graph.es["chapters"] = [1 + number % 3 for number in range(graph.ecount())]
for weights in (None, "chapters"):
    found = graph.community_leiden(weights=weights, resolution=0.1, n_iterations=10)
    listed = [1] * graph.ecount() if weights is None else graph.es[weights]
    inside = sum(weight for weight, crosses in zip(listed, found.crossing(), strict=True) if not crosses)
    quality = (2 * inside - 0.1 * sum(size * size for size in found.sizes())) / (2 * sum(listed))
    print(abs(found.quality - quality) < 1e-12, found.quality > 0.52)
random.seed(1)
print(graph.community_leiden(resolution=0.1, node_weights=[1] * 34).sizes())
