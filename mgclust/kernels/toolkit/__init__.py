"""Tools that the kernels are written with.

`cpu_compiler` (Numba) and `gpu_compiler` (the ``.cu`` files, whose text `cuda_text` puts together) compile. The latter
also compiles ahead, by the processes of `nvrtc_process`.
`threads` shares a loop out among threads; `simd`, `simd_steps`, `simd_panels` and `simd_random` are vectors of 32
columns for Numba. For CUDA ``hashing.cuh`` is hashing, ``tie_noise.cuh`` the noise that breaks ties
between similarities.
"""
