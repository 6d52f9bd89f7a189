// One iteration of affinity propagation on this rank's rows: the maths and the names are in messages.py.
//
// pass_rows reads A and S once and writes A once, a block a row. What depends on the row's maxima (its u, E, and which
// responsibilities are positive) is not known before the row has been read; the row is not read twice because it can
// be bounded beforehand:
//
//   recent columns and the diagonal    their top two values bound m1 and m2 from below, and m1 bounds the new u
//   the sweep                       looks closer at a value only if it reaches the bound of m2 (rare), and
//                                   remembers the columns with sigma S > bound of u: only there can R be positive
//   afterwards                      m1, j, m2, u, E, and the sums over the remembered columns
//
// Sums over rows are of integers (fixed point), by atomics: any order gives the same bits.
#include "pairs/pairs.cuh"
#include "affinity_propagation/messages.cuh"

#define THREADS 256
#define WARPS (THREADS / 32)
#define KEPT 1024  // columns remembered per row; beyond that the row is read again

struct alignas(16) Vec { real v[16 / sizeof(real)]; };
#define VEC ((int)(16 / sizeof(real)))

// Streaming loads and stores: A and S pass through the cache once an iteration, c should stay in it.
__device__ __forceinline__ Vec stream(const real* p) {
    Vec out;
    *reinterpret_cast<float4*>(&out) = __ldcs(reinterpret_cast<const float4*>(p));
    return out;
}
__device__ __forceinline__ void stream_out(real* p, const Vec& v) {
    __stcs(reinterpret_cast<float4*>(p), *reinterpret_cast<const float4*>(&v));
}


extern "C" __global__ void __launch_bounds__(THREADS, 6)
pass_rows(int n, int first_row, int stride, int places, const real* s_, real* a_, double* u, int* recent_argmax_,
          real* recent_e_, real* recent_a_, int* recent_most, const real* __restrict__ c, const double* __restrict__ r_diagonal,
          const double* __restrict__ a_diagonal, const double* __restrict__ preference, uint64* sums,
          double sigma_, double next_sigma_, double damping_, double next_damping, double scale, double negligible) {
    __shared__ Top bound, part[WARPS];
    __shared__ real low, new_u;
    __shared__ int remembered, fresh;
    __shared__ int kept_column[KEPT];
    __shared__ real kept_s[KEPT];
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int row = blockIdx.x, g = first_row + row;
    const real* s = s_ + (int64)row * stride;
    real* a = a_ + (int64)row * stride;
    int* recent_argmax = recent_argmax_ + (int64)row * places;
    real *recent_e = recent_e_ + (int64)row * places, *recent_a = recent_a_ + (int64)row * places;
    const real sigma = (real)sigma_, next_sigma = (real)next_sigma_, damping = (real)damping_;
    const real rest = (real)1 - damping, old_u = (real)u[row];

    if (warp == 0) {
        Top top = nothing();
        for (int p = lane; p < places; p += 32) {
            const int k = recent_argmax[p];
            if (k < 0) continue;
            const real v = s[k];
            recent_a[p] = finished(recent_a[p], c[k], fma(sigma, v, -old_u) - recent_e[p], damping, rest);
            take(top, recent_a[p] + v, k);
        }
        if (lane == 0) take(top, (real)(a_diagonal[g] + preference[g]), g);
        top = over_warp(top);
        if (lane == 0) {
            bound = top;
            low = (real)damped(u[row], top.m1, next_damping);
            remembered = 0;
        }
    }
    __syncthreads();

    Top mine = nothing();
    const real least = bound.m2, lowest = low;
    for (int k = threadIdx.x * VEC; k < stride; k += THREADS * VEC) {
        const Vec cv = *reinterpret_cast<const Vec*>(c + k), sv = stream(s + k);
        Vec av = stream(a + k);
        real most = -infinity(), nearest = -infinity();
#pragma unroll
        for (int q = 0; q < VEC; ++q) {
            av.v[q] = finished(av.v[q], cv.v[q], fma(sigma, sv.v[q], -old_u), damping, rest);
            most = fmax(most, av.v[q] + sv.v[q]);
            nearest = fmax(nearest, sv.v[q]);
        }
        stream_out(a + k, av);
        if (most >= least && most > -infinity()) {
#pragma unroll
            for (int q = 0; q < VEC; ++q) {
                const real v = av.v[q] + sv.v[q];
                if (v >= least) take(mine, v, k + q);
            }
        }
        if (fma(next_sigma, nearest, -lowest) > 0) {    // as R itself is rounded below, with a larger u
#pragma unroll
            for (int q = 0; q < VEC; ++q)
                if (fma(next_sigma, sv.v[q], -lowest) > 0 && av.v[q] > -infinity()) {
                    const int place = atomicAdd(&remembered, 1);
                    if (place < KEPT) {
                        kept_column[place] = k + q;
                        kept_s[place] = sv.v[q];
                    }
                }
        }
    }
    if (__any_sync(FULL, mine.m1 > -infinity())) mine = over_warp(mine);
    if (lane == 0) part[warp] = mine;
    __syncthreads();

    const bool overflow = remembered > KEPT;
    if (warp == 0) {
        Top top = lane < WARPS ? part[lane] : nothing();
        if (lane == 0) take(top, bound);
        top = over_warp(top);
        const double next_u = damped(u[row], top.m1, next_damping);
        int place = -1, free_place = -1;
        for (int p = 0; p < places; p += 32) {
            const int k = recent_argmax[p + lane];
            const unsigned same = __ballot_sync(FULL, k == top.j), empty = __ballot_sync(FULL, k < 0);
            if (same) place = p + __ffs(same) - 1;
            if (empty && free_place < 0) free_place = p + __ffs(empty) - 1;
        }
        const bool is_fresh = top.j != g && place < 0;
        if (is_fresh) place = free_place;
        if (is_fresh && lane == 0) {
            recent_argmax[place] = top.j;
            recent_e[place] = 0;
            recent_a[place] = a[top.j];
            a[top.j] = -infinity();
        }
        __syncwarp();
        const real boost = boost_of(top, next_damping);
        int filled = 0;
        for (int p = lane; p < places; p += 32) {
            const int k = recent_argmax[p];
            if (k < 0) continue;
            real e = (real)next_damping * recent_e[p];
            if (p == place) e += boost;
            const bool keep = p == place || counts(e, s[k], next_u, negligible);
            if (keep) {
                recent_e[p] = e;
                ++filled;
            } else {
                a[k] = recent_a[p];
                recent_argmax[p] = -1;
                e = 0;
            }
            // Where all columns will be looked at again, those given back are among them.
            if (keep || !overflow) add_positive(sums, k, fma(next_sigma, s[k], -(real)next_u) - e, scale);
        }
        for (int step = 16; step; step >>= 1) filled += __shfl_xor_sync(FULL, filled, step);
        if (lane == 0) {
            const double others = top.j != g ? top.m1 : top.m2;
            const double r_new = damped(r_diagonal[g], preference[g] - others, next_damping);
            sums[n + g] = (uint64)__double_as_longlong(r_new);
            u[row] = next_u;
            new_u = (real)next_u;
            fresh = is_fresh ? top.j : -1;
            atomicMax(recent_most, filled);
        }
    }
    __syncthreads();

    const real u_new = new_u;
    if (!overflow) {
        for (int p = threadIdx.x; p < remembered; p += THREADS)
            if (kept_column[p] != fresh) add_positive(sums, kept_column[p], fma(next_sigma, kept_s[p], -u_new), scale);
    } else {
        for (int k = threadIdx.x; k < n; k += THREADS) {
            const real r = fma(next_sigma, s[k], -u_new);
            if (r > 0 && a[k] > -infinity()) add_positive(sums, k, r, scale);
        }
    }
}

extern "C" __global__ void __launch_bounds__(256)
pass_columns(int n, const uint64* totals, uint64* sums, int64* progress, real* c, double* r_diagonal, double* a_diagonal, unsigned char* now,
             unsigned char* last, uint64* counts, double damping, double scale) {
    const int k = blockIdx.x * blockDim.x + threadIdx.x;
    bool exemplar = false, differs = false;
    if (totals[2 * (int64)n]) {     // a rank has undecided rows: this iteration is not finished yet
        if (k == 0) progress[0] = 1;
        return;
    }
    if (k == 0) progress[1] += 1;
    if (k < n)
        finish_exemplar(k, n, totals, sums, c, r_diagonal, a_diagonal, now, last, damping, scale, exemplar, differs);
    count_exemplars(exemplar, differs, counts);
}
