// Spreading rows onto a grid and reading it off at rows: the GPU's inner loops for nufft.py.
//
// 16 lanes share a row: lane j evaluates the window in the j-th of the 16 cells along each axis, and stands for the
// j-th cell along the last one, so that each step adds to 16 neighbouring 8-byte integers. Integer atomics: the sum
// is exact in any order. 16^d of them a row are the cost.
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

extern "C" __global__ void __launch_bounds__(THREADS)
spread(const real* x, int64 m, const double* place_of, const int64* strides, const double* polynomials, double factor,
       uint64* out) {
    const int64 row = ((int64)blockIdx.x * THREADS + threadIdx.x) / WINDOW;
    const int lane = threadIdx.x % WINDOW;
    const bool there = row < m;
    const Grid g = grid_of(place_of, strides);
    double weight[DIM];
    const int64 first = place(x, there ? row : m - 1, g, polynomials, lane, weight);
    lines(first, g, weight, [&](int64 cell, double outer) {
        const int64 value = __double2ll_rn(weight[DIM - 1] * (outer * factor));
        if (there && value) atomicAdd(out + cell + lane, (uint64)value);
    });
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
