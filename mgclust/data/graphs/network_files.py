"""Graphs in GraphML and GML files, which networkx parses; they are read as a whole."""

from __future__ import annotations

import io
from typing import Any, NoReturn
from xml.parsers import expat

from mgclust.base.errors import InputError
from mgclust.data.graphs.base import Graph
from mgclust.data.graphs.libraries import open_networkx
from mgclust.data.location import Location
from mgclust.outside.inflation import check_memory

__all__ = ["open_gml", "open_graphml"]

_PARSED_BYTES = 40  # bytes of memory that the parser and the graph need per byte of text


def open_graphml(location: Location, weight: str | None) -> Graph:
    """Open a GraphML file. A document type is rejected, because its entities can expand a few bytes to many."""
    networkx, text = _read(location)
    parser = expat.ParserCreate()

    def refuse(*declared: Any) -> NoReturn:
        raise InputError(f"{location.name} declares a document type (DTD), which is rejected; remove it.")

    parser.StartDoctypeDeclHandler = refuse
    parser.EntityDeclHandler = refuse
    parser.Parse(text, True)
    return open_networkx(networkx.read_graphml(io.BytesIO(text)), weight, location.name)


def open_gml(location: Location, weight: str | None) -> Graph:
    """Open a GML file. The names of nodes are their labels if all labels are distinct, else their ids."""
    networkx, text = _read(location)
    try:
        graph = networkx.read_gml(io.BytesIO(text))
    except networkx.NetworkXError:
        graph = networkx.read_gml(io.BytesIO(text), label="id")
    return open_networkx(graph, weight, location.name)


def _read(location: Location) -> tuple[Any, bytes]:
    try:
        import networkx
    except ImportError as error:
        raise InputError(f"{location.name} needs networkx; run pip install 'mgclust[graphs]'.") from error
    parts, size = [], 0
    with location.open_text() as file:
        while part := file.read(2**20):
            parts.append(part)
            size += len(part)
            check_memory(location.name, _PARSED_BYTES * size)
    return networkx, b"".join(parts)
