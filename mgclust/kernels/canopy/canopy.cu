// Canopy clustering: which of some rows are picked, and which columns lie within a threshold of a row.
//
// Compiled with -DREAL, -DNORM, and for write_within -DDIM: few features, in registers.
#include "pairs/pairs.cuh"

#define WORD 64
#define TILE 256
#define THREADS 128

// Bit j of conflicts[i][w] (k x words): rows i and 64 w + j are near. One thread a word.
extern "C" __global__ void conflicts(const real* __restrict__ x, int k, int d, int words, real threshold, uint64* out) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, w = blockIdx.y;
    if (i >= k) return;
    uint64 bits = 0;
    const int count = min(WORD, k - w * WORD);
    if ((w + 1) * WORD > i)  // only later rows are asked for
        for (int j = 0; j < count; ++j)
            if (direct(x + (int64)i * d, x + (int64)(w * WORD + j) * d, d) < threshold) bits |= 1ull << j;
    out[(int64)i * words + w] = bits;
}

// The greedy choice, 64 rows at a time, by one block with one thread a word: thread w knows which rows of word w are near
// a picked one. The 64 rows of a word decide among themselves in order; then what they picked is struck from all words.
extern "C" __global__ void pick(const uint64* __restrict__ conflicts, int k, int words, unsigned char* out) {
    __shared__ uint64 among[WORD], picked_of_word;
    uint64 struck = 0;
    for (int w = 0; w < words; ++w) {
        const int count = min(WORD, k - w * WORD);
        for (int t = threadIdx.x; t < count; t += blockDim.x) among[t] = conflicts[(int64)(w * WORD + t) * words + w];
        __syncthreads();
        if (threadIdx.x == w) {
            uint64 left = ~struck & (count == WORD ? ~0ull : (1ull << count) - 1), picked = 0;
            while (left) {
                const int b = __ffsll((long long)left) - 1;
                picked |= 1ull << b;
                left &= ~(among[b] | 1ull << b);
            }
            picked_of_word = picked;
        }
        __syncthreads();
        const uint64 picked = picked_of_word;
        for (int t = threadIdx.x; t < count; t += blockDim.x) out[w * WORD + t] = picked >> t & 1;
        if (threadIdx.x > w && threadIdx.x < words)
            for (uint64 rest = picked; rest; rest &= rest - 1)
                struck |= conflicts[(int64)(w * WORD + __ffsll((long long)rest) - 1) * words + threadIdx.x];
        __syncthreads();
    }
}

// A warp a row of a tile of reduced distances: the columns below the threshold, ascending, behind the row's cursor.
extern "C" __global__ void write_below(const real* __restrict__ tile, int m, int k, int64 stride, real threshold,
                                       int first_column, int64* cursors, int* out) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= m) return;
    int64 cursor = cursors[row];
    for (int c = 0; c < k; c += 32) {
        const bool near = c + lane < k && tile[(int64)row * stride + c + lane] < threshold;
        const unsigned int mask = __ballot_sync(0xffffffffu, near);
        if (near) out[cursor + __popc(mask & ((1u << lane) - 1))] = first_column + c + lane;
        cursor += __popc(mask);
    }
    if (lane == 0) cursors[row] = cursor;
}

#ifdef DIM
// One thread a row.
extern "C" __global__ void __launch_bounds__(THREADS)
write_within(const real* __restrict__ x, int m, const real* __restrict__ y, int k, real threshold,
             const int64* __restrict__ starts, int* out) {
    __shared__ real tile[TILE][DIM];
    const int row = blockIdx.x * THREADS + threadIdx.x;
    real own[DIM];
#pragma unroll
    for (int f = 0; f < DIM; ++f) own[f] = row < m ? x[(int64)row * DIM + f] : infinity();
    int* next = row < m ? out + starts[row] : out;
    for (int t = 0; t < k; t += TILE) {
        const int count = min(TILE, k - t);
        __syncthreads();
        for (int i = threadIdx.x; i < count * DIM; i += THREADS) (&tile[0][0])[i] = y[(int64)t * DIM + i];
        __syncthreads();
#pragma unroll 4
        for (int c = 0; c < count; ++c) {
            real s = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) s = accumulate(own[f], tile[c][f], s);
            if (s < threshold) *next++ = t + c;  // a row that is none lies at infinity, near nothing
        }
    }
}
#endif
