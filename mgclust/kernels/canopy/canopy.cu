// Canopy clustering: which of some rows are picked, and which columns lie within a threshold of a row.
//
// Compiled with -DREAL, -DNORM, and for write_within -DDIM: few features, in registers.
#include "pairs/pairs.cuh"

#define WORD 64
#define GROUPS 16
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

// The greedy choice, 64 rows at a time, by one block with GROUPS threads a word; bit j of struck[w]: a picked row is near
// row 64 w + j. The 64 rows of a word decide among themselves in order, at once where none is near another; then each
// group of threads strikes from all words what is near some of the picked.
extern "C" __global__ void __launch_bounds__(GROUPS * WORD)
pick(const uint64* __restrict__ conflicts, int k, int words, unsigned char* out) {
    __shared__ uint64 struck[WORD], among[WORD], picked_of_word;
    const int lane = threadIdx.x % WORD, group = threadIdx.x / WORD;
    if (group == 0) struck[lane] = 0;
    for (int w = 0; w < words; ++w) {
        const int count = min(WORD, k - w * WORD);
        if (group == 0) among[lane] = lane < count ? conflicts[(int64)(w * WORD + lane) * words + w] : 0;
        __syncthreads();
        if (threadIdx.x < 32) {
            const uint64 left = ~struck[w] & (count == WORD ? ~0ull : (1ull << count) - 1);
            bool meet = false;
            for (int t = lane; t < WORD; t += 32) meet |= left >> t & 1 && among[t] & left & ~(1ull << t);
            uint64 picked = left;
            if (__any_sync(0xffffffffu, meet)) {
                picked = 0;
                for (uint64 rest = left; rest;) {
                    const int b = __ffsll((long long)rest) - 1;
                    picked |= 1ull << b;
                    rest &= ~(among[b] | 1ull << b);
                }
            }
            if (threadIdx.x == 0) picked_of_word = picked;
        }
        __syncthreads();
        const uint64 picked = picked_of_word;
        if (group == 0 && lane < count) out[w * WORD + lane] = picked >> lane & 1;
        if (lane > w && lane < words) {
            uint64 near = 0;
#pragma unroll
            for (int t = 0; t < WORD / GROUPS; ++t) {
                const int b = group * (WORD / GROUPS) + t;
                if (picked >> b & 1) near |= conflicts[(int64)(w * WORD + b) * words + lane];
            }
            if (near) atomicOr(&struck[lane], near);
        }
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
