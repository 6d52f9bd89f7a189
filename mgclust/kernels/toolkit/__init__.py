"""Tools for writing kernels: compilers, threads, vectors and CUDA headers.

`cpu_compiler` compiles with Numba. `gpu_compiler` compiles the ``.cu`` files; `cuda_text` makes their text, and
processes that run `nvrtc_process` compile ahead. `threads` divides a loop among threads. `simd`, `simd_steps`,
`simd_panels` and `simd_random` have vectors of 32 columns for Numba. For CUDA, ``hashing.cuh`` has hash functions, and
``tie_noise.cuh`` has the noise that breaks ties between similarities.
"""
