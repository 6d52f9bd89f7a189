// Sums over columns that share a label, of matrices that are stored: own rows, `stride` columns of which the first n
// count; -inf is no value. Sums of rows by label, and the largest of given columns.
#include "pairs/pairs.cuh"

#define THREADS 256
#define STAGED 16       // rows that add_by_label holds in shared memory

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
