// What the all-pairs kernels share: the number type, the exponential, the exact distance of one pair.
//
// Compiled with  -DREAL=float|double  -DNORM=NORM_L2|NORM_DOT|NORM_L1  and, in low dimension, -DDIM -DROWS.
// Every kernel reduces s(i, j), the reduced distance of kernels/pairs/metrics.py, over the columns j of one call:
//
//   histogram       how many pairs lie below a bracket, and how many in each of its bins
//   gaussian        sum over j of exp(-scale * s^power)
//   count           how many j with s < threshold
//   nearest         smallest (s, j) among the j of higher density
//   border          is there a j of another label with s < threshold
//
// The same bits on any number of ranks: integer sums may come in any order (atomics), minima too; the
// Gaussian's floating-point sum has one order, fixed by the column's global index: GROUP columns are added
// here, and `add_groups` adds the groups one after the other.
#pragma once

#define NORM_L2 0
#define NORM_DOT 1
#define NORM_L1 2
#define GROUP 1024

typedef REAL real;
typedef long long int64;
typedef unsigned long long uint64;

template <typename T> struct Bits;
template <> struct Bits<float> {
    typedef int type;
    typedef unsigned int unsigned_type;
    static __device__ __forceinline__ int of(float s) { return __float_as_int(s); }
};
template <> struct Bits<double> {
    typedef int64 type;
    typedef uint64 unsigned_type;
    static __device__ __forceinline__ int64 of(double s) { return __double_as_longlong(s); }
};
typedef Bits<real>::type sbits;
typedef Bits<real>::unsigned_type ubits;

__device__ __forceinline__ real infinity() { return (real)__int_as_float(0x7f800000); }

// 2^-t for t >= 0. The approximation's relative error is 2^-22; results under 2^-126 become 0.
__device__ __forceinline__ float exp2_of_minus(float t) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(-t));
    return e;
}
__device__ __forceinline__ double exp2_of_minus(double t) { return exp2(-t); }

// One more feature in a reduced distance by direct differences.
__device__ __forceinline__ real accumulate(real a, real b, real s) {
    const real t = a - b;
#if NORM == NORM_L1
    return s + fabs(t);
#else
    return fma(t, t, s);
#endif
}

// Direct differences over all features, ascending: the value that decides wherever a threshold does.
__device__ __forceinline__ real direct(const real* __restrict__ a, const real* __restrict__ b, int d) {
    real s = 0;
#pragma unroll 4
    for (int k = 0; k < d; ++k) s = accumulate(a[k], b[k], s);
    return s;
}

struct Bracket {    // bits(s) in [low, low + (bins << shift))
    sbits low;
    ubits width;
    int shift;
};

__device__ __forceinline__ void add_warp_total(uint64 value, uint64* out) {
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(0xffffffffu, value, step);
    if ((threadIdx.x & 31) == 0 && value) atomicAdd(out, value);
}
