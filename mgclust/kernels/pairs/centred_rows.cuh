// Rows about a point, each scaled by a power of two of its own, as halves in tiles (split_products.cuh).
#pragma once

// A warp a row of the padded tiles, about `centre`. `which` names the rows to take, in order, or is null. norms[row]:
// the squared length, infinite in padded rows, and what a product is to be multiplied by.
extern "C" __global__ void pack_about(const float* x, const int64* which, const double* centre, int m, int d, int chunks,
                                      unsigned char* tiles, float2* norms) {
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    const float* from = x + (row < m ? (which ? which[row] : (int64)row) : 0) * d;
    float most = 0;
    double length = 0, rest = 0;
    if (row < m)
        for (int f = lane; f < d; f += 32) {
            const float v = (float)((double)from[f] - centre[f]);
            most = fmaxf(most, fabsf(v));
            length += (double)v * v;
        }
    for (int step = 16; step; step >>= 1) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        length += __shfl_xor_sync(0xffffffffu, length, step);
    }
    const int exponent = most > 0 ? max(ilogbf(most), -100) - 14 : 0;
    const float scale = ldexpf(1.f, -exponent);
    for (int part = lane; part < chunks * 8; part += 32) {  // eight features
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int f = part * 8 + i;
            v[i] = row < m && f < d ? (float)((double)from[f] - centre[f]) * scale : 0.f;
        }
        store_halves(v, tiles, row, part, chunks, rest);
    }
    if (lane == 0) norms[row] = row < m ? make_float2((float)length, ldexpf(1.f, exponent)) : make_float2(infinity(), 1.f);
}
