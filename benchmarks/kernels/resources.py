"""Registers, shared memory and spills of the kernels of all pairs, as CUDA's compiler gives them. No GPU is needed.

Kernels of tensor cores are compiled for compute capability 9.0a, as fits do, the others for 9.0 and 8.0. Shared memory
that is asked for at the launch is in `shared_at_launch`.

    python -m benchmarks.kernels.resources --out resources.json

``nvcc`` has to be on the path.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.support import record as bench
from mgclust.kernels.toolkit.cuda_text import constants_of, cuda_text

HOPPER = {  # files for compute capability 9.0 alone, and the shared memory of their launches
    "pairs/products/split_products.cu": 225 * 1024,
    "label_sums/centred_sums.cu": 225 * 1024,
    "fuzzy_c_means/products.cu": 225 * 1024,
    "affinity_propagation/similarities/similarity_hopper.cu": 227 * 1024,
}
NORMS = ("l2", "l2-dot", "l1")
ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
SPILLS = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
USED = re.compile(r"Used (\d+) registers")
SHARED = re.compile(r"(\d+) bytes smem")


def instances() -> Iterator[tuple[str, dict[str, Any], str]]:
    """Files, the constants of one instance, and the target."""
    for file in HOPPER:
        sweeps = "sweep_tiles" in cuda_text(file, {}).split("#endif")[-1]
        for defines in ({"FEW_CHUNKS": 0}, {"FEW_CHUNKS": 1}) if sweeps else ({},):
            yield file, constants_of("float32", **defines), "sm_90a"
    for target in ("sm_90", "sm_80"):
        yield (
            "fuzzy_c_means/few_centers.cu",
            constants_of("float32", DIM=32, CENTER_TILES=1, STAGES=3, BLOCKS=16),
            target,
        )
        yield "affinity_propagation/similarities/similarity.cu", constants_of("float32"), target
        yield "pairs/products/listed_pairs.cu", constants_of("float32"), target
        for dtype in ("float32", "float64"):
            yield "pairs/stored_values.cu", constants_of(dtype), target
            for norm in NORMS:
                yield "pairs/many_features.cu", constants_of(dtype, norm), target
                yield "pairs/any_features.cu", constants_of(dtype, norm), target
            for d in (2, 3):
                yield "pairs/boxes/column_boxes.cu", constants_of(dtype, DIM=d), target


def compiled(text: str, target: str) -> str:
    """What the compiler says."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "kernels.cu"
        source.write_text(text)
        code = f"-gencode=arch=compute_{target[3:]},code={target}"
        options = ["-std=c++17", "-ftz=true", "-Xptxas", "-v", "-cubin", "-o", str(source.with_suffix(".cubin"))]
        done = subprocess.run(["nvcc", code, *options, str(source)], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr)
    return done.stderr


def kernels(said: str) -> Iterator[dict[str, Any]]:
    """The figures of each kernel."""
    name, spills = "", (0, 0, 0)
    for line in said.splitlines():
        if found := ENTRY.search(line):
            name = found[1]
        elif found := SPILLS.search(line):
            spills = (int(found[1]), int(found[2]), int(found[3]))
        elif name and (found := USED.search(line)):
            shared = SHARED.search(line)
            yield {
                "kernel": name,
                "registers": int(found[1]),
                "shared_bytes": int(shared[1]) if shared else 0,
                "spill_stores_bytes": spills[1],
                "spill_loads_bytes": spills[2],
            }
            name = ""


def main() -> None:
    arguments = bench.parser(__doc__).parse_args()
    record = bench.Record(__doc__, arguments.out)
    said = subprocess.run(["nvcc", "--version"], capture_output=True, text=True, check=True).stdout
    record.note("nvcc", said.strip().splitlines()[-2])
    for file, constants, target in instances():
        for figures in kernels(compiled(cuda_text(file, constants), target)):
            at_launch = HOPPER.get(file, 0) if figures["registers"] >= 168 else 0
            shown = ", ".join(f"{key}={value}" for key, value in constants.items())
            record.add(f"{file} {figures.pop('kernel')}, {shown}, {target}", **figures, shared_at_launch=at_launch)


if __name__ == "__main__":
    main()
