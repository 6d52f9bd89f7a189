// All-pairs reductions for many features (d > 16): a blocked product whose tile never leaves the registers.
//
// A block of 256 threads owns SIDE rows and walks over its run of columns, SIDE at a time. For each tile the
// features pass through shared memory in slices of DEPTH, double-buffered; a thread accumulates the
// MICRO x MICRO values s of its rows and columns, and reduces them at once. Compared with a library
// product followed by a second kernel, the n x k tile is neither written nor read back, and each value is
// summed over the features in ascending order whatever the shape of the call: the same bits always.
//
// NORM_DOT needs one fused multiply-add per feature and pair, NORM_L2 and NORM_L1 two operations, which is
// the limit of each (H200: 132 x 128 x 1.98 GHz = 33.5e12 operations/s; d = 128: 2.6e11 or 1.3e11 pairs/s;
// measured 1.4e11 and 1.0e11). NORM_DOT cancels, so only the Gaussian sum is compiled with it. Where a threshold
// decides, deciding the doubtful pairs again by direct differences cost more in here than it saved (nearest: 4.1e10
// pairs/s, histogram 0.7e11 to 1.0e11), so these kernels take direct differences for all pairs. On tensor cores it
// pays: split_products.cu.
//
// One file because each reduction is a few lines behind the same sweep over the tiles.
#include "pairs/pairs.cuh"
#include "toolkit/tie_noise.cuh"

#define SIDE 128
#define MICRO 8
#define DEPTH 8
#define THREADS 256
#define RESIDENT (sizeof(real) == 4 ? 2 : 1)  // blocks a multiprocessor holds: 128 or 255 registers a thread

struct Shared {
    real a[2][DEPTH][SIDE];
    real b[2][DEPTH][SIDE];
};

// Thread (ty, tx) owns rows 4 ty + {0..3}, 64 + 4 ty + {0..3}, and columns likewise with tx.
__device__ __forceinline__ int spread_of(int t, int i) { return (i < 4 ? 0 : SIDE / 2) + 4 * t + (i & 3); }

// Four consecutive features of one row, zeros past the end.
__device__ __forceinline__ void fetch(const real* __restrict__ rows, int row, int limit, int f, int d, real (&v)[4]) {
    if (row < limit && f + 4 <= d && sizeof(real) == 4 && (d & 3) == 0) {
        const float4 w = *reinterpret_cast<const float4*>(rows + (int64)row * d + f);
        v[0] = w.x; v[1] = w.y; v[2] = w.z; v[3] = w.w;
    } else {
#pragma unroll
        for (int i = 0; i < 4; ++i) v[i] = row < limit && f + i < d ? rows[(int64)row * d + f + i] : (real)0;
    }
}

// Calls op.load_columns() before, op.row() for each of a thread's rows and op.end_tile() after every tile.
template <class Op>
__device__ __forceinline__ void sweep_columns(const real* __restrict__ x, int m, const real* __restrict__ y, int d,
                                              const real* __restrict__ x_norms, const real* __restrict__ y_norms,
                                              int start, int stop, Op& op) {
    __shared__ __align__(16) Shared sh;
    const int tx = threadIdx.x & 15, ty = threadIdx.x >> 4;
    const int row0 = blockIdx.x * SIDE;
    const int load_row = threadIdx.x >> 1, load_f = (threadIdx.x & 1) * 4;

    for (int t = start; t < stop; t += SIDE) {
        real s[MICRO][MICRO];
#pragma unroll
        for (int i = 0; i < MICRO; ++i)
#pragma unroll
            for (int j = 0; j < MICRO; ++j) s[i][j] = 0;

        real va[4], vb[4];
        fetch(x, row0 + load_row, m, load_f, d, va);
        fetch(y, t + load_row, stop, load_f, d, vb);
        __syncthreads();  // the last tile's slices are no longer read
#pragma unroll
        for (int i = 0; i < 4; ++i) { sh.a[0][load_f + i][load_row] = va[i]; sh.b[0][load_f + i][load_row] = vb[i]; }
        __syncthreads();
        int buffer = 0;
        for (int f = 0; f < d; f += DEPTH) {
            const bool more = f + DEPTH < d;
            if (more) {
                fetch(x, row0 + load_row, m, f + DEPTH + load_f, d, va);
                fetch(y, t + load_row, stop, f + DEPTH + load_f, d, vb);
            }
#pragma unroll
            for (int q = 0; q < DEPTH; ++q) {
                real a[MICRO], b[MICRO];
#pragma unroll
                for (int i = 0; i < MICRO; ++i) { a[i] = sh.a[buffer][q][spread_of(ty, i)]; b[i] = sh.b[buffer][q][spread_of(tx, i)]; }
#pragma unroll
                for (int i = 0; i < MICRO; ++i)
#pragma unroll
                    for (int j = 0; j < MICRO; ++j)
#if NORM == NORM_DOT
                        s[i][j] = fma(a[i], b[j], s[i][j]);
#else
                        s[i][j] = accumulate(a[i], b[j], s[i][j]);
#endif
            }
            if (more) {
                buffer ^= 1;
#pragma unroll
                for (int i = 0; i < 4; ++i) { sh.a[buffer][load_f + i][load_row] = va[i]; sh.b[buffer][load_f + i][load_row] = vb[i]; }
                __syncthreads();
            }
        }
        op.load_columns(t, stop, tx, reinterpret_cast<real*>(&sh));
#pragma unroll
        for (int i = 0; i < MICRO; ++i) {
            const int row = row0 + spread_of(ty, i);
#pragma unroll
            for (int j = 0; j < MICRO; ++j) {
                const int column = t + spread_of(tx, j);
#if NORM == NORM_DOT
                const real norms = row < m && column < stop ? x_norms[row] + y_norms[column] : infinity();
                s[i][j] = fmax(fma((real)-2, s[i][j], norms), (real)0);
#else
                if (row >= m || column >= stop) s[i][j] = infinity();
#endif
            }
            op.row(spread_of(ty, i), row, s[i], t, tx);
        }
        op.end_tile(t, stop);
    }
}

// The columns of this block's run.
template <class Op>
__device__ __forceinline__ void sweep(const real* __restrict__ x, int m, const real* __restrict__ y, int k, int d,
                                      const real* __restrict__ x_norms, const real* __restrict__ y_norms,
                                      int columns_per_block, Op& op) {
    const int start = blockIdx.y * columns_per_block;
    sweep_columns(x, m, y, d, x_norms, y_norms, start, min(k, start + columns_per_block), op);
}

// What most reductions need not do.
struct Reduction {
    __device__ void load_columns(int, int, int, real*) {}
    __device__ void end_tile(int, int) {}
};

// Squared lengths, summed over the features in ascending order: one value per row, of that row alone.
extern "C" __global__ void squared_norms(const real* x, int m, int d, real* out) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    real s = 0;
#pragma unroll 4
    for (int f = 0; f < d; ++f) { const real v = x[(int64)row * d + f]; s = fma(v, v, s); }
    out[row] = s;
}

struct Histogram : Reduction {
    Bracket bracket;
    bool diagonal;
    uint64* out;
    unsigned int below = 0;
    __device__ __forceinline__ void row(int, int row, const real (&s)[MICRO], int t, int tx) {
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            if (diagonal && row >= t + spread_of(tx, j)) continue;
            const sbits u = Bits<real>::of(s[j]) - bracket.low;
            below += u < 0;
            if ((ubits)u < bracket.width) atomicAdd(out + 1 + ((ubits)u >> bracket.shift), 1ull);
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
histogram(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
          int columns_per_block, sbits low, ubits width, int shift, bool diagonal, uint64* out) {
    Histogram op;
    op.bracket = Bracket{low, width, shift};
    op.diagonal = diagonal;
    op.out = out;
    int start = blockIdx.y * columns_per_block;
    const int stop = min(k, start + columns_per_block);
    if (diagonal) start = max(start, (int)blockIdx.x * SIDE);  // no column before is counted
    sweep_columns(x, m, y, d, x_norms, y_norms, start, stop, op);
    add_warp_total(op.below, out);
}

struct Gaussian : Reduction {
    real scale;             // includes log2(e)
    bool square;
    double* total;          // shared, one per row of the block
    const int* self;        // shared: the column that is left out, the row itself or one equal to it
    __device__ __forceinline__ void row(int local, int, const real (&s)[MICRO], int t, int tx) {
        real part = 0;
        const int own = self[local] - t;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const real e = exp2_of_minus((square ? s[j] * s[j] : s[j]) * scale);
            part += own == spread_of(tx, j) ? (real)0 : e;
        }
        for (int step = 8; step; step >>= 1) part += __shfl_xor_sync(0xffffffffu, part, step);
        if (tx == 0) total[local] += (double)part;  // the 16 threads of a row share a warp; one of them adds
    }
};

template <bool SQUARE>
__device__ __forceinline__ void gaussian_of(const real* x, int m, const real* y, int k, int d, const real* x_norms,
                                            const real* y_norms, real scale, const int* self_of, double* groups) {
    __shared__ double total[SIDE];
    __shared__ int self[SIDE];
    const int row = blockIdx.x * SIDE + threadIdx.x;
    if (threadIdx.x < SIDE) {
        total[threadIdx.x] = 0;
        self[threadIdx.x] = row < m ? self_of[row] : -1;
    }
    Gaussian op;
    op.scale = scale;
    op.square = SQUARE;
    op.total = total;
    op.self = self;
    sweep(x, m, y, k, d, x_norms, y_norms, GROUP, op);
    __syncthreads();
    if (threadIdx.x < SIDE && row < m) groups[(int64)blockIdx.y * m + row] = total[threadIdx.x];
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
gaussian(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms, real scale,
         const int* self, double* groups) {
    gaussian_of<false>(x, m, y, k, d, x_norms, y_norms, scale, self, groups);
}

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
gaussian_squared(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
                 real scale, const int* self, double* groups) {
    gaussian_of<true>(x, m, y, k, d, x_norms, y_norms, scale, self, groups);
}

struct Count : Reduction {
    real threshold;
    int* inside;            // shared
    __device__ __forceinline__ void row(int local, int, const real (&s)[MICRO], int, int tx) {
        int part = 0;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) part += s[j] < threshold;
        for (int step = 8; step; step >>= 1) part += __shfl_xor_sync(0xffffffffu, part, step);
        if (tx == 0) inside[local] += part;
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
count(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
      int columns_per_block, real threshold, uint64* out) {
    __shared__ int inside[SIDE];
    if (threadIdx.x < SIDE) inside[threadIdx.x] = 0;
    Count op;
    op.threshold = threshold;
    op.inside = inside;
    sweep(x, m, y, k, d, x_norms, y_norms, columns_per_block, op);
    __syncthreads();
    const int row = blockIdx.x * SIDE + threadIdx.x;
    if (threadIdx.x < SIDE && row < m) atomicAdd(out + row, (uint64)inside[threadIdx.x]);
}

struct Nearest : Reduction {
    const int* y_order;
    real* best;             // shared, one per row of the block
    int* index;
    const int* order;
    int other[MICRO];       // density orders of this thread's columns
    __device__ void load_columns(int t, int stop, int tx, real*) {
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const int column = t + spread_of(tx, j);
            other[j] = column < stop ? y_order[column] : 0x7fffffff;
        }
    }
    __device__ __forceinline__ void row(int local, int, const real (&s)[MICRO], int t, int tx) {
        real mine = best[local];
        const int limit = order[local];
        int at = -1;
#pragma unroll
        for (int j = 0; j < MICRO; ++j)  // ascending columns: of equal distances the lower index stays
            if (other[j] < limit && s[j] < mine) { mine = s[j]; at = t + spread_of(tx, j); }
        if (__any_sync(0xffffffffu, at >= 0)) {  // rare: the 16 threads of the row agree on the smallest (s, column)
            for (int step = 8; step; step >>= 1) {
                const real s2 = __shfl_xor_sync(0xffffffffu, mine, step);
                const int at2 = __shfl_xor_sync(0xffffffffu, at, step);
                // at = -1: nothing new; such a value stands for an earlier column and wins a tie
                if (s2 < mine || (s2 == mine && at2 < at)) { mine = s2; at = at2; }
            }
            if (tx == 0 && at >= 0) { best[local] = mine; index[local] = at; }
            __syncwarp();
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
nearest(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
        int columns_per_block, const int* x_order, const int* y_order, const real* best_before, real* part_best,
        int* part_index) {
    __shared__ real best[SIDE];
    __shared__ int index[SIDE], order[SIDE];
    const int row = blockIdx.x * SIDE + threadIdx.x;
    if (threadIdx.x < SIDE) {
        best[threadIdx.x] = row < m ? best_before[row] : (real)0;
        order[threadIdx.x] = row < m ? x_order[row] : -1;
        index[threadIdx.x] = -1;
    }
    Nearest op;
    op.y_order = y_order;
    op.best = best;
    op.index = index;
    op.order = order;
    sweep(x, m, y, k, d, x_norms, y_norms, columns_per_block, op);
    __syncthreads();
    if (threadIdx.x < SIDE && row < m) {
        part_best[(int64)blockIdx.y * m + row] = best[threadIdx.x];
        part_index[(int64)blockIdx.y * m + row] = index[threadIdx.x];
    }
}

struct Border : Reduction {
    const int* y_labels;
    real threshold;
    const int* label;       // shared
    int* found;             // shared
    int other[MICRO];
    __device__ void load_columns(int t, int stop, int tx, real*) {
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const int column = t + spread_of(tx, j);
            other[j] = column < stop ? y_labels[column] : -1;
        }
    }
    __device__ __forceinline__ void row(int local, int, const real (&s)[MICRO], int, int) {
        bool any = false;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) any |= (s[j] < threshold) & (other[j] != label[local]);
        if (any) found[local] = 1;  // every writer writes the same
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
border(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
       int columns_per_block, const int* x_labels, const int* y_labels, real threshold, unsigned char* out) {
    __shared__ int label[SIDE], found[SIDE];
    const int row = blockIdx.x * SIDE + threadIdx.x;
    if (threadIdx.x < SIDE) {
        label[threadIdx.x] = row < m ? x_labels[row] : -1;
        found[threadIdx.x] = 0;
    }
    Border op;
    op.y_labels = y_labels;
    op.threshold = threshold;
    op.label = label;
    op.found = found;
    sweep(x, m, y, k, d, x_norms, y_norms, columns_per_block, op);
    __syncthreads();
    if (threadIdx.x < SIDE && row < m && found[threadIdx.x]) out[row] = 1;
}

// The tile itself, for what needs every value: columns count from the first of the call.
struct Store : Reduction {
    real* out;
    int64 stride;
    int stop;
    bool root;
    __device__ void load_columns(int, int last, int, real*) { stop = last; }
    __device__ __forceinline__ void row(int, int row, const real (&s)[MICRO], int t, int tx) {
        if (row >= rows) return;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const int column = t + spread_of(tx, j);
            if (column < stop) out[row * stride + column] = root ? sqrt(s[j]) : s[j];
        }
    }
    int rows;
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
distances(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
          int columns_per_block, bool root, int64 stride, real* out) {
    Store op;
    op.out = out;
    op.stride = stride;
    op.root = root;
    op.rows = m;
    sweep(x, m, y, k, d, x_norms, y_norms, columns_per_block, op);
}

struct Similarity : Reduction {
    real factor;
    const int64* numbers;   // of the rows; null: they follow each other from first_row on
    int first_row, y_start, rows, stop;
    Noise noise;
    int64 stride;
    real* out;
    __device__ void load_columns(int, int last, int, real*) { stop = last; }
    __device__ __forceinline__ void row(int, int row, const real (&s)[MICRO], int t, int tx) {
        if (row >= rows) return;
        const int number = number_of_row(numbers, first_row, row);
#pragma unroll
        for (int half = 0; half < MICRO; half += 4) {
            const int column = t + spread_of(tx, half);
            const int first = y_start + column;  // a multiple of 4
            const unsigned int word = word_of(noise.words(number, first & ~15), first / 4 & 3);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const bool itself = number == y_start + column + j;
                const real v = itself ? -infinity() : noise.add(-factor * s[half + j], word >> (8 * j));
                if (column + j < stop) out[row * stride + y_start + column + j] = v;
            }
        }
    }
};

extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
similarities(const real* x, int m, const real* y, int k, int d, const real* x_norms, const real* y_norms,
             int columns_per_block, real factor, const int64* numbers, int first_row, int y_start, uint64 seed, real tiny,
             int64 stride, real* out) {
    Similarity op;
    op.factor = factor;
    op.numbers = numbers;
    op.first_row = first_row;
    op.y_start = y_start;
    op.rows = m;
    op.noise = Noise{seed, 0, tiny};
    op.stride = stride;
    op.out = out;
    sweep(x, m, y, k, d, x_norms, y_norms, columns_per_block, op);
}

// Sums by cluster. The columns come sorted by cluster, in partial sums that begin at multiples of four: four columns of
// one thread are of one partial sum, or padding (clusters < 0). A tile's sums of four go through shared memory, where
// the slices of the features were, to one thread a row.
struct ClusterSum : Reduction {
    const int* clusters_of; // of each column, -1: padding
    const int* ends_of;     // of each four columns: 1 after the last of a partial sum, 3 after the last of a cluster
    bool root, counts[MICRO];
    double scale;
    int m, clusters;
    uint64* out;
    real* sums;             // shared, [SIDE / 4][SIDE], turned by one row for each four columns: no bank meets another
    real part = 0;          // of the row of this thread
    int64 total = 0;
    __device__ void load_columns(int t, int stop, int tx, real* scratch) {
        sums = scratch;
        __syncthreads();    // features are no longer read
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const int column = t + spread_of(tx, j);
            counts[j] = column < stop && clusters_of[column] >= 0;
        }
    }
    __device__ __forceinline__ void row(int local, int, const real (&s)[MICRO], int, int tx) {
#pragma unroll
        for (int half = 0; half < MICRO; half += 4) {
            real d[4];
#pragma unroll
            for (int j = 0; j < 4; ++j) d[j] = counts[half + j] ? (root ? sqrt(s[half + j]) : s[half + j]) : (real)0;
            const real sum = (d[0] + d[1]) + (d[2] + d[3]);
            const int four = half * (SIDE / 8) / 4 + tx;
            sums[four * SIDE + ((local + four) & (SIDE - 1))] = sum;
        }
    }
    __device__ void end_tile(int t, int stop) {
        __syncthreads();
        if (threadIdx.x >= SIDE) return;
        const int row = blockIdx.x * SIDE + threadIdx.x;
        for (int four = 0; four < SIDE / 4 && t + 4 * four < stop; ++four) {
            part += sums[four * SIDE + ((threadIdx.x + four) & (SIDE - 1))];
            const int end = ends_of[t / 4 + four];
            if (end == 0) continue;
            total += __double2ll_rn((double)part * scale);
            part = 0;
            if (end == 3) {
                if (row < m) atomicAdd(out + (int64)row * clusters + clusters_of[t + 4 * four], (uint64)total);
                total = 0;
            }
        }
    }
};

// Runs begin where a partial sum does, and end with one whose end is 3.
extern "C" __global__ void __launch_bounds__(THREADS, RESIDENT)
cluster_sums(const real* x, int m, const real* y, int d, const int* runs, const int* clusters_of, const int* ends_of,
             bool root, double scale, int clusters, uint64* out) {
    ClusterSum op;
    op.clusters_of = clusters_of;
    op.ends_of = ends_of;
    op.root = root;
    op.scale = scale;
    op.m = m;
    op.clusters = clusters;
    op.out = out;
    sweep_columns(x, m, y, d, x, y, runs[blockIdx.y], runs[blockIdx.y + 1], op);
}
