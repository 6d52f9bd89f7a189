// Sums of float64 parts whose bits do not depend on their order: see exact_sums/__init__.py.
#define THREADS 128
#define RUN 8  // parts that a thread looks at

typedef long long int64;
typedef unsigned long long uint64;

// exponents[e] = the largest binary exponent of parts[:, e], at least that of 0. grid: x over e, y over runs of parts.
extern "C" __global__ void largest_exponents(const double* __restrict__ parts, int64 count, int64 length, int* exponents) {
    const int64 e = (int64)blockIdx.x * THREADS + threadIdx.x, first = (int64)blockIdx.y * RUN;
    if (e >= length) return;
    double largest = 0;
    const int64 last = min(first + RUN, count);
    for (int64 p = first; p < last; ++p) largest = fmax(largest, fabs(parts[p * length + e]));
    if (largest > 0) atomicMax(exponents + e, ilogb(largest) + 1);
}

// integers[e] = sum over the parts of the nearest integers to parts[:, e] 2^(bits - exponents[e]).
extern "C" __global__ void integer_sums(const double* __restrict__ parts, int64 count, int64 length, const int* exponents,
                                        int bits, uint64* integers) {
    const int64 e = (int64)blockIdx.x * THREADS + threadIdx.x, first = (int64)blockIdx.y * RUN;
    if (e >= length) return;
    const int shift = bits - exponents[e];
    int64 sum = 0;
    const int64 last = min(first + RUN, count);
    for (int64 p = first; p < last; ++p) sum += __double2ll_rn(scalbn(parts[p * length + e], shift));
    if (sum) atomicAdd(integers + e, (uint64)sum);
}

extern "C" __global__ void from_integers(const int64* __restrict__ integers, const int* exponents, int bits, int64 length,
                                         double* out) {
    const int64 e = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (e < length) out[e] = scalbn((double)integers[e], exponents[e] - bits);
}

// out[block, run, f] = the sum over a run's rows of x, or of its squared difference from `about`. Threads beside each other
// read features beside each other, of several rows where there are few features. grid: x over runs, y over blocks of m rows.
extern "C" __global__ void __launch_bounds__(256)
column_sums(const REAL* __restrict__ x, int64 m, int64 d, int run_rows, const double* __restrict__ about, double* out) {
    __shared__ double sums[256];
    const int lanes = d < 256 ? 256 / (int)d : 1, lane = d < 256 ? threadIdx.x / (int)d : 0;
    const int64 first = (int64)blockIdx.x * run_rows, last = min(first + run_rows, m);
    x += (int64)blockIdx.y * m * d;
    out += ((int64)blockIdx.y * gridDim.x + blockIdx.x) * d;
    for (int64 f = d < 256 ? threadIdx.x % (int)d : threadIdx.x; f < d; f += 256) {
        double sum = 0;
        if (lane < lanes)
#pragma unroll 4
            for (int64 row = first + lane; row < last; row += lanes) {
                const double v = (double)x[row * d + f] - (about ? about[f] : 0.0);
                sum += about ? v * v : v;
            }
        if (lanes > 1) {
            sums[threadIdx.x] = sum;
            __syncthreads();
            if (lane == 0)
                for (int l = 1; l < lanes; ++l) sum += sums[l * d + f];
        }
        if (lane == 0) out[f] = sum;
    }
}
