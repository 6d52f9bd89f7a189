// All-pairs reductions for few features (DIM <= 16): direct differences from registers and shared memory.
//
// One thread owns ROWS rows, in registers. The columns of a tile lie in shared memory feature by feature
// (structure of arrays), so that one 16-byte read serves four columns and, being the same address for the
// whole warp, is a broadcast. Per pair and feature: one subtraction and one fused multiply-add; nothing
// is written but the reduction.
//
// Limits on one H200 (132 multiprocessors, 1.98 GHz), DIM = 2: the Gaussian is bound by ex2.approx (16 a
// clock and multiprocessor: 4.0e12 pairs/s), counting by instruction issue (128 a clock; 4 for s, 3 to
// classify: 4.8e12 pairs/s).
//
// grid: x over rows, y over runs of `columns_per_block` columns.
#include "pairs/pairs.cuh"

#define TILE 256
#define THREADS 128
#define COLUMNS 4


__device__ __forceinline__ int row_of(int r) { return (blockIdx.x * ROWS + r) * THREADS + threadIdx.x; }

// Calls op.group(s, ...) for every group of COLUMNS columns from start to stop, and op.end_tile() after each TILE.
template <class Op>
__device__ __forceinline__ void sweep_columns(const real* __restrict__ x, int m, const real* __restrict__ y, int start,
                                              int stop, Op& op) {
    __shared__ __align__(16) real tile[DIM][TILE];
    real own[ROWS][DIM];
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int f = 0; f < DIM; ++f) own[r][f] = row_of(r) < m ? x[(int64)row_of(r) * DIM + f] : infinity();

    for (int t = start; t < stop; t += TILE) {
        __syncthreads();
        for (int c = threadIdx.x; c < TILE; c += THREADS)
#pragma unroll
            for (int f = 0; f < DIM; ++f)  // an absent column lies at infinity, where no reduction sees it
                tile[f][c] = t + c < stop ? y[(int64)(t + c) * DIM + f] : -infinity();
        op.load_tile(t, stop);
        __syncthreads();
#pragma unroll 2
        for (int c = 0; c < TILE; c += COLUMNS) {
            real s[ROWS][COLUMNS];
#pragma unroll
            for (int f = 0; f < DIM; ++f) {
                real b[COLUMNS];
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j) b[j] = tile[f][c + j];
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
#pragma unroll
                    for (int j = 0; j < COLUMNS; ++j) s[r][j] = accumulate(own[r][f], b[j], f ? s[r][j] : (real)0);
            }
            op.group(s, t, c);
        }
        op.end_tile();
    }
}

// The columns of this block's run.
template <class Op>
__device__ __forceinline__ void sweep(const real* __restrict__ x, int m, const real* __restrict__ y, int k,
                                      int columns_per_block, Op& op) {
    const int start = blockIdx.y * columns_per_block;
    sweep_columns(x, m, y, start, min(k, start + columns_per_block), op);
}

struct Histogram {
    Bracket bracket;
    bool diagonal;
    uint64* out;
    uint64 below = 0;
    unsigned int tile_below = 0;
    __device__ void load_tile(int, int) {}
    __device__ __forceinline__ void group(real (&s)[ROWS][COLUMNS], int t, int c) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            bool inside = false;
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                if (diagonal && row_of(r) >= t + c + j) s[r][j] = infinity();
                const sbits u = Bits<real>::of(s[r][j]) - bracket.low;
                tile_below += (unsigned int)((ubits)u >> (8 * sizeof(real) - 1));
                inside |= (ubits)u < bracket.width;
            }
            if (inside) {  // rare: one test for ROWS pairs keeps the common path short
#pragma unroll
                for (int r = 0; r < ROWS; ++r) {
                    const ubits u = (ubits)(Bits<real>::of(s[r][j]) - bracket.low);
                    if (u < bracket.width) atomicAdd(out + 1 + (u >> bracket.shift), 1ull);
                }
            }
        }
    }
    __device__ void end_tile() { below += tile_below; tile_below = 0; }
};

extern "C" __global__ void __launch_bounds__(THREADS)
histogram(const real* x, int m, const real* y, int k, int columns_per_block, sbits low, ubits width, int shift,
          bool diagonal, uint64* out) {
    // An absent row against an absent column: inf - -inf is inf too, so that neither is counted.
    Histogram op;
    op.bracket = Bracket{low, width, shift};
    op.diagonal = diagonal;
    op.out = out;
    int start = blockIdx.y * columns_per_block;
    const int stop = min(k, start + columns_per_block);
    if (diagonal) start = max(start, (int)blockIdx.x * ROWS * THREADS / TILE * TILE);  // no column before is counted
    sweep_columns(x, m, y, start, stop, op);
    add_warp_total(op.below, out);
}

struct Gaussian {
    real scale;             // includes log2(e)
    bool square;
    int self[ROWS];         // the row itself, or a column equal to it: left out, or a small sum would drown in its 1
    bool meets_itself;
    real part[ROWS];
    double total[ROWS];
    __device__ void load_tile(int t, int) {
        meets_itself = false;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) meets_itself |= (unsigned int)(self[r] - t) < TILE;
    }
    __device__ __forceinline__ void group(real (&s)[ROWS][COLUMNS], int t, int c) {
        if (meets_itself) {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (self[r] == t + c + j) s[r][j] = infinity();
        }
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j)
#pragma unroll
            for (int r = 0; r < ROWS; ++r) {
                const real power = square ? s[r][j] * s[r][j] : s[r][j];
                part[r] += exp2_of_minus(power * scale);
            }
    }
    __device__ void end_tile() {
#pragma unroll
        for (int r = 0; r < ROWS; ++r) { total[r] += (double)part[r]; part[r] = 0; }
    }
};

template <bool SQUARE>
__device__ __forceinline__ void gaussian_of(const real* x, int m, const real* y, int k, real scale, const int* self,
                                            double* groups) {
    Gaussian op;
    op.scale = scale;
    op.square = SQUARE;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        op.part[r] = 0;
        op.total[r] = 0;
        op.self[r] = row_of(r) < m ? self[row_of(r)] : -1;
    }
    sweep(x, m, y, k, GROUP, op);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row_of(r) < m) groups[(int64)blockIdx.y * m + row_of(r)] = op.total[r];
}

extern "C" __global__ void __launch_bounds__(THREADS)
gaussian(const real* x, int m, const real* y, int k, real scale, const int* self, double* groups) {
    gaussian_of<false>(x, m, y, k, scale, self, groups);
}

extern "C" __global__ void __launch_bounds__(THREADS)
gaussian_squared(const real* x, int m, const real* y, int k, real scale, const int* self, double* groups) {
    gaussian_of<true>(x, m, y, k, scale, self, groups);
}

struct Count {
    real threshold;
    int inside[ROWS];
    __device__ void load_tile(int, int) {}
    __device__ __forceinline__ void group(const real (&s)[ROWS][COLUMNS], int, int) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) inside[r] += s[r][j] < threshold;
    }
    __device__ void end_tile() {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
count(const real* x, int m, const real* y, int k, int columns_per_block, real threshold, uint64* out) {
    Count op;
    op.threshold = threshold;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) op.inside[r] = 0;
    sweep(x, m, y, k, columns_per_block, op);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row_of(r) < m) atomicAdd(out + row_of(r), (uint64)op.inside[r]);
}

__shared__ int tile_tag[TILE];  // what a column carries beside its features: its density order, or its label

struct Nearest {
    const int* y_order;
    real best[ROWS];
    int index[ROWS];
    int order[ROWS];
    __device__ void load_tile(int t, int stop) {
        for (int c = threadIdx.x; c < TILE; c += THREADS) tile_tag[c] = t + c < stop ? y_order[t + c] : 0x7fffffff;
    }
    __device__ __forceinline__ void group(const real (&s)[ROWS][COLUMNS], int t, int c) {
        int other[COLUMNS];
        bool better = false;
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            other[j] = tile_tag[c + j];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) better |= (other[j] < order[r]) & (s[r][j] < best[r]);
        }
        if (better) {
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)  // ascending, so that of equal distances the lower index stays
#pragma unroll
                for (int r = 0; r < ROWS; ++r)
                    if (other[j] < order[r] && s[r][j] < best[r]) { best[r] = s[r][j]; index[r] = t + c + j; }
        }
    }
    __device__ void end_tile() {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
nearest(const real* x, int m, const real* y, int k, int columns_per_block, const int* x_order, const int* y_order,
        const real* best, real* part_best, int* part_index) {
    Nearest op;
    op.y_order = y_order;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        const int row = row_of(r);
        op.best[r] = row < m ? best[row] : (real)0;
        op.order[r] = row < m ? x_order[row] : -1;
        op.index[r] = -1;
    }
    sweep(x, m, y, k, columns_per_block, op);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row_of(r) < m) {
            part_best[(int64)blockIdx.y * m + row_of(r)] = op.best[r];
            part_index[(int64)blockIdx.y * m + row_of(r)] = op.index[r];
        }
}

// The least distances of each row to four groups of the columns of a run. groups[row][COLUMNS * blockIdx.y + group]
struct Minima {
    real least[ROWS][COLUMNS];
    __device__ void load_tile(int, int) {}
    __device__ __forceinline__ void group(const real (&s)[ROWS][COLUMNS], int, int) {
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) least[r][j] = s[r][j] < least[r][j] ? s[r][j] : least[r][j];
    }
    __device__ void end_tile() {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
minima(const real* x, int m, const real* y, int k, int columns_per_block, real* groups) {
    Minima op;
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) op.least[r][j] = infinity();
    sweep(x, m, y, k, columns_per_block, op);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row_of(r) < m)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j)
                groups[((int64)row_of(r) * gridDim.y + blockIdx.y) * COLUMNS + j] = op.least[r][j];
}

struct Collect {
    real limit[ROWS];
    int *columns, *counts;
    int room;
    __device__ void load_tile(int, int) {}
    __device__ __forceinline__ void group(const real (&s)[ROWS][COLUMNS], int t, int c) {
        bool near = false;
#pragma unroll
        for (int r = 0; r < ROWS; ++r)
#pragma unroll
            for (int j = 0; j < COLUMNS; ++j) near |= s[r][j] <= limit[r];
        if (near) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r)
#pragma unroll
                for (int j = 0; j < COLUMNS; ++j)
                    if (s[r][j] <= limit[r] && s[r][j] < infinity()) {
                        const int at = atomicAdd(counts + row_of(r), 1);
                        if (at < room) columns[(int64)row_of(r) * room + at] = t + c + j;
                    }
        }
    }
    __device__ void end_tile() {}
};

// Every column with s at most limits[row]: columns[row][at]; counts go on where there is no more room.
extern "C" __global__ void __launch_bounds__(THREADS)
collect(const real* x, int m, const real* y, int k, int columns_per_block, const real* limits, int* columns, int* counts,
        int room) {
    Collect op;
    op.columns = columns;
    op.counts = counts;
    op.room = room;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) op.limit[r] = row_of(r) < m ? limits[row_of(r)] : -infinity();
    sweep(x, m, y, k, columns_per_block, op);
}

struct Border {
    const int* y_labels;
    real threshold;
    int label[ROWS];
    bool found[ROWS];
    __device__ void load_tile(int t, int stop) {
        for (int c = threadIdx.x; c < TILE; c += THREADS) tile_tag[c] = t + c < stop ? y_labels[t + c] : -1;
    }
    __device__ __forceinline__ void group(const real (&s)[ROWS][COLUMNS], int, int c) {
#pragma unroll
        for (int j = 0; j < COLUMNS; ++j) {
            const int other = tile_tag[c + j];
#pragma unroll
            for (int r = 0; r < ROWS; ++r) found[r] |= (s[r][j] < threshold) & (other != label[r]);
        }
    }
    __device__ void end_tile() {}
};

extern "C" __global__ void __launch_bounds__(THREADS)
border(const real* x, int m, const real* y, int k, int columns_per_block, const int* x_labels, const int* y_labels,
       real threshold, unsigned char* out) {
    Border op;
    op.y_labels = y_labels;
    op.threshold = threshold;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        op.label[r] = row_of(r) < m ? x_labels[row_of(r)] : -1;
        op.found[r] = false;
    }
    sweep(x, m, y, k, columns_per_block, op);
#pragma unroll
    for (int r = 0; r < ROWS; ++r)
        if (row_of(r) < m && op.found[r]) out[row_of(r)] = 1;  // every writer writes the same
}

__device__ __forceinline__ float root_of(float s) {
    float d;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(d) : "f"(s));  // relative error 2^-22; s below 2^-126 counts as 0
    return d;
}
__device__ __forceinline__ double root_of(double s) { return sqrt(s); }

// Sums by cluster. The columns come sorted by cluster, in partial sums that begin at multiples of four: four columns are
// of one partial sum, perhaps with padding behind them (clusters < 0). `ends` tells, of each four columns, whether the
// partial sum is then added to the integer total (1), and whether that total then belongs to the cluster's sum (3).
struct ClusterSum {
    const int* clusters_of;
    const int* ends_of;
    bool root;
    double scale;
    int m, clusters;
    uint64* out;
    int *ends, *counts, *cluster;   // shared: of each four columns of the tile
    real part[ROWS];
    int64 total[ROWS];
    __device__ void load_tile(int t, int stop) {
        for (int q = threadIdx.x; q < TILE / 4; q += THREADS) {
            const bool there = t + 4 * q < stop;
            ends[q] = there ? ends_of[t / 4 + q] : 0;
            cluster[q] = there ? clusters_of[t + 4 * q] : 0;
            counts[q] = 0;
            for (int j = 0; there && j < 4; ++j) counts[q] += clusters_of[t + 4 * q + j] >= 0;
        }
    }
    __device__ __forceinline__ real of(real s) const { return root ? root_of(s) : s; }
    __device__ __forceinline__ void group(real (&s)[ROWS][COLUMNS], int, int c) {
        const int count = counts[c / 4];
        if (count == 4) {
#pragma unroll
            for (int r = 0; r < ROWS; ++r) part[r] += (of(s[r][0]) + of(s[r][1])) + (of(s[r][2]) + of(s[r][3]));
        } else {
#pragma unroll
            for (int j = 0; j < 3; ++j)
                if (j < count)
#pragma unroll
                    for (int r = 0; r < ROWS; ++r) part[r] += of(s[r][j]);
        }
        const int end = ends[c / 4];
        if (end == 0) return;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            total[r] += __double2ll_rn((double)part[r] * scale);
            part[r] = 0;
        }
        if (end == 1) return;
#pragma unroll
        for (int r = 0; r < ROWS; ++r) {
            const int row = row_of(r);
            if (row < m) atomicAdd(out + (int64)row * clusters + cluster[c / 4], (uint64)total[r]);
            total[r] = 0;
        }
    }
    __device__ void end_tile() {}
};

// Runs begin where a partial sum does, and the last four columns of each have ends = 3.
extern "C" __global__ void __launch_bounds__(THREADS)
cluster_sums(const real* x, int m, const real* y, const int* runs, const int* clusters_of, const int* ends_of,
             bool root, double scale, int clusters, uint64* out) {
    __shared__ int ends[TILE / 4], counts[TILE / 4], cluster[TILE / 4];
    ClusterSum op;
    op.clusters_of = clusters_of;
    op.ends_of = ends_of;
    op.root = root;
    op.scale = scale;
    op.m = m;
    op.clusters = clusters;
    op.out = out;
    op.ends = ends;
    op.counts = counts;
    op.cluster = cluster;
#pragma unroll
    for (int r = 0; r < ROWS; ++r) {
        op.part[r] = 0;
        op.total[r] = 0;
    }
    sweep_columns(x, m, y, runs[blockIdx.y], runs[blockIdx.y + 1], op);
}
