// Similarities of rows and columns of any numbers, by direct differences or products as in pairs/many_features.cu; the
// noise that breaks ties, on such pairs.
#include "pairs/pairs.cuh"
#include "toolkit/tie_noise.cuh"

#define THREADS 256

__device__ __forceinline__ real with_noise(const Noise& noise, real v, int64 row, int64 column) {
    const unsigned int word = word_of(noise.words((int)row, (int)column & ~15), (int)column / 4 & 3);
    return noise.add(v, word >> (8 * ((int)column & 3)));
}

// A thread a pair.
extern "C" __global__ void __launch_bounds__(THREADS)
similarities_of_pairs(const real* x, int m, const real* y, int k, int d, const int64* rows, const int64* columns,
                      real factor, uint64 seed, real tiny, real* out) {
    const int64 pair = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (pair >= (int64)m * k) return;
    const int64 i = pair / k, j = pair % k;
    const real *a = x + i * d, *b = y + j * d;
#if NORM == NORM_DOT
    real s = 0, a_norm = 0, b_norm = 0;
    for (int f = 0; f < d; ++f) {
        s = fma(a[f], b[f], s);
        a_norm = fma(a[f], a[f], a_norm);
        b_norm = fma(b[f], b[f], b_norm);
    }
    s = fmax(fma((real)-2, s, a_norm + b_norm), (real)0);
#else
    const real s = direct(a, b, d);
#endif
    const Noise noise{seed, 0, tiny};
    out[pair] = rows[i] == columns[j] ? -infinity() : with_noise(noise, -factor * s, rows[i], columns[j]);
}

extern "C" __global__ void __launch_bounds__(THREADS)
jitter_pairs(real* s, int m, int k, const int64* rows, const int64* columns, uint64 seed, unsigned int draw, real tiny) {
    const int64 pair = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (pair >= (int64)m * k) return;
    const Noise noise{seed, draw, tiny};
    s[pair] = with_noise(noise, s[pair], rows[pair / k], columns[pair % k]);
}

// A block a row, whose pairs are s[bounds[i]] .. s[bounds[i + 1] - 1].
extern "C" __global__ void __launch_bounds__(THREADS)
jitter_lists(real* s, const int64* bounds, const int64* rows, const int* columns, uint64 seed, unsigned int draw,
             real tiny) {
    const Noise noise{seed, draw, tiny};
    for (int64 q = bounds[blockIdx.x] + threadIdx.x; q < bounds[blockIdx.x + 1]; q += THREADS)
        s[q] = with_noise(noise, s[q], rows[blockIdx.x], columns[q]);
}
