"""Numerical kernels, grouped by concept: each folder has the same functions for CPUs and for GPUs.

The ``__init__`` of a concept has a `Protocol` that documents each function; mypy checks the modules of both devices
against it. ``cpu.py`` is written with Numba, and ``gpu.py`` with CuPy and kernels in ``.cu`` files::

    memory                 transfer of arrays to and from the device
    pairs                  all pairs of rows: Gaussian sums, counts, histograms, nearest rows, densities; metrics
    low_dimension          the same results in near-linear time for rows with one to three features
    affinity_propagation   similarities, the noise that breaks ties, one iteration of messages
    label_sums             sums over rows that share a label: silhouettes, cluster sums, nearest exemplars
    fuzzy_c_means          weighted sums in one pass, memberships
    canopy                 independent rows of a block, lists of near centres
    exact_sums             sums of float64 numbers that are bitwise independent of the order of addition
    graph                  adjacency rows: moves between communities, matching, contraction
    greedy_merges          Newman's greedy merging
    toolkit                tools that the concepts share: compilers, threads, vectors, hashing
    masks                  tests and counts of Boolean masks

An algorithm gets one `Kernels` object, and runs in the same way on either device. In the ``gpu.py`` of a concept,
``kernels_of`` lists the kernels of a given function that NVRTC compiles slowly; `Kernels.compile_ahead` calls it.
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
    """The kernels of one device: one attribute per concept, imported on first use.

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
        """Start to compile, in the background, the GPU kernels that take long to compile; on a CPU, do nothing.

        Parameters
        ----------
        functions : mapping of str to mapping
            Keys: functions that a run calls, e.g. ``"pairs.count_within"``. Values: further keyword arguments of
            ``kernels_of``, on which the kernels of the function depend.
        d : int
            Number of features.
        dtype : dtype
            Type of the rows on the device.
        """
        if self.device == "cuda":
            from mgclust.kernels.toolkit.gpu_compiler import compile_ahead

            asked = ((name.partition("."), figures) for name, figures in functions.items())
            lists = (getattr(self, name[0]).kernels_of(name[2], d, dtype, **figures) for name, figures in asked)
            compile_ahead(kernel for kernels in lists for kernel in kernels)

    def on_compiling(self, listener: Callable[[], None]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which `listener` is called before each compilation of a kernel.

        Parameters
        ----------
        listener : callable
            The function. It is called in the thread that compiles the kernel or waits for it.
        """
        compiler = "gpu_compiler" if self.device == "cuda" else "cpu_compiler"
        told: Any = importlib.import_module(f"mgclust.kernels.toolkit.{compiler}").on_compiling
        return cast("contextlib.AbstractContextManager[None]", told(listener))

    if not TYPE_CHECKING:  # mypy rejects names that are not concepts

        def __getattr__(self, name: str) -> Any:
            if name not in type(self).__annotations__:
                raise AttributeError(f"{type(self).__name__} has no concept {name!r}")
            module = importlib.import_module(f"mgclust.kernels.{name}.{'gpu' if self.device == 'cuda' else 'cpu'}")
            setattr(self, name, module)
            return module


@functools.cache
def load(device: str) -> Kernels:
    """Return the kernels of a device.

    Parameters
    ----------
    device : {"cpu", "cuda"}

    Returns
    -------
    Kernels
    """
    return Kernels(device)
