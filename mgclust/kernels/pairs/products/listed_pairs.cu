// Pairs and columns that split_products.cu lists, decided by direct differences: the bits of every other kernel.
#include "pairs/pairs.cuh"

// As `direct`, four features at a time where rows begin at multiples of 16 bytes.
__device__ __forceinline__ float distance(const float* __restrict__ a, const float* __restrict__ b, int d) {
    if (d & 3) return direct(a, b, d);
    float s = 0;
#pragma unroll 4
    for (int k = 0; k < d; k += 4) {
        const float4 v = *reinterpret_cast<const float4*>(a + k), w = *reinterpret_cast<const float4*>(b + k);
        s = accumulate(v.x, w.x, s);
        s = accumulate(v.y, w.y, s);
        s = accumulate(v.z, w.z, s);
        s = accumulate(v.w, w.w, s);
    }
    return s;
}

#define EACH_PAIR \
    for (int64 at = (int64)blockIdx.x * blockDim.x + threadIdx.x, all = *count; at < all; \
         at += (int64)gridDim.x * blockDim.x)

// What is not below the bracket and not in it is not counted.
extern "C" __global__ void histogram(const float* x, const float* y, int d, const int2* list, const int64* count,
                                     int low, unsigned int width, int shift, uint64* out) {
    EACH_PAIR {
        const int2 pair = list[at];
        const int u = __float_as_int(distance(x + (int64)pair.x * d, y + (int64)pair.y * d, d)) - low;
        if (u < 0) atomicAdd(out, 1ull);
        else if ((unsigned int)u < width) atomicAdd(out + 1 + ((unsigned int)u >> shift), 1ull);
    }
}

extern "C" __global__ void count(const float* x, const float* y, int d, const int2* list, const int64* count,
                                 float threshold, uint64* out) {
    EACH_PAIR {
        const int2 pair = list[at];
        if (distance(x + (int64)pair.x * d, y + (int64)pair.y * d, d) < threshold) atomicAdd(out + pair.x, 1ull);
    }
}

extern "C" __global__ void border(const float* x, const float* y, int d, const int2* list, const int64* count,
                                  float threshold, unsigned char* out) {
    EACH_PAIR {
        const int2 pair = list[at];
        if (!out[pair.x] && distance(x + (int64)pair.x * d, y + (int64)pair.y * d, d) < threshold) out[pair.x] = 1;
    }
}

// Rows and columns are listed by their places in x_which and y_which. best[row]: bits of s, then the column.
extern "C" __global__ void nearest(const float* x, const float* y, int d, const int2* list, const int64* count,
                                   const int64* x_which, const int64* y_which, uint64* best) {
    EACH_PAIR {
        const int64 row = x_which[list[at].x], column = y_which[list[at].y];
        const float s = distance(x + row * d, y + column * d, d);
        atomicMin(best + row, (uint64)__float_as_uint(s) << 32 | (uint64)column);
    }
}

extern "C" __global__ void take_nearest(const uint64* best, int m, int64 y_start, float* s, int64* index) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m || best[row] == ~0ull) return;
    const float found = __uint_as_float((unsigned int)(best[row] >> 32));
    if (found < s[row]) { s[row] = found; index[row] = y_start + (int64)(best[row] & 0xffffffffu); }
}

// limits[row] = the k-th smallest of the row's `groups` minima, enlarged by what direct differences may be beyond s, if
// that is below what is known; a warp a row.
#define MAX_GROUPS 1024
extern "C" __global__ void kth_smallest(const float* minima, int m, int groups, int k, float wide, float* limits) {
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= m) return;
    int values[MAX_GROUPS / 32];
#pragma unroll
    for (int i = 0; i < MAX_GROUPS / 32; ++i) {
        const int g = 32 * i + lane;
        values[i] = g < groups ? max(__float_as_int(minima[(int64)row * groups + g]), 0) : 0x7fffffff;
    }
    int low = 0;  // the largest number that fewer than k values are below
    for (int bit = 30; bit >= 0; --bit) {
        const int middle = low | 1 << bit;
        int below = 0;
#pragma unroll
        for (int i = 0; i < MAX_GROUPS / 32; ++i) below += values[i] < middle;
        below = __reduce_add_sync(0xffffffffu, below);
        if (below < k) low = middle;
    }
    if (lane == 0) limits[row] = fminf(limits[row], low >= 0x7f800000 ? infinity() : __int_as_float(low) * wide);
}

// The k nearest of what is known and of the listed columns, by (s, number); a warp a row, whose keys lie in shared
// memory. Rows with more listed columns than `room` are left as they are.
#define MAX_KEYS 2048
#define WARPS 2
extern "C" __global__ void select_nearest(const float* x, int m, const float* y, int d, const int* columns,
                                          const int* counts, int room, int k, int64 y_start, const int64* own,
                                          float* near, int64* near_index) {
    __shared__ uint64 shared[WARPS][MAX_KEYS];
    const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, row = blockIdx.x * WARPS + warp;
    if (row >= m || counts[row] > room) return;
    uint64* keys = shared[warp];
    const int listed = counts[row], known = k;
    int size = 32;
    while (size < listed + known) size <<= 1;
    for (int i = lane; i < size; i += 32) {
        uint64 key = ~0ull;
        if (i < known) {
            const int64 index = near_index[(int64)row * k + i];
            if (index >= 0) key = (uint64)__float_as_uint(near[(int64)row * k + i]) << 32 | (uint64)index;
        } else if (i < known + listed) {
            const int column = columns[(int64)row * room + i - known];
            const float s = distance(x + (int64)row * d, y + (int64)column * d, d);
            if (y_start + column != own[row]) key = (uint64)__float_as_uint(s) << 32 | (uint64)(y_start + column);
        }
        keys[i] = key;
    }
    for (int span = 2; span <= size; span <<= 1)
        for (int step = span >> 1; step; step >>= 1) {
            __syncwarp();
            for (int i = lane; i < size / 2; i += 32) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                const uint64 first = keys[a], second = keys[b];
                if ((first > second) == ((a & span) == 0)) { keys[a] = second; keys[b] = first; }
            }
        }
    __syncwarp();
    for (int i = lane; i < k; i += 32) {
        const bool there = keys[i] != ~0ull;
        near[(int64)row * k + i] = there ? __uint_as_float((unsigned int)(keys[i] >> 32)) : infinity();
        near_index[(int64)row * k + i] = there ? (int64)(keys[i] & 0xffffffffu) : -1;
    }
}
