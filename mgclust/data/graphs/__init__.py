"""Graphs: sources of edges behind the same small interface as sources of rows.

::

    open_graph(source)  (../graph.py)
      |-- arrays.py       NumPy, CuPy and Dask arrays
      |-- objects.py      networkx, igraph, SciPy, data frames, lists of pairs
      |-- numpy_files.py  .npy, .npz                     stored_array.py reads one array of them by rows
      |-- parquet.py      .parquet
      `-- text.py         edge_list.py, matrix_market.py, metis.py; text_chunks.py reads whole lines,
                          edge_text.py parses them, node_names.py numbers what they name
             all of them are a Graph  (base.py), which is a Dataset whose rows are edges
    random_network.py     edges that are made, any range of them by itself
"""

from mgclust.data.graphs.base import Graph

__all__ = ["Graph"]
