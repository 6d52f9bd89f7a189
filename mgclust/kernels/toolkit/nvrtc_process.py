"""A process that compiles CUDA programs, one after the other: the compiler works on one at a time in each process.

Run as a script, with NVRTC's library as its argument. Options with zeros between them and a program come in, each after
its size in eight bytes; the size of the machine code goes out, and the code. A size of 0 says that NVRTC refuses the
program. Imports nothing but the standard library: each such process would pay for it.
"""

from __future__ import annotations

import ctypes
import sys
from typing import Any

__all__: list[str] = []


def main() -> None:
    """Compile what comes in, until a size of 0 does, or nothing more."""
    nvrtc = ctypes.CDLL(sys.argv[1])
    while size := int.from_bytes(sys.stdin.buffer.read(8), "little"):
        options = sys.stdin.buffer.read(size)
        program = sys.stdin.buffer.read(int.from_bytes(sys.stdin.buffer.read(8), "little"))
        code = machine_code(nvrtc, program, options.split(b"\0"))
        sys.stdout.buffer.write(len(code).to_bytes(8, "little") + code)
        sys.stdout.buffer.flush()


def machine_code(nvrtc: Any, code: bytes, options: list[bytes]) -> bytes:
    """Return the machine code of a program; empty where NVRTC refuses it."""
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    flags = (ctypes.c_char_p * len(options))(*options)
    failed = (
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), code, None, 0, None, None)
        or nvrtc.nvrtcCompileProgram(program, len(options), flags)
        or nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    )
    binary = ctypes.create_string_buffer(size.value)
    failed = failed or nvrtc.nvrtcGetCUBIN(program, binary)
    nvrtc.nvrtcDestroyProgram(ctypes.byref(program))
    return b"" if failed else binary.raw


if __name__ == "__main__":
    main()
