"""The text of the ``.cu`` files for the compiler: with constants and shared headers, and with one kernel or all."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["KERNEL", "constants_of", "cuda_text", "only_kernel"]

FOLDER = Path(__file__).parents[1]
# A header may include headers that come after it in this list.
HEADERS = (
    "pairs/products/split_products.cuh",
    "pairs/products/halves.cuh",
    "pairs/pairs.cuh",
    "fuzzy_c_means/memberships.cuh",
    "fuzzy_c_means/approximations.cuh",
    "toolkit/hashing.cuh",
    "toolkit/tie_noise.cuh",
    "affinity_propagation/messages.cuh",
    "affinity_propagation/sparse_forms/recent_argmax.cuh",
)
NORMS = {"l2": "NORM_L2", "l2-dot": "NORM_DOT", "l1": "NORM_L1"}
# A kernel in a file ends at the first brace that begins a line.
KERNEL = re.compile(
    r'^extern "C" __global__ void\s+(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?(?P<name>\w+)\(.*?^}\n',
    re.MULTILINE | re.DOTALL,
)


def constants_of(dtype: str, norm: str = "l2", **defines: int) -> dict[str, Any]:
    """Return the constants of a file: REAL and NORM, which all files have, and other constants.

    Parameters
    ----------
    dtype : {"float32", "float64"}
        Type of the rows: REAL in the file.
    norm : {"l2", "l2-dot", "l1"}
        Norm of the distances: NORM in the file.
    **defines : int
        Other constants, for example DIM.
    """
    return {"REAL": {"float32": "float", "float64": "double"}[dtype], "NORM": NORMS[norm], **defines}


def cuda_text(file: str, constants: dict[str, Any]) -> str:
    """Return the text of a ``.cu`` file with its constants and shared headers.

    The cache on disk depends on this text, so that kernels are compiled again if a constant or a header changes.

    Parameters
    ----------
    file : str
        Path of the file, relative to ``mgclust/kernels``, such as ``pairs/few_features.cu``.
    constants : dict
        Constants from `constants_of`.
    """
    code = (FOLDER / file).read_text()
    for header in HEADERS:
        text = (FOLDER / header).read_text().replace("#pragma once", "")
        code = code.replace(f'#include "{header}"', text)
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + code


def only_kernel(code: str, name: str) -> str:
    """Return the code without all other kernels."""
    return KERNEL.sub(lambda kernel: kernel.group() if kernel["name"] == name else "", code)
