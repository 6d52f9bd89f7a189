"""The GPUs that this process sees, according to the CUDA driver.

The driver is called through ctypes, because at this point it is not known whether CuPy is installed and usable, and
because the calls must not create a CUDA context.
"""

from __future__ import annotations

import ctypes
import functools
import importlib.util
import os
import platform
from dataclasses import dataclass
from typing import Any
from uuid import UUID

__all__ = ["Gpu", "cores", "cpu_name", "gpus", "why_no_gpu"]


@dataclass(frozen=True)
class Gpu:
    """A CUDA device."""

    name: str  # product name
    uuid: str  # unique among all devices
    memory: int  # bytes on the device

    @property
    def visible_name(self) -> str:
        """Name of the device for CUDA_VISIBLE_DEVICES; the name does not depend on the order of devices."""
        return f"{'MIG' if ' MIG ' in self.name else 'GPU'}-{UUID(self.uuid)}"


@functools.cache
def gpus() -> tuple[Gpu, ...]:
    """Return the CUDA devices that CUDA_VISIBLE_DEVICES permits; none without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return ()
    count = ctypes.c_int()
    if driver.cuInit(0) or driver.cuDeviceGetCount(ctypes.byref(count)):
        return ()
    return tuple(_describe(driver, ordinal) for ordinal in range(count.value))


def _describe(driver: Any, ordinal: int) -> Gpu:
    device = ctypes.c_int()
    name, uuid, memory = ctypes.create_string_buffer(96), ctypes.create_string_buffer(16), ctypes.c_size_t()
    driver.cuDeviceGet(ctypes.byref(device), ordinal)
    driver.cuDeviceGetName(name, len(name), device)
    get_uuid = getattr(driver, "cuDeviceGetUuid_v2", None) or driver.cuDeviceGetUuid
    get_uuid(uuid, device)
    driver.cuDeviceTotalMem_v2(ctypes.byref(memory), device)
    return Gpu(name.value.decode(), uuid.raw.hex(), memory.value)


def why_no_gpu() -> str:
    """Reason why this process cannot compute on a GPU, as a clause; empty if it can."""
    if not gpus():
        if os.environ.get("CUDA_VISIBLE_DEVICES", "x").strip() in ("", "-1"):
            return "CUDA_VISIBLE_DEVICES hides every GPU"
        return "the CUDA driver finds no GPU"
    if importlib.util.find_spec("cupy") is None:
        return "CuPy is not installed (pip install 'mgclust[gpu-cu13]')"
    return ""


def cores() -> int:
    """Number of processor cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@functools.cache
def cpu_name() -> str:
    """Model of the processor."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
