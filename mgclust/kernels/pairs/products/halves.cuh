// Numbers of 16 bits, as tensor cores take them, without CUDA's headers: each program would parse those again.
#pragma once

typedef unsigned short half16;

__device__ __forceinline__ half16 to_half(float v) {
    half16 h;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(h) : "f"(v));
    return h;
}
__device__ __forceinline__ float from_half(half16 h) {
    float v;
    asm("cvt.f32.f16 %0, %1;" : "=f"(v) : "h"(h));
    return v;
}
