// Similarities of few features, and the noise that breaks ties on similarities that are given.
#include "pairs/pairs.cuh"
#include "toolkit/tie_noise.cuh"

#define THREADS 256

// Similarities of few features, four columns a thread: direct differences, y in registers, x broadcast.
#ifdef DIM
extern "C" __global__ void __launch_bounds__(THREADS)
similarities_low(const real* __restrict__ x, int m, const real* __restrict__ y, int columns, real factor,
                 const int64* numbers, int first_row, int y_start, uint64 seed, real tiny, int64 stride, real* out) {
    const int k = (blockIdx.x * THREADS + threadIdx.x) * 4;
    if (k >= columns) return;
    const Noise noise{seed, 0, tiny};
    real b[4][DIM];
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int f = 0; f < DIM; ++f) b[q][f] = k + q < columns ? y[(int64)(k + q) * DIM + f] : (real)0;
    for (int i = blockIdx.y; i < m; i += gridDim.y) {
        const int row = number_of_row(numbers, first_row, i);
        const unsigned int word = word_of(noise.words(row, (y_start + k) & ~15), (y_start + k) / 4 & 3);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            real s = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) s = accumulate(x[(int64)i * DIM + f], b[q][f], s);
            const bool itself = row == y_start + k + q;
            if (k + q < columns)
                out[i * stride + y_start + k + q] = itself ? -infinity() : noise.add(-factor * s, word >> (8 * q));
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
jitter(real* s, int m, int n, int64 stride, const int64* numbers, uint64 seed, unsigned int draw, real tiny) {
    const int k = (blockIdx.x * THREADS + threadIdx.x) * 4;
    if (k >= n) return;
    const Noise noise{seed, draw, tiny};
    for (int i = blockIdx.y; i < m; i += gridDim.y) {
        const unsigned int word = word_of(noise.words((int)numbers[i], k & ~15), k / 4 & 3);
#pragma unroll
        for (int q = 0; q < 4; ++q)
            if (k + q < n) s[i * stride + k + q] = noise.add(s[i * stride + k + q], word >> (8 * q));
    }
}
