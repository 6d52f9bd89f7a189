"""Graphs: sources of edges with the same small interface as sources of rows.

::

    open_graph(source)  (../graph.py)
      |-- arrays.py       NumPy, CuPy and Dask arrays
      |-- adjacency.py    SciPy matrices, and square arrays and data frames
      |-- frames.py       data frames and lists of pairs
      |-- libraries.py    networkx, igraph               network_files.py: .graphml and .gml, by networkx
      |-- numpy_files.py  .npy, .npz                     stored_array.py reads an array of such a file by rows
      |-- parquet.py      .parquet
      `-- text.py         edge_list.py, matrix_market.py, metis.py
                          text_chunks.py reads whole lines, edge_text.py parses them, node_names.py numbers the nodes

    edge_roles.py         finds the columns of nodes and weights of a table, in memory or in a file
    random_network.py     edges that are generated; each range of edges can be generated independently

Every source is a Graph (base.py), which is a Dataset whose rows are edges.
"""

from mgclust.data.graphs.base import Graph

__all__ = ["Graph"]
