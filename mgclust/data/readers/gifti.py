"""Readers of GIFTI files: the mesh of a surface (.surf.gii), and one label per vertex (.label.gii).

A GIFTI file is XML with arrays of numbers. nibabel is not used to parse it, because nibabel decompresses an array of
any size, and opens any file that an array names. Here, an array must have the size that its attributes state, and its
numbers must be in the file itself. A file may name a document type, as most files do, but it may not declare entities.
"""

from __future__ import annotations

import binascii
import math
import re
import zlib
from collections.abc import Collection
from typing import Any, NamedTuple, NoReturn
from xml.parsers import expat

import numpy as np

from mgclust.base.errors import InputError
from mgclust.data.location import Location
from mgclust.outside.inflation import check_holds, check_memory
from mgclust.outside.quoting import reason, shortened

__all__ = [
    "NO_LABEL",
    "Mesh",
    "VertexLabels",
    "is_gifti",
    "label_name",
    "read_mesh",
    "read_vertex_labels",
    "structure_name",
    "whole_numbers",
    "without_unlabelled",
]

_POINTS, _TRIANGLES, _LABEL = (f"NIFTI_INTENT_{intent}" for intent in ("POINTSET", "TRIANGLE", "LABEL"))
_STRUCTURE = "AnatomicalStructurePrimary"
NO_LABEL = "???"  # name of the key that Connectome Workbench gives to vertices without a label
_TYPES = {
    f"NIFTI_TYPE_{kind.upper()}": np.dtype(kind)
    for kind in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64")
}
_BYTE_ORDERS: dict[str, Any] = {"LittleEndian": "<", "BigEndian": ">"}
_ORDERS = {"RowMajorOrder": "C", "ColumnMajorOrder": "F"}
_ENCODINGS = ("ASCII", "Base64Binary", "GZipBase64Binary")
_MAX_DIMENSIONS = 6
_CHUNK_BYTES = 2**20
_PARSED_BYTES = 4  # bytes of memory per byte of text
_WORD_BYTES = 80  # bytes of memory per number that is stored as text
_LONGEST_NAME = 200  # characters of the name of a label


class Mesh(NamedTuple):
    """A surface of triangles.

    Attributes
    ----------
    name : str
        Name of the file.
    structure : str
        Structure that the file names, such as ``cortex_left``; empty if the file names none.
    coordinates : ndarray of shape (n_vertices, 3), float64
        Coordinates of the vertices in mm, as they are stored in the file.
    triangles : ndarray of shape (n_triangles, 3), int64
        Numbers of the three vertices of each triangle.
    sha256 : str
        SHA-256 of the bytes of the file.
    """

    name: str
    structure: str
    coordinates: np.ndarray
    triangles: np.ndarray
    sha256: str


class VertexLabels(NamedTuple):
    """One label per vertex.

    Attributes
    ----------
    structure : str
        Structure that the file names, such as ``cortex_left``; empty if the file names none.
    labels : ndarray of shape (n_vertices,), int64
        Key of each vertex; -1 if the vertex has no label.
    names : dict of int to str
        Name of each key in the table of labels.
    """

    structure: str
    labels: np.ndarray
    names: dict[int, str]


def is_gifti(location: Location) -> bool:
    """Return whether the name has the suffix of a GIFTI file, which may be compressed."""
    return location.suffix == ".gii"


def structure_name(name: str) -> str:
    """Return the name of a structure in a uniform way: CortexLeft and CIFTI_STRUCTURE_CORTEX_LEFT give ``cortex_left``.

    Parameters
    ----------
    name : str
        Name in a GIFTI or CIFTI file.
    """
    return re.sub(r"(?<=[a-z])(?=[A-Z])", "_", name.strip().removeprefix("CIFTI_STRUCTURE_")).lower()


def label_name(text: str) -> str:
    """Return the name of a label on one line, without control characters, and with at most 200 characters.

    Parameters
    ----------
    text : str
        Name in a file.
    """
    words = "".join(each if each.isprintable() else " " for each in text).split()
    return " ".join(words)[:_LONGEST_NAME]


def read_mesh(location: Location) -> Mesh:
    """Read the mesh of a surface.

    Parameters
    ----------
    location : Location
        A .surf.gii file, which has an array of coordinates and an array of triangles.

    Returns
    -------
    Mesh
        The mesh. As in nibabel and nilearn, the transformation matrix of the file is not applied.

    Raises
    ------
    InputError
        The file is not a whole GIFTI file with one mesh, or a triangle names a vertex that does not exist.
    """
    file = _read(location, (_POINTS, _TRIANGLES))
    with location.reading():
        points, triangles = (_only(location, file, intent) for intent in (_POINTS, _TRIANGLES))
        for what, part in (("coordinates", points), ("triangles", triangles)):
            if part.values.ndim != 2 or part.values.shape[1] != 3 or not len(part.values):
                raise InputError(f"{location.name}: its {what} have shape {part.values.shape}, it should be (m, 3).")
        corners = whole_numbers(location, triangles.values, "triangles")
        if corners.min() < 0 or corners.max() >= len(points.values):
            wrong = corners.min() if corners.min() < 0 else corners.max()
            raise InputError(
                f"{location.name}: a triangle names vertex {wrong}, but there are {len(points.values):,} vertices; "
                "write it again."
            )
        coordinates = points.values.astype(np.float64)
        if not np.isfinite(coordinates).all():
            raise InputError(f"{location.name}: coordinates hold NaN or infinity; write it again.")
        return Mesh(location.name, points.structure or file.structure, coordinates, corners, location.sha256())


def read_vertex_labels(location: Location) -> VertexLabels:
    """Read labels of vertices, and their names.

    Parameters
    ----------
    location : Location
        A .label.gii file with one map.

    Returns
    -------
    VertexLabels
        The labels. A vertex has no label (-1) if its key is 0 or negative, or if the file calls the key ``???``.

    Raises
    ------
    InputError
        The file is not a whole GIFTI file, or it does not hold one map of labels.
    """
    file = _read(location, (_LABEL,))
    with location.reading():
        part = _only(location, file, _LABEL)
        if math.prod(part.values.shape) != max(part.values.shape, default=0) or not part.values.size:
            raise InputError(f"{location.name}: its labels have shape {part.values.shape}; give one label per vertex.")
        labels = whole_numbers(location, part.values.reshape(-1), "labels")
        no_label = [key for key, name in file.names.items() if name == NO_LABEL]
        return VertexLabels(part.structure or file.structure, without_unlabelled(labels, no_label), file.names)


def without_unlabelled(keys: np.ndarray, no_label: Collection[int]) -> np.ndarray:
    """Replace keys by -1 if they mean "no label": 0, negative keys, and the keys in `no_label`.

    Parameters
    ----------
    keys : ndarray of shape (n,), int64
        Keys of a table of labels.
    no_label : collection of int
        Keys that are called ``???`` in the table.
    """
    return np.where((keys <= 0) | np.isin(keys, sorted(no_label)), -1, keys)


class _Array(NamedTuple):
    intent: str
    structure: str
    values: np.ndarray


class _File:
    """Arrays of a GIFTI file that have one of the requested intents, with their structure and the table of labels."""

    def __init__(self, name: str, intents: Collection[str]) -> None:
        self.structure = ""  # the structure that the file names for all its arrays
        self.arrays: list[_Array] = []  # arrays with a requested intent
        self.found: set[str] = set()  # intents of all arrays of the file
        self.names: dict[int, str] = {}  # the table of labels
        self._name, self._intents = name, intents
        self._root = True
        self._attributes: dict[str, str] | None = None  # attributes of the array that is being read
        self._values: np.ndarray | None = None
        self._own_structure = self._meta_name = ""
        self._key: str | None = None  # key of the label that is being read
        self._text: list[str] | None = None  # characters of the element that is being read, if they are needed

    def parser(self) -> Any:
        """Return an expat parser that fills this object."""
        parser = expat.ParserCreate()
        parser.buffer_text = True
        parser.EntityDeclHandler = self._refuse_entities
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._take
        return parser

    def _refuse_entities(self, *declared: Any) -> NoReturn:
        raise InputError(f"{self._name} declares entities, which are rejected; write it again without them.")

    def _start(self, element: str, attributes: dict[str, str]) -> None:
        if self._root and element != "GIFTI":
            raise InputError(f"{self._name} is XML, but not a GIFTI file (.surf.gii, .label.gii); check the path.")
        self._root = False
        self._text = None
        if element == "DataArray":
            self._attributes, self._values, self._own_structure = attributes, None, ""
            self.found.add(attributes.get("Intent", ""))
        elif element == "Data":
            wanted = self._attributes is not None and self._attributes.get("Intent", "") in self._intents
            self._text = [] if wanted else None
        elif element in ("Name", "Value", "Label"):
            self._text = []
            self._key = attributes.get("Key", attributes.get("Index"))

    def _take(self, text: str) -> None:
        if self._text is not None:
            self._text.append(text)

    def _end(self, element: str) -> None:
        text = None if self._text is None else "".join(self._text)
        self._text = None
        if element == "DataArray" and self._attributes is not None:
            if self._values is not None:
                self.arrays.append(_Array(self._attributes["Intent"], self._own_structure, self._values))
            self._attributes = self._values = None
        if text is None:
            return
        if element == "Data" and self._attributes is not None:
            self._values = _decoded(self._name, self._attributes, text)
        elif element == "Name":
            self._meta_name = text.strip()
        elif element == "Value" and self._meta_name == _STRUCTURE:
            if self._attributes is None:
                self.structure = structure_name(text)
            else:
                self._own_structure = structure_name(text)
        elif element == "Label" and self._key is not None:
            self.names[int(self._key)] = label_name(text)


def _read(location: Location, intents: Collection[str]) -> _File:
    """Parse a file, and keep the arrays that have one of these intents."""
    file = _File(location.name, intents)
    parser = file.parser()
    size = 0
    with location.reading(), location.open_text() as stream:
        try:
            while part := stream.read(_CHUNK_BYTES):
                size += len(part)
                check_memory(location.name, _PARSED_BYTES * size, "give a mesh of fewer vertices")
                parser.Parse(part)
            parser.Parse(b"", True)
        except expat.ExpatError as error:
            raise InputError(
                f"{location.name} is not a whole GIFTI file ({reason(error)}); write it again, or convert a surface of "
                "FreeSurfer by mris_convert lh.white left.surf.gii."
            ) from error
    return file


def _only(location: Location, file: _File, intent: str) -> _Array:
    """Return the array with an intent; exactly one array must have it."""
    found = [each for each in file.arrays if each.intent == intent]
    if len(found) != 1:
        kinds = {_POINTS: ("coordinates", ".surf.gii"), _TRIANGLES: ("triangles", ".surf.gii")}
        what, suffix = kinds.get(intent, ("labels", ".label.gii"))
        there = shortened(", ".join(sorted(each.removeprefix("NIFTI_INTENT_") for each in file.found)) or "none", 100)
        raise InputError(
            f"{location.name} has {len(found)} arrays of {what} (its arrays: {there}); give a {suffix} file with "
            "exactly one."
        )
    return found[0]


def whole_numbers(location: Location, values: np.ndarray, what: str) -> np.ndarray:
    """Convert whole numbers to int64; some programs store them as floats."""
    if values.dtype.kind == "f" and not ((abs(values) < 2**53) & (values == np.floor(values))).all():
        raise InputError(f"{location.name}: its {what} hold values that are not whole numbers; write it again.")
    if values.dtype == np.uint64 and values.max(initial=0) >= 2**63:
        raise InputError(f"{location.name}: its {what} hold values above 2**63; write it again.")
    return values.astype(np.int64)


def _decoded(name: str, attributes: dict[str, str], text: str) -> np.ndarray:
    """Decode the numbers of an array; their count must be the count that the attributes of the array state."""
    encoding = attributes.get("Encoding", "")
    if encoding == "ExternalFileBinary":
        raise InputError(f"{name} stores its numbers in another file; write it with the encoding GZipBase64Binary.")
    if encoding not in _ENCODINGS:
        raise InputError(f"{name} has the encoding {shortened(encoding, 40)!r}; write it as GZipBase64Binary.")
    try:
        shape = tuple(int(attributes[f"Dim{axis}"]) for axis in range(int(attributes["Dimensionality"])))
        dtype = _TYPES[attributes["DataType"]]
        order: Any = _ORDERS[attributes.get("ArrayIndexingOrder", "RowMajorOrder")]
        if encoding != "ASCII":
            dtype = dtype.newbyteorder(_BYTE_ORDERS[attributes["Endian"]])
    except (KeyError, ValueError) as error:
        raise InputError(
            f"{name} has a data array whose attributes are missing or unknown ({reason(error)}); write it again."
        ) from error
    if not 0 < len(shape) <= _MAX_DIMENSIONS or min(shape) < 0:
        raise InputError(f"{name} has a data array with dimensions {shape}; write it again.")
    count = math.prod(shape)
    if encoding == "ASCII":
        values = _words(name, text, dtype, count)
    else:
        wanted = count * dtype.itemsize
        stored = binascii.a2b_base64(text)
        check_holds(name, wanted, len(stored), deflated=encoding == "GZipBase64Binary")
        check_memory(f"an array of {name}", 2 * wanted, "give a mesh of fewer vertices")
        if encoding == "GZipBase64Binary":
            stored = _inflated(stored, wanted)
        if len(stored) != wanted:
            raise InputError(f"{name} has an array that does not hold {count:,} numbers, as stated; write it again.")
        values = np.frombuffer(stored, dtype=dtype)
    return values.reshape(shape, order=order)


def _words(name: str, text: str, dtype: np.dtype, count: int) -> np.ndarray:
    """Convert numbers that are stored as text."""
    check_memory(f"an array of {name}", _WORD_BYTES * (len(text) // 2 + 1), "write it with the encoding Base64Binary")
    words = text.split()
    if len(words) != count:
        raise InputError(f"{name} has an array of {len(words):,} numbers instead of {count:,}; write it again.")
    return np.fromiter(map(float if dtype.kind == "f" else int, words), dtype, count)


def _inflated(stored: bytes, wanted: int) -> bytes:
    """Decompress at most `wanted` + 1 bytes. Some programs write zlib streams, others gzip streams."""
    return zlib.decompressobj(wbits=zlib.MAX_WBITS | 32).decompress(stored, wanted + 1)
