"""The numerical work, by concept; each folder holds the same functions for both devices, side by side.

A concept's `Protocol` is in its ``__init__``, with the documentation of each function: the contract that mypy holds
both devices to. Its ``cpu.py`` is written in Numba, its ``gpu.py`` in CuPy with kernels in ``.cu`` files::

    memory                 arrays on their way to and from the device
    pairs                  all pairs of rows: Gaussian sums, counts, histograms, nearest rows, densities; metrics
    low_dimension          the same figures in near-linear time where rows have one to three features
    affinity_propagation   similarities, the noise that breaks ties, one iteration of messages
    label_sums             sums over rows that share a label: silhouettes, cluster sums, nearest exemplars
    fuzzy_c_means          weighted sums in one pass, memberships
    canopy                 independent rows of a block, lists of near centres
    exact_sums             sums of float64 whose bits do not depend on their order
    graph                  adjacency rows: moves between communities, matching, contraction
    greedy_merges          Newman's greedy merging
    toolkit                compilers, threads, vectors, hashing: what the concepts are written with
    masks                  whether all elements of a mask are true, or any

An algorithm is handed one `Kernels` and does not ask for which device it is. The ``kernels_of`` of a concept's
``gpu.py`` lists the kernels of a function that take NVRTC long, for `Kernels.compile_ahead`.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, cast

import numpy as np

if TYPE_CHECKING:
    from mgclust.kernels.affinity_propagation import AffinityPropagationKernels
    from mgclust.kernels.canopy import CanopyKernels
    from mgclust.kernels.exact_sums import ExactSumKernels
    from mgclust.kernels.fuzzy_c_means import FuzzyCMeansKernels
    from mgclust.kernels.graph import GraphKernels
    from mgclust.kernels.greedy_merges import GreedyMergeKernels
    from mgclust.kernels.label_sums import LabelSumKernels
    from mgclust.kernels.low_dimension import LowDimensionKernels
    from mgclust.kernels.memory import MemoryKernels
    from mgclust.kernels.pairs import PairKernels

__all__ = ["Kernels", "load"]


class Kernels:
    """The kernels of one device: an attribute a concept, imported on first use.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Attributes
    ----------
    xp : module
        The array module of the device, NumPy or CuPy.
    """

    memory: MemoryKernels
    pairs: PairKernels
    low_dimension: LowDimensionKernels
    affinity_propagation: AffinityPropagationKernels
    label_sums: LabelSumKernels
    fuzzy_c_means: FuzzyCMeansKernels
    canopy: CanopyKernels
    exact_sums: ExactSumKernels
    graph: GraphKernels
    greedy_merges: GreedyMergeKernels

    def __init__(self, device: str) -> None:
        self.device = device
        self.xp: Any = importlib.import_module({"cpu": "numpy", "cuda": "cupy"}[device])

    def compile_ahead(self, functions: Mapping[str, Mapping[str, Any]], d: int, dtype: np.dtype) -> None:
        """Begin to compile, beside what the caller does, what takes a GPU long to compile; nothing on a CPU.

        Parameters
        ----------
        functions : mapping of str to mapping
            Functions that a run calls, ``"pairs.count_within"``, and further figures that their kernels depend on.
        d : int
            Number of features.
        dtype : dtype
            The rows' type on the device.
        """
        if self.device == "cuda":
            from mgclust.kernels.toolkit.gpu_compiler import compile_ahead

            asked = ((name.partition("."), figures) for name, figures in functions.items())
            lists = (getattr(self, name[0]).kernels_of(name[2], d, dtype, **figures) for name, figures in asked)
            compile_ahead(kernel for kernels in lists for kernel in kernels)

    def on_compiling(self, listener: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Let something be called before each kernel that is compiled in the block.

        Parameters
        ----------
        listener : callable
            Called in the thread that compiles the kernel, or waits for it.
        """
        compiler = "gpu_compiler" if self.device == "cuda" else "cpu_compiler"
        told: Any = importlib.import_module(f"mgclust.kernels.toolkit.{compiler}").on_compiling
        return cast("contextlib.AbstractContextManager[None]", told(listener))

    if not TYPE_CHECKING:  # a name that is no concept is an error to mypy

        def __getattr__(self, name: str) -> Any:
            if name not in type(self).__annotations__:
                raise AttributeError(f"{type(self).__name__} has no concept {name!r}")
            module = importlib.import_module(f"mgclust.kernels.{name}.{'gpu' if self.device == 'cuda' else 'cpu'}")
            setattr(self, name, module)
            return module


@functools.cache
def load(device: str) -> Kernels:
    """The kernels of a device.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Returns
    -------
    Kernels
    """
    return Kernels(device)
