"""A process that compiles one CUDA program, because NVRTC compiles only one program at a time in each process.

`gpu_compiler.compile_ahead` runs this file as a script. The standard input is the program. The arguments are NVRTC's
library, the file for the machine code, and NVRTC's options. The file appears when it is complete. If NVRTC rejects the
program, there is no file; the caller then compiles the program itself, and so gets the error.
"""

from __future__ import annotations

import ctypes
import os
import sys
from pathlib import Path

__all__: list[str] = []


def main() -> None:
    """Compile the program."""
    library, kept, *options = sys.argv[1:]
    for builtins in Path(library).parent.glob("libnvrtc-builtins.so*"):  # NVRTC finds it only if it is loaded
        ctypes.CDLL(str(builtins))
    nvrtc, program, size = ctypes.CDLL(library), ctypes.c_void_p(), ctypes.c_size_t()
    flags = (ctypes.c_char_p * len(options))(*map(os.fsencode, options))
    failed = (
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), sys.stdin.buffer.read(), None, 0, None, None)
        or nvrtc.nvrtcCompileProgram(program, len(options), flags)
        or nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    )
    binary = ctypes.create_string_buffer(size.value)
    if failed or nvrtc.nvrtcGetCUBIN(program, binary):
        sys.exit(1)
    part = Path(f"{kept}.{os.getpid()}")
    part.write_bytes(binary.raw)
    part.replace(kept)


if __name__ == "__main__":
    main()
