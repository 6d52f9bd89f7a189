// One iteration of affinity propagation on some columns of this rank's rows: what they are, and why this is exact, is in
// columns.py, the maths in messages.py. similarity.cu has the sums of max(0, R) for float32 products.
//
//   pass_column_rows    a warp a row: A of recent and of kept columns, the two largest of A + S; u, E, R(k,k); what E adds
//                       to the sums
//   sum_positive        the sums of max(0, R) without E, of rows whose similarities are there
//   place_listed        A of some columns, from lists
//   replay              A of some columns through several iterations, a thread a pair
#include "pairs/pairs.cuh"
#include "affinity_propagation/messages.cuh"
#include "affinity_propagation/sparse_forms/recent_argmax.cuh"

#define WARPS 8         // rows of a block
#define THREADS (32 * WARPS)
#define STRIP 64        // rows that a thread of sum_positive goes through

extern "C" __global__ void __launch_bounds__(THREADS)
pass_column_rows(const int64* rows, int m, int n, int first_row, int places, const int* __restrict__ columns, int kept,
                 const real* s_, real* a_, const real* nearest, double outside, double* u, int* recent_argmax_,
                 int* recent_place_, real* recent_s_, real* recent_e_, real* recent_a_, int* recent_most, const real* __restrict__ c,
                 const double* __restrict__ r_diagonal, const double* __restrict__ a_diagonal,
                 const double* __restrict__ preference, uint64* sums, real* slack, unsigned char* undecided,
                 double sigma_, double next_sigma_, double damping_, double next_damping, double scale,
                 double negligible) {
    const int lane = threadIdx.x & 31, t = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (t >= m) return;
    const int64 i = rows[t];
    const int g = first_row + (int)i;
    const real* s = s_ + i * kept;
    real* a = a_ + i * kept;
    int *recent_argmax = recent_argmax_ + i * places, *recent_place = recent_place_ + i * places;
    real *recent_s = recent_s_ + i * places, *recent_e = recent_e_ + i * places, *recent_a = recent_a_ + i * places;
    const real sigma = (real)sigma_, next_sigma = (real)next_sigma_, damping = (real)damping_;
    const real rest = (real)1 - damping, old_u = (real)u[i];

    Found found{nothing(), -1, 0};
    if (lane == 0) take(found.top, (real)(a_diagonal[g] + preference[g]), g);
    for (int p = lane; p < places; p += 32) {
        const int k = recent_argmax[p];
        if (k < 0) continue;
        const real v = recent_s[p];
        const real availability = finished(recent_a[p], c[k], fma(sigma, v, -old_u) - recent_e[p], damping, rest);
        recent_a[p] = availability;
        take(found, availability + v, k, -1, v);
    }
    for (int p = lane; p < kept; p += 32) {
        const int k = columns[p];
        const real near = s[p], availability = finished(a[p], c[k], fma(sigma, near, -old_u), damping, rest);
        a[p] = availability;
        const real v = availability + near;
        if (v >= found.top.m2 && v > -infinity()) take(found, v, k, p, near);
    }
    const Top top = over_warp(found.top);
    const bool decided = (real)outside + nearest[i] < top.m2;
    if (lane == 0) {
        slack[i] = top.m2 - nearest[i];
        undecided[i] = !decided;
        if (!decided) atomicAdd(sums + 2 * (int64)n, 1ull);
    }
    if (!decided) return;

    // E <- damping E, and what is added at column j.
    const double next_u = damped(u[i], top.m1, next_damping);
    const real u_new = (real)next_u;
    const Recent recent(recent_argmax, places, lane);
    int place = recent.place_of(top.j), free_place = recent.place_of(-1);
    const unsigned owner = __ballot_sync(FULL, found.top.j == top.j);
    const int from = owner ? __ffs(owner) - 1 : 0;
    const int own_place = __shfl_sync(FULL, found.place, from);
    const real own_s = __shfl_sync(FULL, found.s, from);
    const bool fresh = top.j != g && place < 0;
    if (fresh) place = free_place;
    __syncwarp();
    if (fresh && lane == 0) {   // it is among the kept columns
        recent_argmax[place] = top.j;
        recent_place[place] = own_place;
        recent_s[place] = own_s;
        recent_e[place] = 0;
        recent_a[place] = a[own_place];
        a[own_place] = -infinity();
    }
    __syncwarp();
    const real boost = boost_of(top, next_damping);
    int filled = 0;
    for (int p = lane; p < places; p += 32) {
        const int k = recent_argmax[p];
        if (k < 0) continue;
        real e = (real)next_damping * recent_e[p];
        if (p == place) e += boost;
        else if (!counts(e, recent_s[p], next_u, negligible)) {
            // Without E the column is as any other: it goes where it belongs, or stays with E = 0, which is the same.
            const int back = recent_place[p];
            if (back >= 0) {
                a[back] = recent_a[p];
                recent_argmax[p] = -1;
                continue;
            }
            e = 0;
        }
        recent_e[p] = e;
        ++filled;
        const real r = fma(next_sigma, recent_s[p], -u_new);
        const int64 more = __double2ll_rn((double)fmax((real)0, r - e) * scale)
                         - __double2ll_rn((double)fmax((real)0, r) * scale);
        if (more) atomicAdd(sums + k, (uint64)more);
    }
    for (int step = 16; step; step >>= 1) filled += __shfl_xor_sync(FULL, filled, step);
    if (lane == 0) {
        const double others = top.j != g ? top.m1 : top.m2;
        sums[n + g] = (uint64)__double_as_longlong(damped(r_diagonal[g], preference[g] - others, next_damping));
        u[i] = next_u;
        if (filled > *recent_most) atomicMax(recent_most, filled);
    }
}

// A thread a column, blockIdx.y a strip of rows.
extern "C" __global__ void __launch_bounds__(THREADS)
sum_positive(const real* s, int rows, int n, int64 stride, const real* __restrict__ u, double sigma_, double scale,
             uint64* sums) {
    const int k = blockIdx.x * THREADS + threadIdx.x, first = blockIdx.y * STRIP;
    if (k >= n) return;
    const real sigma = (real)sigma_;
    uint64 total = 0;
    for (int i = first; i < min(first + STRIP, rows); ++i) {
        const real r = fma(sigma, s[i * stride + k], -u[i]);
        if (r > 0) total += (uint64)__double2ll_rn((double)r * scale);
    }
    if (total) atomicAdd(sums + k, total);
}

// A block a row.
extern "C" __global__ void __launch_bounds__(THREADS)
place_listed(const int64* begin, const int64* own, const int* column, const real* values, const int* __restrict__ where,
             int columns, real* out) {
    const int64 i = blockIdx.x, at = begin[i];
    for (int64 q = threadIdx.x; q < own[i]; q += THREADS) {
        const int place = where[column[at + q]];
        if (place >= 0) out[i * columns + place] = values[at + q];
    }
}

// c of shape (iterations, columns); u of shape (iterations, own rows), whose row `first` is the first of these.
extern "C" __global__ void __launch_bounds__(THREADS)
replay(const real* s, real* a, int rows, int columns, int iterations, const real* __restrict__ c,
       const real* __restrict__ u, int own_rows, int first, const double* sigmas, const double* dampings) {
    const int64 at = (int64)blockIdx.x * THREADS + threadIdx.x;
    if (at >= (int64)rows * columns) return;
    const int i = (int)(at / columns), p = (int)(at % columns);
    const real near = s[at];
    real availability = a[at];
    for (int t = 0; t < iterations; ++t) {
        const real damping = (real)dampings[t], r = fma((real)sigmas[t], near, -u[(int64)t * own_rows + first + i]);
        availability = finished(availability, c[(int64)t * columns + p], r, damping, (real)1 - damping);
    }
    a[at] = availability;
}
