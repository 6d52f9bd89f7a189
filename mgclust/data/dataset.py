"""`open_dataset` opens every source of rows."""

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
from mgclust.data.readers.preparation import Preparation
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
    dummy_volumes: int | None = None,
    smoothing_fwhm: float | None = None,
    low_pass: float | None = None,
    high_pass: float | None = None,
    t_r: float | None = None,
    confounds: Any = None,
    confound_names: Sequence[str] | str | None = None,
    fd_threshold: float | None = None,
    surfaces: Any = None,
    atlas: Any = None,
) -> Dataset:
    """Open rows for clustering, without reading more of them than needed.

    Values of tables are not checked here: the run that reads them rejects NaN and infinity. A volume is read when it is
    opened, and is rejected if the series of a voxel in the mask holds NaN or infinity.

    Parameters
    ----------
    source : array, DataFrame, list, path, URL or Dataset
        One of the following.

        - In memory: a NumPy, CuPy or Dask array, a memory map, a table of pandas, polars, pyarrow or Dask, or a nested
          list; also a sparse matrix of SciPy or CuPy, of which a few rows at a time are made dense.
        - A path, or a URL that fsspec supports (``http``, ``s3``, ``file``): .npy, .npz, .csv, .tsv, .parquet, .pq,
          .feather, .zarr, or a folder of .parquet. A .npz file needs an array ``X`` or only one array; its array ``y``
          becomes the labels. Text may be compressed (.gz, .bz2, .zst), or come from a named pipe or standard input
          (``-``).
        - A BOLD series: .nii or .nii.gz (4-D), .dtseries.nii, or an image of nibabel. Rows are the voxels, in C order
          of the grid (the order of ``volume[mask]``), or the grayordinates; features are the points in time. A list of
          files holds runs on one grid. They are joined in time; each run is detrended and standardised by itself.
    mask : path, nibabel image or array, optional
        Voxels of a NIfTI series that are rows: a 3-D NIfTI file, image or array on the same grid, which is 1 in these
        voxels and 0 elsewhere. By default, each voxel whose series has a value other than 0 is a row.
    standardize : {None, "zscore", "zscore_sample"}
        Scale each row to mean 0 and standard deviation 1 over its features. The variance is the sum of squares divided
        by the number n of features ("zscore") or by n - 1 ("zscore_sample", as in nilearn).
    detrend : bool
        Subtract from each row its least-squares line over its features, before standardising.
    delimiter : str, optional
        Separator of the fields of a .csv or .tsv file. By default it is guessed from the first line.
    columns : sequence of str or int, optional
        Columns of a table to read, by name or by position from 0. By default all columns. Integers are taken as names
        if each of them is the name of a column (such as a year), else as positions.
    constant : {None, "drop", "refuse"}
        What to do with voxels of a volume that do not change over time in at least one run. "drop" and None: leave them
        out; `mgclust.data.Dataset.warnings` states how many. "refuse": raise an InputError.
    header : bool, optional
        Whether the first line of a .csv or .tsv file names the columns. By default it does if its fields are not
        numbers, or are numbers that look like names: 0, 1, 2, ..., or years or wavelengths above other data. If both
        are possible, there is a warning.
    index : bool, optional
        Whether to leave out the first column of a table, because it numbers or names the rows. By default, it is
        left out with a warning in three cases: it has no name (or is called ``index`` or ``Unnamed: 0``); its values
        are 0, 1, 2, ... in any order; or it is called ``id`` and holds text or distinct whole numbers. If `columns` is
        given, the first column is read only if `columns` lists it.
    dummy_volumes : int, optional
        Number of volumes that are left out at the beginning of each run of a BOLD series.
    smoothing_fwhm : float, optional
        Full width at half maximum, in mm, of the Gaussian that smooths each volume of a NIfTI series.
    low_pass, high_pass : float, optional
        Cutoff frequencies in Hz. The series keep the frequencies between `high_pass` and `low_pass` (Butterworth
        filter of order 5, forwards and backwards). Both must be below ``0.5 / t_r``.
    t_r : float, optional
        Repetition time: seconds from one volume to the next, for the filter. By default, the file states it.
    confounds : path or sequence of paths, optional
        Table of confounds of each run, as fMRIPrep writes it (``_desc-confounds_timeseries.tsv``). "auto": the table
        that belongs to the name of the run, in the folder of the run.
    confound_names : sequence of str or str, optional
        Columns of the table that are regressed out of each row, such as ``["csf", "rot_*"]`` or ``"csf,rot_*"``. ``*``
        stands for any characters. ``n/a`` in the first volume is replaced by the value of the second volume.
    fd_threshold : float, optional
        Leave out the volumes whose framewise displacement in the table (column ``framewise_displacement``) is above
        this threshold in mm; `mgclust.data.Dataset.describe` lists them. If there is a filter, they are replaced by a
        cubic spline before it and left out after it.
    surfaces : path or sequence of paths, optional
        Surfaces of a CIFTI file, for `Parcellation`: a .surf.gii file for each structure that has vertices. A surface
        belongs to the structure that its metadata name (``AnatomicalStructurePrimary``). If they name none, its
        hemisphere is taken from its name (``hemi-L``, ``.L.``, ``lh`` or ``left``), else from its place in the list.
    atlas : path, nibabel image, array or sequence of paths, optional
        Labels of regions, with which clusters are compared: for a volume, a volume of labels on the same grid, as a
        path, image or array; for a CIFTI file, a .dlabel.nii file, or a .label.gii file for each hemisphere. 0 and
        negative values mean no label. Names of the labels come from the file, or from a BIDS table (.tsv) with the
        columns ``index`` and ``name``: the table that follows in the sequence, or that lies next to the volume with
        the same name. `mgclust.results.label_agreement.compare_with_atlas` lists the entries of the result.

    Returns
    -------
    Dataset
        The rows, as float32 or float64; see `mgclust.data.Dataset.read`.

    Raises
    ------
    InputError
        The source is not a table of real numbers, or cannot be read; or an option does not suit the source.

    Notes
    -----
    The steps are done in this order, for each run: dummy volumes, smoothing, detrending, filter, scrubbing, confounds
    (detrended and filtered like the series), standardising. nilearn does all of them except detrending and
    standardising without other steps; it must be installed (``pip install 'mgclust[fmri]'``).

    Examples
    --------
    >>> from mgclust import open_dataset
    >>> from mgclust.data import samples
    >>> digits = open_dataset(samples.path("pendigits"))
    >>> digits.shape, len(digits.labels)
    ((10992, 16), 10992)
    >>> rows = open_dataset([[1.0, 3.0]], standardize="zscore")
    >>> rows.read(0, 1)
    array([[-1.,  1.]])
    """
    if standardize not in (None, "zscore", "zscore_sample"):
        raise InputError(f"standardize={standardize!r} should be 'zscore', 'zscore_sample' or None.")
    if delimiter is not None and (not isinstance(delimiter, str) or len(delimiter) != 1):
        raise InputError(f"delimiter={delimiter!r} should be one character, such as ',' or '\\t'.")
    transform = RowTransform(bool(detrend), standardize is not None, standardize == "zscore_sample")
    steps = {
        "dummy_volumes": dummy_volumes, "smoothing_fwhm": smoothing_fwhm, "low_pass": low_pass, "high_pass": high_pass,
        "t_r": t_r, "confounds": confounds, "confound_names": confound_names, "fd_threshold": fd_threshold,
    }  # fmt: skip
    volumes = _volumes(source)
    if volumes:
        if any(value is not None for value in (delimiter, columns, header, index)):
            raise InputError("delimiter, columns, header and index apply to tables; leave them out for a volume.")
        return open_volumes(volumes, mask, transform, constant, Preparation.of(steps), surfaces, atlas)
    if is_path(source):
        reject_foreign(Location.of(source), "rows")
    for name, value in {"mask": mask, "constant": constant, **steps, "surfaces": surfaces, "atlas": atlas}.items():
        if value is not None:
            raise InputError(f"{name}=... applies to BOLD series (NIfTI, CIFTI); leave it out for a table.")
    for name, value in (("header", header), ("index", index)):
        if value not in (None, True, False):
            raise InputError(f"{name}={value!r} should be True, False or None.")
    if columns is not None and index:
        raise InputError("index=True and columns=... exclude each other; give one of them.")
    dataset = _open(source, Requested(delimiter, columns, header=header, index=index))
    if transform.detrend or transform.zscore:
        return TransformedDataset(dataset, transform)
    return dataset


def _volumes(source: Any) -> list[Location]:
    """Return the locations of the runs if `source` is a volume (a path or an image) or a list of volumes."""
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
                f"source names {len(source)} files, but {location.name} is not a volume; give one file, or several "
                "runs of a BOLD series (.nii, .nii.gz)."
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
            raise InputError("columns and index have no effect on an open dataset; give them when you open it.")
        return source
    mapped = open_memmap(source) if isinstance(source, np.memmap) and columns is None and index is None else None
    return mapped or open_array(source, columns, index)
