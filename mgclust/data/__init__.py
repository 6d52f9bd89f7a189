"""Sources of rows and of graphs: arrays, files and URLs behind one small interface.

::

    open_dataset(source)  (dataset.py)
      |-- arrays.py    NumPy, CuPy and Dask arrays, memory maps, DataFrames, lists
      |-- files.py     .npy, .npz, zarr                          Location: one local path or URL
      |-- tables.py    .csv, .tsv, Parquet
      `-- volumes.py   BOLD series: nifti.py and cifti.py read them, segmentation.py writes clusters back
             none takes more memory than its size can mean (inflation.py)
             all of them are a Dataset  (base.py): shape, dtype, read(start, stop)
             rows.py wraps one whose rows are standardised or detrended

    open_graph(source)    (graphs/)

Only NumPy is imported until a source needs more.
"""

from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graphs import Graph, open_graph

__all__ = ["Dataset", "Graph", "open_dataset", "open_graph"]
