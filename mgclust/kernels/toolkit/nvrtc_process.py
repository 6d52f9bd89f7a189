"""A process that compiles one CUDA program: the compiler works on one at a time in each process.

Run as a script: NVRTC's library and the options are its arguments, code comes in and machine code goes out. Imports
nothing but the standard library: each such process would pay for it.
"""

from __future__ import annotations

import ctypes
import sys

__all__: list[str] = []


def main() -> None:
    """Compile what comes in; ends with an error where that fails."""
    nvrtc, options = ctypes.CDLL(sys.argv[1]), [option.encode() for option in sys.argv[2:]]
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    flags = (ctypes.c_char_p * len(options))(*options)
    failed = (
        nvrtc.nvrtcCreateProgram(ctypes.byref(program), sys.stdin.buffer.read(), None, 0, None, None)
        or nvrtc.nvrtcCompileProgram(program, len(options), flags)
        or nvrtc.nvrtcGetCUBINSize(program, ctypes.byref(size))
    )
    binary = ctypes.create_string_buffer(size.value)
    if failed or nvrtc.nvrtcGetCUBIN(program, binary):
        sys.exit("NVRTC refuses the program.")
    sys.stdout.buffer.write(binary.raw)


if __name__ == "__main__":
    main()
