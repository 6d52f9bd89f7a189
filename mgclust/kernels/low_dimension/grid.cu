// Spreading rows onto a grid and reading it off at rows: the inner loops of gaussian_grid.py on a GPU.
//
// 16 lanes stand for the 16 cells that a row covers along the last axis. Integers: the sum is exact in any order.
// 16^d additions a row are the cost.
//
// Rows that are spread come in curve order, and a grid has few cells beside many rows: neighbours cover the same cells.
// So a block keeps their sums in registers, and adds them to the grid when the next row covers other cells.
//
// Compiled with -DREAL, -DDIM=1|2|3.
#define WINDOW 16
#define DEGREE 15
#define THREADS 256

typedef REAL real;
typedef long long int64;
typedef unsigned long long uint64;

struct Grid {
    double origin[3];
    double inverse;
    int64 strides[3];
};

__device__ __forceinline__ Grid grid_of(const double* place, const int64* strides) {
    Grid g;
#pragma unroll
    for (int f = 0; f < DIM; ++f) { g.origin[f] = place[f]; g.strides[f] = strides[f]; }
    g.inverse = place[DIM];
    return g;
}

// This lane's window value along each axis; returns the first cell that the row covers.
__device__ __forceinline__ int64 place(const real* x, int64 row, const Grid& g, const double* polynomials, int lane,
                                       double (&weight)[DIM]) {
    int64 first = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const double position = ((double)x[row * DIM + f] - g.origin[f]) * g.inverse;
        const double cell = floor(position);
        const double t = position - cell - 0.5;
        double value = polynomials[lane];
        for (int k = 1; k <= DEGREE; ++k) value = fma(value, t, polynomials[k * WINDOW + lane]);
        weight[f] = value;
        first += ((int64)cell - (WINDOW / 2 - 1)) * g.strides[f];
    }
    return first;
}

// Calls op(cell, outer weight) for each line of 16 cells along the last axis; all 32 lanes of the warp take part.
template <class Op>
__device__ __forceinline__ void lines(int64 first, const Grid& g, const double (&weight)[DIM], Op op) {
#if DIM == 1
    op(first, 1.0);
#elif DIM == 2
    for (int b = 0; b < WINDOW; ++b) op(first + b * g.strides[0], __shfl_sync(0xffffffffu, weight[0], b, WINDOW));
#else
    for (int a = 0; a < WINDOW; ++a) {
        const double outer = __shfl_sync(0xffffffffu, weight[0], a, WINDOW);
        for (int b = 0; b < WINDOW; ++b)
            op(first + a * g.strides[0] + b * g.strides[1], outer * __shfl_sync(0xffffffffu, weight[1], b, WINDOW));
    }
#endif
}

#define GROUPS (THREADS / WINDOW)  // of 16 lanes
#define BATCH 64                   // rows whose windows lie in shared memory
#if DIM == 3
#define LINES 16                   // of a group: its cell along the first axis, every cell along the second
#else
#define LINES 1                    // its cell along the first axis; in one dimension the groups share the rows
#endif

extern "C" __global__ void __launch_bounds__(THREADS)
spread(const real* x, int64 m, const double* place_of, const int64* strides, const double* polynomials, double factor,
       int rows_of_block, uint64* out) {
    __shared__ double weights[BATCH][DIM][WINDOW];
    __shared__ int64 firsts[BATCH];
    const int lane = threadIdx.x % WINDOW, group = threadIdx.x / WINDOW;
    const Grid g = grid_of(place_of, strides);
    const int64 begin = (int64)blockIdx.x * rows_of_block, end = min(m, begin + rows_of_block);
    uint64 sums[LINES] = {};
    int64 covered = -1;
    const auto flush = [&]() {
#pragma unroll
        for (int line = 0; line < LINES; ++line) {
            int64 cell = covered + lane;
            if (DIM > 1) cell += group * g.strides[0];
            if (DIM == 3) cell += line * g.strides[1];
            if (sums[line]) atomicAdd(out + cell, sums[line]);
            sums[line] = 0;
        }
    };
    for (int64 start = begin; start < end; start += BATCH) {
        const int rows = (int)min((int64)BATCH, end - start);
        __syncthreads();
        for (int r = group; r < rows; r += GROUPS) {
            double weight[DIM];
            const int64 first = place(x, start + r, g, polynomials, lane, weight);
#pragma unroll
            for (int f = 0; f < DIM; ++f) weights[r][f][lane] = weight[f];
            if (lane == 0) firsts[r] = first;
        }
        __syncthreads();
        for (int r = DIM == 1 ? group : 0; r < rows; r += DIM == 1 ? GROUPS : 1) {
            if (firsts[r] != covered) {
                if (covered >= 0) flush();
                covered = firsts[r];
            }
            const double last = weights[r][DIM - 1][lane], outer = DIM > 1 ? weights[r][0][group] : 1.0;
#pragma unroll
            for (int line = 0; line < LINES; ++line)
                sums[line] += (uint64)__double2ll_rn(last * ((DIM == 3 ? outer * weights[r][1][line] : outer) * factor));
        }
    }
    if (covered >= 0) flush();
}

extern "C" __global__ void __launch_bounds__(THREADS)
interpolate(const real* x, int64 m, const double* place_of, const int64* strides, const double* polynomials,
            const double* grid, double* out) {
    const int64 row = ((int64)blockIdx.x * THREADS + threadIdx.x) / WINDOW;
    const int lane = threadIdx.x % WINDOW;
    const Grid g = grid_of(place_of, strides);
    double weight[DIM];
    const int64 first = place(x, row < m ? row : m - 1, g, polynomials, lane, weight);
    double value = 0;
    lines(first, g, weight, [&](int64 cell, double outer) { value = fma(grid[cell + lane], outer, value); });
    value *= weight[DIM - 1];
    for (int step = WINDOW / 2; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    if (lane == 0 && row < m) out[row] = value;
}
