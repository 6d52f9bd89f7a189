"""Sources of rows and of graphs: arrays, files and URLs behind one small interface.

::

    open_dataset(source)  (dataset.py)
      |-- arrays.py    NumPy, CuPy and Dask arrays, memory maps, DataFrames, lists
      |-- sparse.py    sparse matrices of SciPy, for methods that take some pairs alone (`open_sparse`)
      |-- formats.py   suffix -> what opens it, as rows, graph or labels
      |-- location.py  one local path or URL: opened, hashed, watched for changes
      `-- readers/     numpy_files.py, zarr_files.py, tables.py (text and Parquet), volumes.py (BOLD series, which
                       nifti.py and cifti.py read); files.py has their base classes, options.py their options
             none takes more memory than its size can mean (outside/inflation.py)
             table_columns.py finds the header and the index of a table
             all of them are a Dataset  (base.py): shape, dtype, read(start, stop)
             rows.py wraps one whose rows are standardised or detrended, selected_rows.py has some rows of one

    open_graph(source)    (graph.py, graphs/)
    read_labels(source)   (labels.py, label_files.py)
    samples/              small data sets of the package

Only NumPy is imported until a source needs more.
"""

from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graph import Graph, open_graph

__all__ = ["Dataset", "Graph", "open_dataset", "open_graph"]
