"""What the kernels are written with: compilers of both devices, threads, vectors of 32 columns, hashing."""
