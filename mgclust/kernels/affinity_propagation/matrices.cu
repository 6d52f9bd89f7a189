// What is asked of matrices that are stored: own rows, `stride` columns of which the first n count; -inf is no value.
#include "pairs/pairs.cuh"
#include "toolkit/hashing.cuh"

#define THREADS 256
#define BINS 2048       // of the histogram in shared memory: a call has no more
#define STAGED 16       // rows that add_by_label holds in shared memory

// Similarities of few features, four columns a thread: direct differences, y in registers, x broadcast.
#ifdef DIM
extern "C" __global__ void __launch_bounds__(THREADS)
similarities_low(const real* __restrict__ x, int m, const real* __restrict__ y, int columns, real factor, int first_row,
                 int y_start, uint64 seed, real tiny, int64 stride, real* out) {
    const int k = (blockIdx.x * THREADS + threadIdx.x) * 4;
    if (k >= columns) return;
    const Noise noise{seed, 0, tiny};
    real b[4][DIM];
#pragma unroll
    for (int q = 0; q < 4; ++q)
#pragma unroll
        for (int f = 0; f < DIM; ++f) b[q][f] = k + q < columns ? y[(int64)(k + q) * DIM + f] : (real)0;
    for (int i = blockIdx.y; i < m; i += gridDim.y) {
        const unsigned int word = word_of(noise.words(first_row + i, (y_start + k) & ~15), (y_start + k) / 4 & 3);
#pragma unroll
        for (int q = 0; q < 4; ++q) {
            real s = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) s = accumulate(x[(int64)i * DIM + f], b[q][f], s);
            const bool itself = first_row + i == y_start + k + q;
            if (k + q < columns)
                out[i * stride + y_start + k + q] = itself ? -infinity() : noise.add(-factor * s, word >> (8 * q));
        }
    }
}
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
jitter(real* s, int m, int n, int64 stride, int first_row, uint64 seed, unsigned int draw, real tiny) {
    const int k = (blockIdx.x * THREADS + threadIdx.x) * 4;
    if (k >= n) return;
    const Noise noise{seed, draw, tiny};
    for (int i = blockIdx.y; i < m; i += gridDim.y) {
        const unsigned int word = word_of(noise.words(first_row + i, k & ~15), k / 4 & 3);
#pragma unroll
        for (int q = 0; q < 4; ++q)
            if (k + q < n) s[i * stride + k + q] = noise.add(s[i * stride + k + q], word >> (8 * q));
    }
}

// Integers in the order of the values, also of negative ones.
__device__ __forceinline__ sbits key_of(real v) {
    const sbits b = Bits<real>::of(v == 0 ? (real)0 : v);
    return b >= 0 ? b : b ^ (sbits)((ubits)-1 >> 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
value_histogram(const real* __restrict__ values, int m, int n, int64 stride, sbits low, int shift, int bins,
                uint64* out) {
    __shared__ unsigned int count[BINS + 1];
    for (int b = threadIdx.x; b <= BINS; b += THREADS) count[b] = 0;
    __syncthreads();
    for (int i = blockIdx.y; i < m; i += gridDim.y)
        for (int k = blockIdx.x * THREADS + threadIdx.x; k < n; k += gridDim.x * THREADS) {
            const real v = values[i * stride + k];
            if (!(v > -infinity())) continue;
            const sbits key = key_of(v);
            if (key < low) atomicAdd(count, 1u);
            else {
                const ubits b = ((ubits)key - (ubits)low) >> shift;
                if (b < (ubits)bins) atomicAdd(count + 1 + b, 1u);
            }
        }
    __syncthreads();
    for (int b = threadIdx.x; b <= bins; b += THREADS)
        if (count[b]) atomicAdd(out + b, (uint64)count[b]);
}

// One warp a row.
extern "C" __global__ void __launch_bounds__(THREADS)
best_columns(const real* __restrict__ s, int m, int64 stride, const int64* __restrict__ columns, int count, int* out) {
    const int row = blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= m) return;
    real best = -infinity();
    int at = 0x7fffffff;
    for (int p = lane; p < count; p += 32) {
        const real v = s[row * stride + columns[p]];
        if (v > best || at == 0x7fffffff) { best = v; at = p; }
    }
    for (int step = 16; step; step >>= 1) {
        const real other = __shfl_xor_sync(0xffffffffu, best, step);
        const int other_at = __shfl_xor_sync(0xffffffffu, at, step);
        if (other > best || (other == best && other_at < at)) { best = other; at = other_at; }
    }
    if (lane == 0) out[row] = at;
}

extern "C" __global__ void __launch_bounds__(THREADS)
same_label_sums(const real* __restrict__ s, int m, int n, int64 stride, int first_row, const int* __restrict__ labels,
                double scale, int rows_per_block, uint64* out) {
    const int k = blockIdx.x * THREADS + threadIdx.x;
    if (k >= n) return;
    const int mine = labels[k], stop = min(m, (int)(blockIdx.y + 1) * rows_per_block);
    int64 total = 0;
    for (int i = blockIdx.y * rows_per_block; i < stop; ++i)
        if (labels[first_row + i] == mine && first_row + i != k)
            total += __double2ll_rn((double)s[i * stride + k] * scale);
    if (total) atomicAdd(out + k, (uint64)total);
}

// Sums of each row's values by the labels of their columns. The columns of a group of GROUP come sorted by label, in
// pieces of one label and at most 32 columns; a piece is summed in order, and pieces are added as integers. `order`
// holds the columns of all labelings one after the other, piece_start where in it a piece begins, first_piece the first
// piece of each labeling and group.
extern "C" __global__ void __launch_bounds__(THREADS)
add_by_label(const real* __restrict__ values, int m, int n, int64 stride, int first, const int* __restrict__ order,
             const int* __restrict__ piece_start, const int* __restrict__ piece_label,
             const int* __restrict__ first_piece, int labelings, int groups, double scale, int clusters, uint64* out) {
    extern __shared__ __align__(16) unsigned char raw[];
    real* staged = reinterpret_cast<real*>(raw);    // [STAGED][GROUP + 1]: lanes of equal columns hit different banks
    const int row0 = blockIdx.x * STAGED, offset = blockIdx.y * GROUP, width = min(GROUP, n - offset);
    const int start = first + offset, group = start / GROUP;    // first: the column that `values` begins with
    for (int r = 0; r < STAGED; ++r)
        for (int k = threadIdx.x; k < width; k += THREADS) {
            const real v = row0 + r < m ? values[(int64)(row0 + r) * stride + offset + k] : (real)0;
            staged[r * (GROUP + 1) + k] = v > -infinity() ? v : (real)0;
        }
    __syncthreads();
    const int r = threadIdx.x % STAGED;
    if (row0 + r >= m) return;
    for (int l = 0; l < labelings; ++l) {
        const int begin = first_piece[l * (groups + 1) + group], last = first_piece[l * (groups + 1) + group + 1];
        for (int p = begin + threadIdx.x / STAGED; p < last; p += THREADS / STAGED) {
            real sum = 0;
            for (int q = piece_start[p]; q < piece_start[p + 1]; ++q)
                sum += staged[r * (GROUP + 1) + order[q] - start];
            atomicAdd(out + (int64)(row0 + r) * clusters + piece_label[p], (uint64)__double2ll_rn((double)sum * scale));
        }
    }
}

// out[label][feature] += x, in fixed point.
extern "C" __global__ void __launch_bounds__(THREADS)
group_sums(const real* __restrict__ x, int64 numbers, int d, const int* __restrict__ labels, double scale,
           uint64* out) {
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= numbers) return;
    const int64 row = at / d;
    const int f = (int)(at - row * d);
    atomicAdd(out + (int64)labels[row] * d + f, (uint64)__double2ll_rn((double)x[at] * scale));
}
