// What memberships are made of: approximations with relative errors of 2^-22 or less (of a logarithm: absolute ones), which
// flush what is subnormal.
#pragma once

__device__ __forceinline__ float inverse_of(float s) {
    float q;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(q) : "f"(s));
    return q;
}
__device__ __forceinline__ float log2_of(float s) {
    float t;
    asm("lg2.approx.ftz.f32 %0, %1;" : "=f"(t) : "f"(s));
    return t;
}
__device__ __forceinline__ float exp2_of(float t) {
    float e;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(t));
    return e;
}
__device__ __forceinline__ double inverse_of(double s) { return 1 / s; }
__device__ __forceinline__ double log2_of(double s) { return log2(s); }
__device__ __forceinline__ double exp2_of(double t) { return exp2(t); }

#define LN2 0.6931471805599453
#define SMALLEST ((real)(sizeof(real) == 4 ? 1e-37 : 1e-307))  // log2 of less is not asked for: 0 log 0 is 0
