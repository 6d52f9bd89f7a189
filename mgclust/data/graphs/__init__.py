"""Graphs: sources of edges behind the same small interface as sources of rows.

::

    open_graph(source)  (../graph.py)
      |-- arrays.py       NumPy, CuPy and Dask arrays
      |-- adjacency.py    SciPy matrices, and square arrays and data frames
      |-- frames.py       data frames and lists of pairs; edge_roles.py finds nodes and weights among columns of any
      |                   table, files too
      |-- libraries.py    networkx, igraph               network_files.py: .graphml and .gml, by networkx
      |-- numpy_files.py  .npy, .npz                     stored_array.py reads one array of them by rows
      |-- parquet.py      .parquet
      `-- text.py         edge_list.py, matrix_market.py, metis.py; text_chunks.py reads whole lines,
                          edge_text.py parses them, node_names.py numbers what they name
             all of them are a Graph  (base.py), which is a Dataset whose rows are edges
    random_network.py     edges that are made, any range of them by itself
"""

from mgclust.data.graphs.base import Graph

__all__ = ["Graph"]
