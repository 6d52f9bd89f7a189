"""Tools with which the kernels are written.

`cpu_compiler` compiles with Numba. `gpu_compiler` compiles the ``.cu`` files, whose text `cuda_text` puts together; it
also compiles ahead, in the processes of `nvrtc_process`.
`threads` divides a loop among threads. `simd`, `simd_steps`, `simd_panels` and `simd_random` have vectors of 32 columns
for Numba. For CUDA, ``hashing.cuh`` has hash functions, and ``tie_noise.cuh`` the noise that breaks ties between
similarities.
"""
