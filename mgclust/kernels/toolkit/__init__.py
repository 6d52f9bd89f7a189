"""Tools that the kernels are written with.

`cpu_compiler` (Numba) and `gpu_compiler` (the ``.cu`` files, whose text `cuda_text`
puts together) compile; `gpu_processes` does so side by side, for CuPy's own kernels, too (`gpu_cupy_kernels`).
`threads` shares a loop out among threads; `simd`, `simd_steps`, `simd_panels` and `simd_random` are vectors of 32
columns for Numba. For CUDA ``hashing.cuh`` is hashing, ``tie_noise.cuh`` the noise that breaks ties
between similarities.
"""
