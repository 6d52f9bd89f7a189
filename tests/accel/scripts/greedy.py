import networkx as nx

G = nx.les_miserables_graph()
for weight in (None, "weight"):
    found = nx.community.greedy_modularity_communities(G, weight=weight)
    print([sorted(each) for each in found], type(found[0]).__name__)
print([len(each) for each in nx.community.greedy_modularity_communities(G, cutoff=9, best_n=9)])
print(nx.community.greedy_modularity_communities(nx.DiGraph([(0, 1), (1, 2), (2, 0)])))
