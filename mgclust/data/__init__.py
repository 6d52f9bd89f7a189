"""Sources of rows and of graphs: arrays, files and URLs behind one small interface.

::

    open_dataset(source)  (dataset.py)
      |-- arrays.py    NumPy, CuPy and Dask arrays, memory maps, DataFrames, lists
      |-- sparse.py    sparse matrices of SciPy; `open_sparse` is for methods that use only the stored pairs
      |-- formats.py   lists for each suffix the functions that open a file as rows, graph or labels
      |-- location.py  one local path or URL: opened, hashed, watched for changes
      `-- readers/     numpy_files.py, zarr_files.py, tables.py (text and Parquet), volumes.py (BOLD series, read by
                       nifti.py and cifti.py, prepared by preparation.py with the tables of confounds.py, and labelled
                       by atlas.py). files.py has their base classes, options.py their options.

    Every source is a Dataset (base.py) with shape, dtype and read(start, stop).
      table_columns.py   finds the header and the index column of a table
      chunks.py          functions of tasks on chunks of Dask arrays, for workers that may have no mgclust
      rows.py            a dataset whose rows are standardised or detrended
      selected_rows.py   some rows of a dataset
      outside/inflation.py   limits the memory that a file can claim

    open_graph(source)    (graph.py, graphs/)
    read_labels(source)   (labels.py, label_files.py, and in readers: nifti.py, cifti.py, gifti.py)
    neighbors_of(dataset) (neighbors.py: which voxels or vertices touch; readers/gifti.py reads the meshes, and cifti.py
                          finds the mesh of each structure)
    samples/              small data sets of the package

Only NumPy is imported until a source needs another package.
"""

from mgclust.data.base import Dataset
from mgclust.data.dataset import open_dataset
from mgclust.data.graph import Graph, open_graph

__all__ = ["Dataset", "Graph", "open_dataset", "open_graph"]
