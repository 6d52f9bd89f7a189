"""Sources of rows and of graphs: arrays, files and URLs behind one small interface.

::

    open_dataset(source)  (dataset.py)
      |-- arrays.py    NumPy, CuPy and Dask arrays, memory maps, DataFrames, lists
      |-- files.py     .npy, .npz, zarr                          Location: one local path or URL
      |-- tables.py    .csv, .tsv, Parquet
      `-- volumes.py   BOLD series: nifti.py and cifti.py read them, segmentation.py writes clusters back
             all of them are a Dataset  (base.py): shape, dtype, read(start, stop)
             rows.py wraps one whose rows are standardised or detrended

    open_graph(source)  (graphs.py)
      |-- graph_arrays.py   NumPy, CuPy and Dask arrays
      |-- graph_objects.py  networkx, igraph, SciPy, data frames, lists of pairs
      |-- graph_files.py    .npy, .npz                     stored_array.py reads one array of them by rows
      |-- graph_parquet.py  .parquet
      `-- graph_text.py     edge_list.py, matrix_market.py, metis.py; text_chunks.py reads whole lines,
                            edge_text.py parses them, node_names.py numbers what they name
             all of them are a Graph  (graph_base.py), which is a Dataset whose rows are edges
    random_network.py       edges that are made, any range of them by itself

Only NumPy is imported until a source needs more.
"""

from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graphs import Graph, open_graph

__all__ = ["Dataset", "Graph", "open_dataset", "open_graph"]
