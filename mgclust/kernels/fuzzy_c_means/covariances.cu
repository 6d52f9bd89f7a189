// Clusters with norms of their own: distances in these norms, and the sums of products that covariances are made of.
//
// `norm_distances`: a thread a row and centre. Of an upper triangular factor R it takes four rows at a time, so that a feature
// is loaded d / 4 times, from columns that neighbouring threads read together. d^2 / 2 multiply-adds.
//
// `scatter`: sum over the rows of a piece of g y_f y_h with y = (x - v, 1). A block of threads has 16 x 16 pairs (f, h), one a
// thread; rows pass through shared memory, in order. Sums of pieces are added to blocks of rows by `add_pieces` (fuzzy.cu).
#include "pairs/pairs.cuh"

#define ROWS_OF_BLOCK 128
#define SIDE 16
#define STEP 32  // rows in shared memory at a time
#define MOST ((real)(sizeof(real) == 4 ? 3.4028234663852886e38 : 1.7976931348623157e308))

// columns: (d, rows), the rows transposed. grid: x over rows, y over centres.
extern "C" __global__ void __launch_bounds__(ROWS_OF_BLOCK)
norm_distances(const real* __restrict__ columns, int64 rows, int d, const real* __restrict__ centers,
               const real* __restrict__ factors, int centers_count, real* out) {
    const int64 i = (int64)blockIdx.x * ROWS_OF_BLOCK + threadIdx.x;
    const int j = blockIdx.y;
    if (i >= rows) return;
    const real* v = centers + (int64)j * d;
    const real* triangle = factors + (int64)j * d * d;
    real s = 0;
    for (int e = 0; e < d; e += 4) {
        real z[4] = {};
        for (int f = e; f < d; ++f) {  // below the diagonal are zeros
            const real y = columns[f * rows + i] - v[f];
#pragma unroll
            for (int q = 0; q < 4; ++q)
                if (e + q < d) z[q] = fma(triangle[(int64)(e + q) * d + f], y, z[q]);
        }
#pragma unroll
        for (int q = 0; q < 4; ++q) s = fma(z[q], z[q], s);
    }
    out[i * centers_count + j] = fmin(s, MOST);
}

// Feature f of row i about a centre; the one behind the last is 1, and what lies beyond is 0.
__device__ __forceinline__ real about_center(const real* x, int64 i, int f, int d, const real* v) {
    return f < d ? x[i * d + f] - v[f] : (real)(f == d);
}

// partial[piece][cluster][place of f, h in the packed triangle]. grid: x over pairs of tiles of features, y over clusters, z
// over pieces of rows.
extern "C" __global__ void __launch_bounds__(SIDE * SIDE)
scatter(const real* __restrict__ x, int64 rows, int d, const real* __restrict__ centers, const real* __restrict__ g,
        int centers_count, int piece_rows, real* partial) {
    __shared__ real weighed[STEP][SIDE], others[STEP][SIDE];
    const int columns = d + 1, tiles = (columns + SIDE - 1) / SIDE, j = blockIdx.y;
    int first = 0, second = blockIdx.x;
    for (; second >= tiles - first; ++first) second -= tiles - first;
    second += first;
    const int tx = threadIdx.x % SIDE, ty = threadIdx.x / SIDE;
    const real* v = centers + (int64)j * d;
    const int64 start = (int64)blockIdx.z * piece_rows, stop = start + piece_rows < rows ? start + piece_rows : rows;
    real sum = 0;
    for (int64 row = start; row < stop; row += STEP) {
        for (int at = ty; at < STEP; at += SIDE) {
            const int64 i = row + at;
            weighed[at][tx] = i < stop ? g[i * centers_count + j] * about_center(x, i, first * SIDE + tx, d, v) : (real)0;
            others[at][tx] = i < stop ? about_center(x, i, second * SIDE + tx, d, v) : (real)0;
        }
        __syncthreads();
#pragma unroll
        for (int at = 0; at < STEP; ++at) sum = fma(weighed[at][ty], others[at][tx], sum);
        __syncthreads();
    }
    const int f = first * SIDE + ty, h = second * SIDE + tx;
    if (f > h || h > d) return;
    const int64 packed = (int64)columns * (columns + 1) / 2, place = (int64)f * (2 * columns - f + 1) / 2 + h - f;
    partial[((int64)blockIdx.z * centers_count + j) * packed + place] = sum;
}
