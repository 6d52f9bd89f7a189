// What messages of all elements (messages.cu) and on lists (listed.cu) share: the same operations, hence the same bits.
#pragma once

#define FULL 0xffffffffu

struct Top {        // largest value, its lowest column, second largest value
    real m1, m2;
    int j;
};

__device__ __forceinline__ Top nothing() { return Top{-infinity(), -infinity(), 0x7fffffff}; }

// A value that has been taken may come again, with its column.
__device__ __forceinline__ void take(Top& t, real v, int j) {
    if (v > t.m1 || (v == t.m1 && j < t.j)) {
        t.m2 = t.m1;
        t.m1 = v;
        t.j = j;
    } else if (v > t.m2 && j != t.j) t.m2 = v;
}

__device__ __forceinline__ void take(Top& t, const Top& other) {
    take(t, other.m1, other.j);
    t.m2 = other.m2 > t.m2 ? other.m2 : t.m2;
}

// A number as an unsigned integer in the numbers' order; 0 is below all.
__device__ __forceinline__ ubits ordered(real v) {
    const sbits b = Bits<real>::of(v);
    return b < 0 ? ~(ubits)b : (ubits)b | (ubits)1 << (8 * sizeof(real) - 1);
}
__device__ __forceinline__ real number_of(float, unsigned int u) {
    return __uint_as_float(u & 0x80000000u ? u & 0x7fffffffu : ~u);
}
__device__ __forceinline__ real number_of(double, uint64 u) {
    return __longlong_as_double((int64)(u >> 63 ? u & 0x7fffffffffffffffull : ~u));
}

// In float32, where maxima are of integers, -0 becomes 0, which is equal.
__device__ __forceinline__ float positive_zero(float v) { return v + 0.0f; }
__device__ __forceinline__ double positive_zero(double v) { return v; }

// float32 by whole-warp instructions.
__device__ __forceinline__ Top over_warp(Top t, float) {
    const ubits first = ordered(t.m1 + (real)0);
    const ubits best = __reduce_max_sync(FULL, (unsigned)first);
    const int j = (int)__reduce_min_sync(FULL, first == best ? (unsigned)t.j : 0x7fffffffu);
    const ubits second = __reduce_max_sync(FULL, (unsigned)ordered((t.j == j ? t.m2 : t.m1) + (real)0));
    return Top{number_of(real(), best), number_of(real(), second), j};
}

__device__ __forceinline__ Top over_warp(Top t, double) {
    for (int step = 16; step; step >>= 1) {
        Top other;
        other.m1 = __shfl_xor_sync(FULL, t.m1, step);
        other.m2 = __shfl_xor_sync(FULL, t.m2, step);
        other.j = __shfl_xor_sync(FULL, t.j, step);
        take(t, other);
    }
    return t;
}

// The lanes have different columns.
__device__ __forceinline__ Top over_warp(Top t) { return over_warp(t, real()); }

// A of one place, given the c and R of the iteration that is being finished.
__device__ __forceinline__ real finished(real a, real c, real r, real damping, real rest) {
    return fma(damping, a, rest * fmin((real)0, c - fmax((real)0, r)));
}

// damping old + (1 - damping) new
__device__ __forceinline__ double damped(double old, double fresh, double damping) {
    return fma(damping, old, (1.0 - damping) * fresh);
}

// What a row's m1 and m2 add to E at j.
__device__ __forceinline__ real boost_of(const Top& top, double damping) {
    return (real)((1.0 - damping) * ((double)top.m2 - (double)top.m1));
}

// E that is small beside the rest of R counts as zero.
__device__ __forceinline__ bool counts(real e, real s, double u, double negligible) {
    return fabs((double)e) > negligible * fmax(fabs(u), fabs((double)s));
}

__device__ __forceinline__ void add_positive(uint64* sums, int k, real r, double scale) {
    if (r > 0) atomicAdd(sums + k, (uint64)__double2ll_rn((double)r * scale));
}

// c, R(k,k), A(k,k) and the flag of one column, once its sums are those of all rows; `sums` becomes 0.
__device__ __forceinline__ void finish_exemplar(int k, int n, const uint64* totals, uint64* sums, real* c,
                                                double* r_diagonal, double* a_diagonal, unsigned char* now,
                                                unsigned char* last, double damping, double scale, bool& exemplar,
                                                bool& differs) {
    const double r = __longlong_as_double((int64)totals[n + k]), t = (double)(int64)totals[k] / scale;
    const double a = damped(a_diagonal[k], t, damping);
    sums[k] = 0;
    sums[n + k] = 0;
    c[k] = (real)(r + t);
    r_diagonal[k] = r;
    a_diagonal[k] = a;
    exemplar = a + r > 0;
    differs = exemplar != (last[k] != 0);
    now[k] = last[k] = exemplar;
}

// All threads of a block: how many exemplars there are, and how many rows differ from before.
__device__ __forceinline__ void count_exemplars(bool exemplar, bool differs, uint64* counts) {
    const int found = __syncthreads_count(exemplar), changed = __syncthreads_count(differs);
    if (threadIdx.x == 0) {
        if (found) atomicAdd(counts, (uint64)found);
        if (changed) atomicAdd(counts + 1, (uint64)changed);
    }
}
