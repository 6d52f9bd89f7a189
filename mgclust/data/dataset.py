"""`open_dataset`: one way in for every source of rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import numpy as np

from mgclust.base.dask_arrays import unannotated
from mgclust.base.errors import InputError
from mgclust.data.arrays import open_array
from mgclust.data.base import Dataset
from mgclust.data.files import InFile
from mgclust.data.formats import FORMATS, Format, at_hand, reject_foreign
from mgclust.data.images import image_location, is_image
from mgclust.data.location import Location, is_path
from mgclust.data.options import Requested
from mgclust.data.readers.nifti import is_volume
from mgclust.data.readers.numpy_files import open_memmap
from mgclust.data.readers.volumes import open_volumes
from mgclust.data.rows import RowTransform, TransformedDataset

__all__ = ["Dataset", "open_dataset"]


@unannotated
def open_dataset(
    source: Any,
    mask: Any = None,
    standardize: str | None = None,
    detrend: bool = False,
    delimiter: str | None = None,
    columns: Sequence[str | int] | str | None = None,
    constant: str | None = None,
    header: bool | None = None,
    index: bool | None = None,
) -> Dataset:
    """Open rows for clustering without reading more of them than needed.

    Parameters
    ----------
    source : array, DataFrame, list, path, URL or Dataset
        NumPy, CuPy or Dask array, memory map, table of pandas, polars, pyarrow or Dask, nested list, sparse matrix of
        SciPy or CuPy (of which some rows at a time become dense); an image of nibabel; or the path or URL
        (``http``, ``s3``, ``file``: whatever fsspec knows) of a .npy, .npz, .csv, .tsv, .parquet, .pq, .feather, .zarr,
        .nii or .nii.gz, or of a folder of .parquet. Text may be compressed (.gz, .bz2, .zst), or come from a named pipe
        or standard input (``-``). In a .npz the array ``X`` or the only one is taken and ``y`` becomes the labels. Of a
        4-D NIfTI file the voxels are rows, in C order of the grid (the order of ``volume[mask]``), and the points in
        time are features; of a CIFTI file (.dtseries.nii) the grayordinates are rows. A list of such files are runs on
        one grid: they are put one after the other in time, each detrended and standardised by itself.
    mask : path, nibabel image or array, optional
        Which voxels of a NIfTI series are rows: a 3-D NIfTI file, image or array on the same grid, 1 where they are and
        0 elsewhere. By default every voxel that is not 0 at all times.
    standardize : {None, "zscore"}
        "zscore": each row to mean 0 and standard deviation 1 over its features (divisor: their number).
    detrend : bool
        Subtract from each row its least-squares line over its features, before standardising.
    delimiter : str, optional
        Of a .csv or .tsv file; guessed from its first line.
    columns : sequence of str or int, optional
        Columns of a table by name or by position from 0; all by default. Integers are names if each of them names a
        column, as years do.
    constant : {None, "drop", "refuse"}
        Of a volume: what to do with voxels that do not change over time in at least one run. By default they are left
        out, and `mgclust.data.Dataset.warnings` says how many.
    header : bool, optional
        Whether the first line of a .csv or .tsv names the columns. By default it does if its fields are no numbers, or
        numbers that look like names: 0, 1, 2, ..., years or wavelengths above other data. A warning says so if the
        line may also be the other.
    index : bool, optional
        Whether the first column of a table is left out because it numbers or names the rows. By default a column that
        has no name (or ``index``, ``Unnamed: 0``), has the values 0, 1, 2, ... in any order, or is called ``id`` and
        holds text or different whole numbers, is left out with a warning. `columns` decides instead if it is given.

    Returns
    -------
    Dataset
        Values of tables are not looked at: NaN and infinity are found by the run that reads them. A volume is read
        when it is opened, and refused if a voxel of the mask holds such values.

    Raises
    ------
    InputError
        The source is no table of real numbers, or cannot be read.
    """
    if standardize not in (None, "zscore"):
        raise InputError(f"standardize={standardize!r} should be 'zscore' or None.")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise InputError(f"delimiter={delimiter!r} should be one character, such as ',' or '\\t'.")
    transform = RowTransform(detrend=bool(detrend), zscore=standardize == "zscore")
    volumes = _volumes(source)
    if volumes:
        if any(value is not None for value in (delimiter, columns, header, index)):
            raise InputError("delimiter, columns, header and index apply to tables; leave them out for a volume.")
        return open_volumes(volumes, mask, transform, constant)
    if is_path(source):
        reject_foreign(Location.of(source), "rows")
    for name, value in (("mask", mask), ("constant", constant)):
        if value is not None:
            raise InputError(f"{name}=... applies to volumes (NIfTI); leave it out for a table.")
    for name, value in (("header", header), ("index", index)):
        if value not in (None, True, False):
            raise InputError(f"{name}={value!r} should be True, False or None.")
    if columns is not None and index:
        raise InputError("index=True leaves out the first column, and columns=... names all that are read; give one.")
    dataset = _open(source, Requested(delimiter, columns, header=header, index=index))
    if transform.detrend or transform.zscore:
        return TransformedDataset(dataset, transform)
    return dataset


def _volumes(source: Any) -> list[Location]:
    """The runs, if `source` is a volume, by its path or in memory, or a list of such."""
    if is_path(source) or is_image(source):
        location = _location(source)
        return [location] if is_volume(location) or is_image(source) else []
    if not isinstance(source, (list, tuple)) or not source:
        return []
    if not all(is_path(part) or is_image(part) for part in source):
        return []
    if all(map(is_image, source)):
        return list(map(image_location, source))
    locations = list(map(_location, source))
    for location in locations:
        if not is_volume(location):
            raise InputError(
                f"source names {len(source)} files, and {location.name} is no volume; several files are runs of a BOLD "
                "series (.nii, .nii.gz): give one file."
            )
    return locations


def _location(source: Any) -> Location:
    return image_location(source) if is_image(source) else Location.of(source)


def _open(source: Any, asked: Requested) -> Dataset:
    location = Location.of(source) if is_path(source) else None
    for name, value in (("delimiter", asked.delimiter), ("header", asked.header)):
        if value is not None and not (location and _delimited(location)):
            raise InputError(f"{name}={value!r} applies to .csv and .tsv files; leave it out.")
    if location is None:
        return _open_object(source, asked.columns, asked.index)
    with location.reading(), at_hand(location, "rows") as (file, format):
        if (asked.columns is not None or asked.index is not None) and not format.table:
            raise InputError("columns and index apply to tables (DataFrame, csv, Parquet); leave them out.")
        assert format.rows is not None
        dataset = format.rows(file, asked)
        if location.once:
            cast(InFile, dataset).hold()
        return dataset


def _delimited(location: Location) -> bool:
    return location.once or FORMATS.get(location.suffix, Format()).delimited


def _open_object(source: Any, columns: Sequence[str | int] | str | None, index: bool | None) -> Dataset:
    if isinstance(source, Dataset):
        if columns is not None or index is not None:
            raise InputError("columns and index should be given where the dataset is opened first.")
        return source
    mapped = open_memmap(source) if isinstance(source, np.memmap) and columns is None and index is None else None
    return mapped or open_array(source, columns, index)
