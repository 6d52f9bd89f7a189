import networkx as nx

G = nx.karate_club_graph()
print([sorted(each) for each in nx.community.louvain_communities(G, seed=3)])  # with a seed: networkx's own
found = nx.community.louvain_communities(G)
print(type(found).__name__, type(found[0]).__name__, sum(map(len, found)), nx.community.modularity(G, found) > 0.41)
arcs = nx.gn_graph(60, seed=1)
found = nx.community.louvain_communities(arcs)
print(sum(map(len, found)), nx.community.modularity(arcs, found) > 0.65)
