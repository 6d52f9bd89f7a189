"""State of a run of density peaks, which a checkpoint saves after each pass."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from mgclust.algorithms.density_peaks.cutoff_distance.cutoff import CutoffDistance
from mgclust.algorithms.density_peaks.cutoff_distance.separation import Separated
from mgclust.algorithms.density_peaks.passes.all_pairs import Neighbors
from mgclust.algorithms.density_peaks.topography.adaptive_density import LogDensity
from mgclust.engine.spmd import Context

__all__ = ["DensityState"]

Array = Any
PER_ROW = ("k", "value", "error")  # fields of LogDensity with one value per row


@dataclass
class DensityState:
    """Results of the passes so far. An interrupted pass restarts, so nothing else needs saving."""

    exactness: dict[str, Any] = field(default_factory=dict)  # for `DensityPeaks.exactness_`
    choice: dict[str, Any] | None = None  # see `choose_fraction`
    separated: Separated | None = None
    cut: CutoffDistance | None = None
    # rho, best and nearest are None, or arrays of shape (n,) on the device of every rank.
    rho: Array = None  # density
    neighbors: Neighbors | None = None  # kept until `nearest`, or the borders of significant peaks, are known
    best: Array = None  # reduced distance to the nearest denser row
    nearest: Array = None  # index of the nearest denser row
    log_density: LogDensity | None = None

    @classmethod
    def finished(cls, context: Context) -> DensityState:
        """Return the state that an interrupted run saved, or an empty state if there is none."""
        saved = context.checkpoint.load()
        if saved is None:
            return cls()
        to_device = context.kernels.memory.to_device
        cut = saved.control["cut"]
        state = cls(saved.control["exactness"], saved.control["choice"])
        state.cut = None if cut is None else CutoffDistance(*cut)
        state.separated = None if (kept := saved.control["separated"]) is None else Separated(*kept)
        arrays = {name: to_device(array) for name, array in saved.arrays.items()}
        if dim := saved.control["dim"]:
            state.log_density = LogDensity(*dim, *(arrays.pop(f"density_{name}") for name in PER_ROW))
        for name, array in arrays.items():
            setattr(state, name, array)
        if saved.control["neighbors"]:
            state.neighbors = Neighbors.none_yet(context, saved.control["neighbors"])
            for name, array in state.neighbors._asdict().items():
                for place, rows in saved.rows(f"neighbors_{name}"):
                    array[place] = to_device(rows)
        return state

    def keep(self, context: Context) -> None:
        """Save the state if a checkpoint is due."""
        if not context.checkpoint.due(seldom=True):
            return
        known = {name: getattr(self, name) for name in ("rho", "best", "nearest")}
        if self.log_density is not None:
            known |= {f"density_{name}": getattr(self.log_density, name) for name in PER_ROW}
        arrays = {name: context.kernels.memory.to_host(array) for name, array in known.items() if array is not None}
        near = {} if self.neighbors is None else self.neighbors._asdict()
        context.checkpoint.save(
            {
                "exactness": self.exactness,
                "choice": self.choice,
                "separated": self.separated,
                "cut": self.cut,
                "neighbors": near["s"].shape[1] if near else 0,
                "dim": None if self.log_density is None else self.log_density[:2],
            },
            arrays,
            {f"neighbors_{name}": array for name, array in near.items()},
        )
