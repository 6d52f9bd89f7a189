"""The text of the ``.cu`` files as the compiler takes it: constants, shared headers, and one kernel of many."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

__all__ = ["KERNEL", "constants_of", "cuda_text", "only_kernel"]

FOLDER = Path(__file__).parents[1]
# In the order in which one may include another.
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
    """Return the constants of a file: REAL and NORM, which all have, and further ones.

    Parameters
    ----------
    dtype : {"float32", "float64"}
        The rows' type, REAL in the file.
    norm : {"l2", "l2-dot", "l1"}
        NORM in the file.
    **defines : int
        Further constants, DIM for example.
    """
    return {"REAL": {"float32": "float", "float64": "double"}[dtype], "NORM": NORMS[norm], **defines}


def cuda_text(file: str, constants: dict[str, Any]) -> str:
    """Return a ``.cu`` file with its constants and shared headers: the cache on disk then sees a change to them.

    Parameters
    ----------
    file : str
        From the folder of the kernels on: ``pairs/few_features.cu``.
    constants : dict
        What `constants_of` returns.
    """
    code = (FOLDER / file).read_text()
    for header in HEADERS:
        text = (FOLDER / header).read_text().replace("#pragma once", "")
        code = code.replace(f'#include "{header}"', text)
    return "".join(f"#define {name} {value}\n" for name, value in constants.items()) + code


def only_kernel(code: str, name: str) -> str:
    """Return code without all kernels but one."""
    return KERNEL.sub(lambda kernel: kernel.group() if kernel["name"] == name else "", code)
