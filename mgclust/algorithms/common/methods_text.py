"""The paragraph for the methods section of a paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mgclust.outside.quoting import shortened
from mgclust.results.result import Result

__all__ = ["methods_text"]

# Software whose versions the paragraph names; `Result.versions` has all versions.
SOFTWARE = {"mgclust": "mgclust", "NumPy": "numpy"}
NO_CHOICES = ("device", "memory_limit")  # parameters that do not change the result


def methods_text(
    result: Result, said: Sequence[str], references: Mapping[str, str], defaults: Mapping[str, Any]
) -> str:
    """Write the paragraph around the sentences on the method, and the references that it cites.

    Parameters
    ----------
    result : Result
    said : sequence of str
        Sentences on the method, from `Presentation.method_sentences`.
    references : mapping of str to str
        Publications by their short citation (authors and year), as the sentences write it.
    defaults : mapping of str to object
        Default values of the parameters. The paragraph leaves out parameters that have their default value.
    """
    source, versions = result.source, result.versions
    shape = list(source.get("shape", ()))
    data = f"{shape[0]:,} rows with {shape[1]:,} features" if len(shape) == 2 else "the data"
    if "n_nodes" in source:
        data = f"a graph with {source['n_nodes']:,} nodes and {source['n_edges']:,} edges"
    used = " with ".join(f"{name} {versions[key]}" for name, key in SOFTWARE.items() if key in versions)
    device = "GPUs" if result.hardware.get("device") == "cuda" else "CPUs"
    sentences = [f"{used or 'mgclust'} analysed {data} on {device}.", *said]
    given = [
        f"{name}={_short(value)}"
        for name, value in result.parameters.items()
        if name not in NO_CHOICES and value is not None and not _equal(value, defaults.get(name))
    ]
    of_defaults = "All parameters had their default values."
    sentences.append(f"Parameters were {', '.join(given)}; others had their defaults." if given else of_defaults)
    sizes = result.cluster_sizes
    if len(sizes) and "n_clusters" in result.scores:
        if result.scores["n_clusters"] == np.count_nonzero(sizes):
            sizes = sizes[sizes > 0]  # the labels may leave out numbers
        clusters = "cluster" if result.scores["n_clusters"] == 1 else "clusters"
        members = "nodes" if "n_nodes" in source else "rows"
        spread = f"{sizes.min():,}" if sizes.min() == sizes.max() else f"{sizes.min():,} to {sizes.max():,}"
        sentences.append(f"The result has {result.scores['n_clusters']:,} {clusters} of {spread} {members}.")
    text = " ".join(sentences)
    cited = [full for name, full in references.items() if name in text]
    return "\n".join([text, "", *cited]) if cited else text


def _equal(value: Any, other: Any) -> bool:
    return bool(np.array_equal(value, other)) if isinstance(value, (np.ndarray, list, tuple)) else value == other


def _short(value: Any) -> str:
    """Write the value of a parameter in few characters."""
    if isinstance(value, np.ndarray) and value.size > 4:
        return f"an array of shape {value.shape}"
    return shortened(str(value))
