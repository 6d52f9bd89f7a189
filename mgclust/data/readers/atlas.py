"""Atlases: labels of voxels or grayordinates with names, to which the clusters of a BOLD series are compared."""

from __future__ import annotations

import csv
import io
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.images import is_image, volume_location
from mgclust.data.location import Location, listed_paths
from mgclust.data.readers.cifti import (
    brain_models,
    is_dlabel,
    labels_on_rows,
    matching_grayordinates,
    read_grayordinate_labels,
)
from mgclust.data.readers.gifti import is_gifti, label_name
from mgclust.data.readers.nifti import SeriesFile, is_volume, read_label_volume
from mgclust.outside.inflation import check_memory
from mgclust.outside.quoting import shortened

__all__ = ["Atlas", "atlas_locations", "read_atlas", "with_table"]

_TABLE = ".tsv"
_LONGEST_LINE = 2**20  # characters
_MOST_NAMES = 2**20
_VOXEL_BYTES = 60  # bytes of memory per voxel of the grid while labels are numbered
_COLUMNS = ("index", "name")  # of a BIDS table of labels
# BIDS entity that the name of a volume may have, but not the name of its table of labels.
_RESOLUTION = re.compile(r"_res-[A-Za-z0-9]+")


@dataclass(frozen=True, eq=False)
class Atlas:
    """Labels that an atlas gives to rows.

    Attributes
    ----------
    files : tuple of str
        Names of the files.
    sha256 : tuple of str
        SHA-256 of the bytes of each file.
    codes : ndarray of shape (n_samples,), int32
        Position in `keys` of the label of each row; -1 if the row has no label.
    keys : ndarray of shape (n_labels,), int64
        Value of each label in the files, ascending.
    names : tuple of str
        Name of each label; empty if the atlas does not name the label.
    """

    files: tuple[str, ...]
    sha256: tuple[str, ...]
    codes: np.ndarray
    keys: np.ndarray
    names: tuple[str, ...]

    def of_rows(self, chosen: np.ndarray, series: str) -> Atlas:
        """Return the atlas of some voxels or grayordinates.

        Parameters
        ----------
        chosen : ndarray of shape (n,), bool
            Mask of the rows.
        series : str
            Name of the series, for messages.

        Raises
        ------
        InputError
            None of these rows has a label.
        """
        codes = self.codes[chosen]
        if not (codes >= 0).any():
            raise InputError(
                f"atlas={self.files[0]!r} has no label at any of the {len(codes):,} rows of {series}; give an atlas of "
                "this part of the brain."
            )
        return replace(self, codes=codes)


def atlas_locations(atlas: Any, series: SeriesFile) -> list[Location]:
    """Return the files of the option `atlas`, with the table of names next to a volume.

    Parameters
    ----------
    atlas : path, image, array, sequence of paths, or str of paths separated by commas
        A volume of labels, as a path, an image of nibabel or an array on the grid of the series; or a .dlabel.nii file;
        or .label.gii files. A .tsv file with the names of the labels may follow. Otherwise, the table next to a volume
        is used that has the same name (also without its BIDS entity ``res``).
    series : SeriesFile
        The series.

    Raises
    ------
    InputError
        The option names no file of labels that suits the series, or several volumes.
    """
    paths = listed_paths(atlas)
    if paths is not None:
        given = with_table(paths)
    elif is_image(atlas) or (hasattr(atlas, "__array__") and series.kind == "nifti"):
        given = [volume_location(atlas, series.grid, "atlas")]
    else:
        raise InputError(f"atlas is a {type(atlas).__name__}; give the path of a file of labels.")
    labels = [each for each in given if each.suffix != _TABLE]
    if len(given) > len(labels) + 1 or not labels:
        raise InputError(
            f"atlas names {len(labels)} files of labels and {len(given) - len(labels)} tables of names (.tsv); give at "
            "least one file of labels, and at most one table."
        )
    for each in labels:
        _check_kind(each, series)
    if len(labels) > 1 and not all(map(is_gifti, labels)):
        raise InputError(
            f"atlas names {len(labels)} files of labels, such as {labels[1].name!r}; give one file, or one .label.gii "
            "file for each hemisphere."
        )
    return given


def with_table(paths: Sequence[Any]) -> list[Location]:
    """Return the locations of the files of an atlas, with the table next to a volume if there is only a volume.

    Parameters
    ----------
    paths : sequence of paths
        The files.
    """
    given = list(map(Location.of, paths))
    if len(given) > 1 or is_dlabel(given[0]) or not is_volume(given[0]):
        return given
    table = _table_next_to(given[0])
    return given if table is None else [*given, table]


def read_atlas(locations: Sequence[Location], series: SeriesFile) -> Atlas:
    """Read the labels of all voxels or grayordinates of a series.

    Labels of two files are the same label if their values and names are the same.

    Parameters
    ----------
    locations : sequence of Location
        The return value of `atlas_locations`.
    series : SeriesFile
        The series.

    Returns
    -------
    Atlas
        Its rows are the voxels in C order of the grid, or the grayordinates.

    Raises
    ------
    InputError
        A file is damaged, is on another grid or surface than the series, holds values that are not whole numbers, or
        holds no labels.
    """
    labels = [each for each in locations if each.suffix != _TABLE]
    check_memory(f"atlas={labels[0].name!r}", _VOXEL_BYTES * series.grid.size, "give a series on a smaller grid")
    tables = [_read_names(each) for each in locations if each.suffix == _TABLE]
    parts = [_labels_of(each, series) for each in labels]
    structures = [structure for structure, _, _ in parts if structure]
    if len(set(structures)) < len(structures):
        raise InputError(
            f"atlas: {labels[0].name} and another file are both of {structures[0]}; give one file for each hemisphere."
        )
    everywhere = np.full(series.grid.size, -1, dtype=np.int64)
    found: dict[tuple[int, str], int] = {}
    for _, keys, own in parts:
        names = tables[0] if tables else own
        distinct, at = np.unique(keys[keys >= 0], return_inverse=True)
        codes = [found.setdefault((key, names.get(key, "")), len(found)) for key in distinct.tolist()]
        everywhere[keys >= 0] = np.array(codes, dtype=np.int64)[at]
    if not found:
        raise InputError(
            f"atlas={labels[0].name!r} holds no label: all its values are 0 or negative; give a file with one positive "
            "number per region."
        )
    ascending = sorted(found)
    rank = np.empty(len(found), dtype=np.int32)
    rank[[found[label] for label in ascending]] = np.arange(len(found))
    return Atlas(
        files=tuple(each.name for each in locations),
        sha256=tuple(each.sha256() for each in locations),
        codes=np.where(everywhere >= 0, rank[everywhere], np.int32(-1)),
        keys=np.array([key for key, _ in ascending], dtype=np.int64),
        names=tuple(name for _, name in ascending),
    )


def _check_kind(location: Location, series: SeriesFile) -> None:
    """Reject a file of labels that does not suit the kind of the series."""
    surface = is_dlabel(location) or is_gifti(location)
    if series.kind == "nifti" and not (is_volume(location) and not surface):
        wanted = "a volume of labels (.nii, .nii.gz)"
    elif series.kind == "cifti" and not surface:
        wanted = "a .dlabel.nii file, or a .label.gii file for each hemisphere"
    else:
        return
    raise InputError(
        f"atlas={location.name!r} does not suit {series.location.name}, whose rows are "
        f"{'voxels' if series.kind == 'nifti' else 'grayordinates'}; give {wanted}."
    )


def _labels_of(location: Location, series: SeriesFile) -> tuple[str, np.ndarray, dict[int, str]]:
    """Return the structure if the file describes only one, the labels (negative: no label), and the table of names."""
    if is_gifti(location):
        return labels_on_rows(location, series.location, "atlas")
    if series.kind == "nifti":
        _, keys = read_label_volume(location, series.grid, series.location.name, "atlas")
        return "", keys, {}
    models, keys, names = read_grayordinate_labels(location, "atlas")
    with series.location.reading():
        at = matching_grayordinates(brain_models(series.location), series.location.name, models, location.name)
    return "", np.where(at >= 0, keys[at], -1), names


def _table_next_to(volume: Location) -> Location | None:
    """Return the table of names in the folder of a volume; None if there is none."""
    if volume.beneath is not None or volume.content is not None or volume.remote:
        return None
    folder, name = os.path.split(volume.path)
    stem = re.sub(r"\.nii(\.gz)?$", "", name, flags=re.IGNORECASE)
    for each in dict.fromkeys((stem, _RESOLUTION.sub("", stem))):
        table = Location(os.path.join(os.path.dirname(volume.name), each + _TABLE), os.path.join(folder, each + _TABLE))
        if os.path.isfile(table.path) and set(_COLUMNS) <= set(_header(table)):
            return table
    return None


def _header(location: Location) -> list[str]:
    """Return the names of the columns of a table, in lower case."""
    with location.open_text() as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        return _columns(next(csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter="\t"), []))


def _columns(fields: list[str]) -> list[str]:
    return [name.strip().lower() for name in fields]


def _read_names(location: Location) -> dict[int, str]:
    """Read a BIDS table of labels: the column ``index`` has the values, and ``name`` has their names."""
    where = f"atlas={location.name!r}"
    with location.open_text() as stream:
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline="")
        lines = csv.reader(iter(lambda: text.readline(_LONGEST_LINE), ""), delimiter="\t")
        header = _columns(next(lines, []))
        if not set(_COLUMNS) <= set(header):
            there = shortened(", ".join(header)) or "none"
            raise InputError(f"{where} needs the columns index and name, but its columns are {there}; repair it.")
        index, name = (header.index(column) for column in _COLUMNS)
        names: dict[int, str] = {}
        for fields in lines:
            if not fields:
                continue
            line = lines.line_num
            if len(fields) != len(header) or not re.fullmatch(r"-?[0-9]{1,18}", fields[index].strip()):
                raise InputError(
                    f"{where}: line {line} has no whole number in the column index, or not as many fields as the first "
                    "line; repair the table."
                )
            key = int(fields[index])
            if key in names:
                raise InputError(f"{where}: the index {shortened(key)} occurs twice, also in line {line}; repair it.")
            names[key] = label_name(fields[name])
            if len(names) > _MOST_NAMES:
                raise InputError(f"{where} has more than {_MOST_NAMES:,} lines; give a table with one line per label.")
    return names
