// Fuzzy c-means: memberships and the sums that they weigh, in one pass over the rows.
//
// fuzzy_sums, for up to some thousand numbers of centres. A block takes a group of rows, tile by tile:
//
//   stage       the rows of a tile into shared memory, read from the device's memory once
//   distances   a thread holds ROWS rows x CLUSTERS centres of sums in registers; CLUSTER_LANES neighbouring threads
//               share a row's centres, SLICES neighbouring threads share its features
//   memberships of a row, by the threads that hold its distances; g = w u^m goes to shared memory
//   sums        a thread holds 8 clusters x 4 features of sum g x over every SPLITS-th row of the tile
//
// At the end of the group the sums of all threads are added in a fixed order and written as float64; `add_groups` adds the
// groups of a block of rows, in order. Nothing depends on how many blocks run, nor on which rows other devices have.
//
// Per row, centre and feature: a subtraction and two multiply-adds. Limits on one H200 (28.7e12 such instructions a second):
// n = 10M, d = 32, c = 16: 0.53 ms; reading the rows once: 0.30 ms.
//
// More centres: distances go to a tile in the cache (pairs/many_features.cu), `tile_memberships` turns them into g in place, and
// `tile_sums`, a matrix product, weighs the rows with them.
//
// Compiled with -DPOWER=0 for m = 2, where memberships are ratios and need no powers, else 1.
#include "pairs/pairs.cuh"
#include "fuzzy_c_means/memberships.cuh"

struct __align__(16) Four {
    real v[4];
};

// Sum of a double over the block, in a fixed order; valid in thread 0.
template <int COUNT>
__device__ __forceinline__ double block_sum(double value, double* scratch) {
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    __syncthreads();
    if ((threadIdx.x & 31) == 0) scratch[threadIdx.x / 32] = value;
    __syncthreads();
    double sum = 0;
    if (threadIdx.x == 0)
        for (int w = 0; w < COUNT / 32; ++w) sum += scratch[w];
    return sum;
}

// out[block, e] += the parts of the block's runs of rows, in order. Runs do not cross blocks.
template <typename T>
__device__ __forceinline__ void add_to_blocks(const T* __restrict__ partial, int64 first_row, int64 rows, int run_rows,
                                              int64 block_rows, int64 length, double* out) {
    const int64 e = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= length) return;
    const int64 block = first_row / block_rows + blockIdx.y;
    const int64 start = block * block_rows > first_row ? block * block_rows - first_row : 0;
    const int64 end = (block + 1) * block_rows - first_row, stop = end < rows ? end : rows;
    const int count = (int)((stop - start + run_rows - 1) / run_rows);
    partial += start / run_rows * length + e;
    double sum = out[blockIdx.y * length + e];
#pragma unroll 16  // loads at a time
    for (int run = 0; run < count; ++run) sum += (double)partial[run * length];
    out[blockIdx.y * length + e] = sum;
}

extern "C" __global__ void add_groups(const double* partial, int64 first_row, int64 rows, int run_rows, int64 block_rows,
                                      int64 length, double* out) {
    add_to_blocks(partial, first_row, rows, run_rows, block_rows, length, out);
}

extern "C" __global__ void add_pieces(const real* partial, int64 first_row, int64 rows, int run_rows, int64 block_rows,
                                      int64 length, double* out) {
    add_to_blocks(partial, first_row, rows, run_rows, block_rows, length, out);
}

#ifdef DIM

#define TILE_CLUSTERS 8
#define TILE_FEATURES 4
// The same arithmetic is in `Layout` in gpu.py.
#define CENTERS (CLUSTERS * CLUSTER_LANES)                       // with those that are none
#define ROW_GROUPS (THREADS / (CLUSTER_LANES * SLICES))
#define TILE_ROWS (ROWS * ROW_GROUPS)
#define QUADS ((DIM + 4 * SLICES - 1) / (4 * SLICES))            // of features, in each slice
#define PADDED (4 * SLICES * QUADS)
// Of a row in shared memory: the eight threads that are served together read from different banks.
#define STRIDE (SLICES >= 8 || QUADS % 2 ? PADDED : PADDED + 4 * SLICES)
#define U_STRIDE (CENTERS + 4)
#define FEATURE_TILES ((DIM + TILE_FEATURES - 1) / TILE_FEATURES)
#define SUM_TILES (CENTERS / TILE_CLUSTERS * FEATURE_TILES)
#define SPLITS (THREADS / SUM_TILES)
#define COLUMN_SPLITS (THREADS / CENTERS)
static_assert(CENTERS <= THREADS, "a thread for each centre");
static_assert(SUM_TILES <= THREADS, "a thread for each tile of sums");

__device__ __forceinline__ void stage_rows(const real* __restrict__ x, int64 first, int count, real* xs) {
    constexpr int VECTOR = DIM * sizeof(real) % 16 == 0 ? 16 / sizeof(real) : 1;  // rows begin at multiples of 16 bytes
    constexpr int WIDTH = DIM / VECTOR;
#pragma unroll 4
    for (int i = threadIdx.x; i < TILE_ROWS * WIDTH; i += THREADS) {
        const int row = i / WIDTH, f = i % WIDTH * VECTOR;
        const bool there = row < count;
        copy_later(xs + row * STRIDE + f, x + (first + (there ? row : 0)) * DIM + f, VECTOR * sizeof(real), there);
    }
}

// Half of the rows go to the thread across, half of its rows come back: COUNT rows of sums over two halves of the features.
template <int COUNT, int STEP>
__device__ __forceinline__ void exchange(real (&s)[ROWS][CLUSTERS]) {
    const bool upper = threadIdx.x & STEP;
#pragma unroll
    for (int i = 0; i < COUNT / 2; ++i)
#pragma unroll
        for (int j = 0; j < CLUSTERS; ++j) {
            const real away = upper ? s[i][j] : s[i + COUNT / 2][j];
            const real keep = upper ? s[i + COUNT / 2][j] : s[i][j];
            s[i][j] = keep + __shfl_xor_sync(0xffffffffu, away, STEP);
        }
}

// grid: x over models, y over groups of rows. partial: (groups, models, centres * DIM + centres + 3).
extern "C" __global__ void __launch_bounds__(THREADS)
fuzzy_sums(const real* __restrict__ x, int64 rows, const real* __restrict__ centers, int centers_count, real m,
           real slope, real log2_scale, const real* __restrict__ weights, int group_rows, double* partial) {
    const Powers powers{m, slope, log2_scale};
    extern __shared__ __align__(16) char memory[];
    real* xs = reinterpret_cast<real*>(memory);
    real* vs = xs + BUFFERS * TILE_ROWS * STRIDE;
    real* us = vs + CENTERS * STRIDE;
    __shared__ double scratch[THREADS / 32];

    const int slice = threadIdx.x % SLICES, lane = threadIdx.x / SLICES % CLUSTER_LANES;
    const int row_group = threadIdx.x / (SLICES * CLUSTER_LANES);
    const real* own_centers = centers + (int64)blockIdx.x * centers_count * DIM;
    for (int i = threadIdx.x; i < CENTERS * STRIDE; i += THREADS) {
        const int j = i / STRIDE, f = i % STRIDE;
        vs[i] = j < centers_count && f < DIM ? own_centers[(int64)j * DIM + f] : (real)0;
    }
    for (int i = threadIdx.x; i < BUFFERS * TILE_ROWS * (STRIDE - DIM); i += THREADS)
        xs[i / (STRIDE - DIM) * STRIDE + DIM + i % (STRIDE - DIM)] = 0;

    // SLICES threads have parts of the same rows' sums: each keeps ROWS / SLICES of them, or all are alike.
    constexpr int KEPT = SLICES < ROWS ? ROWS / SLICES : 1;
    constexpr int ALIKE = SLICES > ROWS ? SLICES / ROWS : 1;
    real sums[TILE_CLUSTERS][TILE_FEATURES] = {};
    real column = 0;
    Scores scores = {};
    const int tile_of = threadIdx.x % SUM_TILES, split = threadIdx.x / SUM_TILES;
    const int first_cluster = tile_of / FEATURE_TILES * TILE_CLUSTERS, first_feature = tile_of % FEATURE_TILES * TILE_FEATURES;

    const int64 group_start = (int64)blockIdx.y * group_rows;
    const int64 group_stop = group_start + group_rows < rows ? group_start + group_rows : rows;
    real* const buffers = xs;
    if (BUFFERS == 2) stage_rows(x, group_start, (int)(group_stop - group_start), buffers);
    for (int64 start = group_start; start < group_stop; start += TILE_ROWS) {
        const int count = group_stop - start < TILE_ROWS ? (int)(group_stop - start) : TILE_ROWS;
        if (BUFFERS == 2) {
            xs = buffers + ((start - group_start) / TILE_ROWS & 1) * TILE_ROWS * STRIDE;
            wait_for_copies();
            __syncthreads();
            const int64 next = start + TILE_ROWS;
            if (next < group_stop)
                stage_rows(x, next, (int)(group_stop - next), xs == buffers ? buffers + TILE_ROWS * STRIDE : buffers);
        } else {
            __syncthreads();
            stage_rows(x, start, count, xs);
            wait_for_copies();
            __syncthreads();
        }

        real s[ROWS][CLUSTERS] = {};
#pragma unroll 2
        for (int q = 0; q < QUADS; ++q) {
            const int f = 4 * (q * SLICES + slice);
            Four a[ROWS];
#pragma unroll
            for (int i = 0; i < ROWS; ++i) a[i] = *reinterpret_cast<const Four*>(xs + (row_group + i * ROW_GROUPS) * STRIDE + f);
#pragma unroll
            for (int j = 0; j < CLUSTERS; ++j) {
                const Four b = *reinterpret_cast<const Four*>(vs + (j * CLUSTER_LANES + lane) * STRIDE + f);
#pragma unroll
                for (int i = 0; i < ROWS; ++i)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const real t = a[i].v[e] - b.v[e];
                        s[i][j] = fma(t, t, s[i][j]);
                    }
            }
        }
        // The row that is kept in place i of a thread, after the exchanges.
        int kept = 0;
        if (SLICES >= 2 && ROWS >= 2) { exchange<ROWS, 1>(s); kept += (slice & 1) * (ROWS / 2); }
        if (SLICES >= 4 && ROWS >= 4) { exchange<(ROWS >= 4 ? ROWS / 2 : 2), 2>(s); kept += (slice / 2 & 1) * (ROWS / 4); }
        if (SLICES >= 8 && ROWS >= 8) { exchange<(ROWS >= 8 ? ROWS / 4 : 2), 4>(s); kept += (slice / 4 & 1) * (ROWS / 8); }
        if (ALIKE > 1)
#pragma unroll
            for (int j = 0; j < CLUSTERS; ++j)
                for (int step = SLICES / ALIKE; step < SLICES; step *= 2)
                    s[0][j] += __shfl_xor_sync(0xffffffffu, s[0][j], step);

#pragma unroll
        for (int i = 0; i < KEPT; ++i) {
            const int row = row_group + (kept + i) * ROW_GROUPS;
            const bool there = row < count;
            const real weight = !there ? (real)0 : weights ? weights[start + row] : (real)1;
#pragma unroll
            for (int j = 0; j < CLUSTERS; ++j)
                if (j * CLUSTER_LANES + lane >= centers_count) s[i][j] = infinity();
            Scores of_row = {};
            row_memberships<CLUSTERS, CLUSTER_LANES, SLICES>(s[i], weight, powers, lane == 0, of_row);
            if (slice < SLICES / ALIKE) {
                scores.objective += of_row.objective;
                scores.squares += of_row.squares;
                scores.entropy += of_row.entropy;
#pragma unroll
                for (int j = 0; j < CLUSTERS; ++j) us[row * U_STRIDE + j * CLUSTER_LANES + lane] = s[i][j];
            }
        }
        __syncthreads();

        if (split < SPLITS) {
#pragma unroll 4
            for (int row = split; row < TILE_ROWS; row += SPLITS) {
                const Four b = *reinterpret_cast<const Four*>(xs + row * STRIDE + first_feature);
#pragma unroll
                for (int h = 0; h < TILE_CLUSTERS / 4; ++h) {
                    const Four g = *reinterpret_cast<const Four*>(us + row * U_STRIDE + first_cluster + 4 * h);
#pragma unroll
                    for (int j = 0; j < 4; ++j)
#pragma unroll
                        for (int e = 0; e < 4; ++e) sums[4 * h + j][e] = fma(g.v[j], b.v[e], sums[4 * h + j][e]);
                }
            }
        }
        if (threadIdx.x < CENTERS * COLUMN_SPLITS) {
#pragma unroll 4
            for (int row = threadIdx.x / CENTERS; row < TILE_ROWS; row += COLUMN_SPLITS)
                column += us[row * U_STRIDE + threadIdx.x % CENTERS];
        }
    }

    // The threads' sums, one split after the other.
    const int length = centers_count * DIM + centers_count + 3;
    double* out = partial + ((int64)blockIdx.y * gridDim.x + blockIdx.x) * length;
    real* all = buffers;  // THREADS x 32 of them, over all of the shared memory
    __syncthreads();
    if (split < SPLITS)
#pragma unroll
        for (int j = 0; j < TILE_CLUSTERS; ++j)
#pragma unroll
            for (int e = 0; e < TILE_FEATURES; ++e)
                all[(j * TILE_FEATURES + e) * THREADS + threadIdx.x] = sums[j][e];
    __syncthreads();
    for (int i = threadIdx.x; i < centers_count * DIM; i += THREADS) {
        const int j = i / DIM, f = i % DIM;
        const int tile = j / TILE_CLUSTERS * FEATURE_TILES + f / TILE_FEATURES;
        const int place = (j % TILE_CLUSTERS * TILE_FEATURES + f % TILE_FEATURES) * THREADS + tile;
        double sum = 0;
        for (int part = 0; part < SPLITS; ++part) sum += (double)all[place + part * SUM_TILES];
        out[i] = sum;
    }
    __syncthreads();
    if (threadIdx.x < CENTERS * COLUMN_SPLITS) all[threadIdx.x] = column;
    __syncthreads();
    for (int j = threadIdx.x; j < centers_count; j += THREADS) {
        double sum = 0;
        for (int part = 0; part < COLUMN_SPLITS; ++part) sum += (double)all[part * CENTERS + j];
        out[centers_count * DIM + j] = sum;
    }
    const double objective = block_sum<THREADS>((double)scores.objective, scratch);
    const double squares = block_sum<THREADS>((double)scores.squares, scratch);
    const double entropy = block_sum<THREADS>((double)scores.entropy, scratch);
    if (threadIdx.x == 0) {
        out[length - 3] = objective;
        out[length - 2] = squares;
        out[length - 1] = LN2 * entropy;
    }
}

#else  // kernels that no number of features is compiled into

#define WARPS 8
#define SIDE 128
#define MICRO 8
#define DEPTH 16
#define STAGES 3  // of DEPTH rows: two arrive while one is worked on

// A row whose distances a warp holds, K in a thread.
template <int K, bool ONLY_U>
__device__ __forceinline__ Scores row_in_registers(real* row, int centers_count, real weight, Powers powers) {
    const int lane = threadIdx.x & 31;
    real s[K];
#pragma unroll
    for (int i = 0; i < K; ++i) s[i] = 32 * i + lane < centers_count ? row[32 * i + lane] : infinity();
    Scores scores = {};
    row_memberships<K, 32, 1, ONLY_U>(s, weight, powers, lane == 0, scores);
#pragma unroll
    for (int i = 0; i < K; ++i)
        if (32 * i + lane < centers_count) row[32 * i + lane] = s[i];
    return scores;
}

// A row of more centres than registers hold: the same arithmetic, the row read and written twice.
template <bool ONLY_U>
__device__ __forceinline__ Scores long_row(real* row, int centers_count, real weight, Powers powers) {
    const int lane = threadIdx.x & 31;
    real least = infinity();
    for (int j = lane; j < centers_count; j += 32) least = fmin(least, row[j]);
    for (int step = 16; step; step >>= 1) least = fmin(least, __shfl_xor_sync(0xffffffffu, least, step));
    const bool safe = least > MIN_SAFE && least < MAX_SAFE;
    double total = 0;
    for (int j = lane; j < centers_count; j += 32) {
        const real r = safe ? least * inverse_of(row[j]) : careful_ratio(least, row[j]);
        row[j] = r;
        total += (double)(POWER ? exp2_of(powers.slope * log2_of(r)) : r);
    }
    for (int step = 16; step; step >>= 1) total += __shfl_xor_sync(0xffffffffu, total, step);
    const real inverse = (real)(1 / total), scale = weight * powers.of_total((real)log2(total));
    double squares = 0, entropy = 0;
    for (int j = lane; j < centers_count; j += 32) {
        const real r = row[j], p = POWER ? exp2_of(powers.slope * log2_of(r)) : r, u = p * inverse;
        entropy -= (double)(u * log2_of(fmax(u, SMALLEST)));
        squares += (double)(u * u);
        row[j] = ONLY_U ? u : r * (p * scale);
    }
    const real objective = lane == 0 ? (real)((double)least * (total * (double)scale)) : (real)0;
    return Scores{objective, (real)((double)weight * squares), (real)((double)weight * entropy)};
}

template <bool ONLY_U>
__device__ __forceinline__ Scores row_of_tile(real* row, int centers_count, real weight, Powers powers) {
    if (centers_count <= 128) return row_in_registers<4, ONLY_U>(row, centers_count, weight, powers);
    if (centers_count <= 512) return row_in_registers<16, ONLY_U>(row, centers_count, weight, powers);
    if (centers_count <= 1024) return row_in_registers<32, ONLY_U>(row, centers_count, weight, powers);
    return long_row<ONLY_U>(row, centers_count, weight, powers);
}

// A warp a row: distances of a tile (rows, centres), in place as g (or u). scores: (rows, 3).
extern "C" __global__ void __launch_bounds__(32 * WARPS)
tile_memberships(real* tile, int rows, int centers_count, real m, real slope, real log2_scale, const real* weights,
                 bool only_u, double* scores) {
    const Powers powers{m, slope, log2_scale};
    const int number = blockIdx.x * WARPS + threadIdx.x / 32;
    if (number >= rows) return;
    real* row = tile + (int64)number * centers_count;
    const real weight = weights ? weights[number] : (real)1;
    if (only_u) {
        row_of_tile<true>(row, centers_count, weight, powers);
        return;
    }
    const Scores found = row_of_tile<false>(row, centers_count, weight, powers);
    double objective = (double)found.objective, squares = (double)found.squares, entropy = (double)found.entropy;
    for (int step = 16; step; step >>= 1) {
        objective += __shfl_xor_sync(0xffffffffu, objective, step);
        squares += __shfl_xor_sync(0xffffffffu, squares, step);
        entropy += __shfl_xor_sync(0xffffffffu, entropy, step);
    }
    if ((threadIdx.x & 31) == 0) {
        scores[3 * number] = objective;
        scores[3 * number + 1] = squares;
        scores[3 * number + 2] = LN2 * entropy;
    }
}

// DEPTH rows of 128 columns of a matrix, 0 where it has none. Columns come by four where all rows begin at 16 bytes.
__device__ __forceinline__ void stage_tile(const real* __restrict__ matrix, int width, int row, int stop, int first,
                                           real (&to)[DEPTH][SIDE]) {
    constexpr int VECTOR = 16 / sizeof(real);
    if (width % VECTOR == 0) {
#pragma unroll
        for (int i = threadIdx.x; i < DEPTH * SIDE / VECTOR; i += 256) {
            const int r = i / (SIDE / VECTOR), c = i % (SIDE / VECTOR) * VECTOR;
            const bool there = row + r < stop && first + c < width;
            copy_later(&to[r][c], matrix + (there ? (int64)(row + r) * width + first + c : 0), 16, there);
        }
    } else {
#pragma unroll
        for (int i = threadIdx.x; i < DEPTH * SIDE; i += 256) {
            const int r = i / SIDE, c = i % SIDE;
            const bool there = row + r < stop && first + c < width;
            copy_later(&to[r][c], matrix + (there ? (int64)(row + r) * width + first + c : 0), sizeof(real), there);
        }
    }
}

// partial[piece][cluster, feature] = sum over the piece's rows of g x: the transposed tile times the rows. Pieces lie
// `stride` numbers apart.
// grid: x over 128 features, y over 128 clusters, z over pieces of rows.
extern "C" __global__ void __launch_bounds__(256, sizeof(real) == 4 ? 2 : 1)
tile_sums(const real* __restrict__ tile, int rows, int centers_count, const real* __restrict__ x, int d,
          const double* __restrict__ scores, int piece_rows, int64 stride, real* partial) {
    extern __shared__ __align__(16) char memory[];
    typedef real Stage[DEPTH][SIDE];
    Stage* gs = reinterpret_cast<Stage*>(memory);
    Stage* xs = gs + STAGES;
    const int tx = threadIdx.x % 16, ty = threadIdx.x / 16;
    const int cluster = blockIdx.y * SIDE, feature = blockIdx.x * SIDE;
    const int start = blockIdx.z * piece_rows, stop = min(rows, start + piece_rows);
    real sums[MICRO][MICRO] = {}, weights = 0;
    for (int stage = 0; stage < STAGES - 1; ++stage) {
        stage_tile(tile, centers_count, start + stage * DEPTH, stop, cluster, gs[stage]);
        stage_tile(x, d, start + stage * DEPTH, stop, feature, xs[stage]);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }
    int stage = 0;
    for (int k = start; k < stop; k += DEPTH, stage = stage + 1 == STAGES ? 0 : stage + 1) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncthreads();
        const int ahead = k + (STAGES - 1) * DEPTH, free = stage == 0 ? STAGES - 1 : stage - 1;
        stage_tile(tile, centers_count, ahead, stop, cluster, gs[free]);
        stage_tile(x, d, ahead, stop, feature, xs[free]);
        asm volatile("cp.async.commit_group;" ::: "memory");
        if (feature == 0 && threadIdx.x < SIDE)
#pragma unroll
            for (int r = 0; r < DEPTH; ++r) weights += gs[stage][r][threadIdx.x];
#pragma unroll
        for (int r = 0; r < DEPTH; ++r) {
            Four g[2], b[2];
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                g[h] = *reinterpret_cast<const Four*>(&gs[stage][r][4 * ty + 64 * h]);
                b[h] = *reinterpret_cast<const Four*>(&xs[stage][r][4 * tx + 64 * h]);
            }
#pragma unroll
            for (int i = 0; i < MICRO; ++i)
#pragma unroll
                for (int j = 0; j < MICRO; ++j) sums[i][j] = fma(g[i / 4].v[i % 4], b[j / 4].v[j % 4], sums[i][j]);
        }
    }
    const int64 length = (int64)centers_count * d + centers_count + 3;
    real* out = partial + blockIdx.z * stride;
#pragma unroll
    for (int i = 0; i < MICRO; ++i) {
        const int c = cluster + 4 * ty + i % 4 + 64 * (i / 4);
        if (c >= centers_count) continue;
#pragma unroll
        for (int j = 0; j < MICRO; ++j) {
            const int f = feature + 4 * tx + j % 4 + 64 * (j / 4);
            if (f < d) out[(int64)c * d + f] = sums[i][j];
        }
    }
    if (feature == 0 && threadIdx.x < SIDE && cluster + threadIdx.x < centers_count)
        out[(int64)centers_count * d + cluster + threadIdx.x] = weights;
    if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < 96) {  // a warp for each of the three scores
        double sum = 0;
        for (int k = start + threadIdx.x % 32; k < stop; k += 32) sum += scores[3 * (int64)k + threadIdx.x / 32];
        for (int step = 16; step; step >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, step);
        if (threadIdx.x % 32 == 0) out[length - 3 + threadIdx.x / 32] = (real)sum;
    }
}

#endif
