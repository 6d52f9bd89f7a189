// Similarities by products of split halves (pairs/split_products.cuh), float32, Hopper, up to 256 features.
//
// -factor s with s = |x|^2 + |y|^2 - 2 x.y, and the noise that breaks ties. Tensor cores add 16 products at a time and cut
// the sum off, by less than a unit of its last place: 16 times for 256 features. In a model of that, for rows
// that all lie in one direction from the origin, the largest error is 5e-7 of |x|^2 + |y|^2 then, where a chain of
// float32 multiply-adds has 7e-7. For more features it would be larger than that; similarity.cu, which rounds sums of
// 16, has these. Equal rows have equal products wherever they lie, and every value its own: the same bits in any pieces.
//
// The columns of each 16 are packed in such an order that the four that a thread holds of them are neighbours: columns
// 8 e + 2 q + b of the tile are columns 4 q + 2 e + b of the matrix, for e and b of 0 and 1. So a thread stores 16 bytes
// at once, and its noise is one word.
#include "pairs/pairs.cuh"
#include "toolkit/hashing.cuh"
#include "pairs/split_products.cuh"
#include "pairs/centred_rows.cuh"

struct Similarities {
    const float2* y_norms;
    int row[2], rows, columns, first_row, y_start;
    float norm[2], unscale[2], factor;  // unscale: -2 times that of pack_about
    Noise noise;
    int64 stride;
    float* out;
    // What the four threads of a row hold, transposed: word j of thread q becomes word q of thread j.
    __device__ __forceinline__ void transpose(unsigned int (&w)[4]) const {
        const bool second = threadIdx.x & 2, odd = threadIdx.x & 1;
#pragma unroll
        for (int j = 0; j < 2; ++j) {
            const unsigned int got = __shfl_xor_sync(0xffffffffu, second ? w[j] : w[j + 2], 2);
            (second ? w[j] : w[j + 2]) = got;
        }
#pragma unroll
        for (int j = 0; j < 4; j += 2) {
            const unsigned int got = __shfl_xor_sync(0xffffffffu, odd ? w[j] : w[j + 1], 1);
            (odd ? w[j] : w[j + 1]) = got;
        }
    }
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        const int q = threadIdx.x & 3;
#pragma unroll
        for (int half = 0; half < 2; ++half)  // of the tile's columns
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const uint4 own = noise.words(first_row + row[h], y_start + t * ROWS + half * 64 + q * 16);
                unsigned int words[4] = {own.x, own.y, own.z, own.w};
                transpose(words);
#pragma unroll
                for (int j = 0; j < 4; ++j) {
                    const int at = half * 32 + j * 8 + 2 * h, column = t * ROWS + half * 64 + j * 16 + 4 * q;
                    float v[4];
#pragma unroll
                    for (int e = 0; e < 2; ++e) {
                        // Norms and factors of two columns.
                        const float4 n = __ldg(reinterpret_cast<const float4*>(y_norms + t * ROWS + column_of(at + 4 * e)));
                        v[2 * e] = similarity(c[at + 4 * e] * n.y, h, n.x, words[j] >> (16 * e));
                        v[2 * e + 1] = similarity(c[at + 4 * e + 1] * n.w, h, n.z, words[j] >> (16 * e + 8));
                    }
                    const int itself = first_row + row[h] - y_start - column;
#pragma unroll
                    for (int i = 0; i < 4; ++i)
                        if (itself == i) v[i] = -infinity();
                    float* to = out + (int64)row[h] * stride + y_start + column;
                    if (row[h] < rows && column + 4 <= columns)
                        __stcs(reinterpret_cast<float4*>(to), make_float4(v[0], v[1], v[2], v[3]));
                    else
#pragma unroll
                        for (int i = 0; i < 4; ++i)
                            if (row[h] < rows && column + i < columns) to[i] = v[i];
                }
            }
    }
    __device__ __forceinline__ float similarity(float product, int h, float y_norm, unsigned int bits) const {
        const float s = fmaxf(fmaf(product, unscale[h], norm[h] + y_norm), 0.f);
        // The byte as a float, by way of the digits of 2^23 + byte.
        return noise.add_finite(-factor * s, __uint_as_float(0x4B000000u | (bits & 255u)) - 8388608.f);
    }
    __device__ __forceinline__ void end() {}
};

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
similarities(const unsigned char* x_tiles, const float2* x_norms, int m, const unsigned char* y_tiles,
             const float2* y_norms, int k, int chunks, int run, float factor, int first_row, int y_start, uint64 seed,
             float tiny, int64 stride, float* out) {
    const int begin = blockIdx.y * run, end = min((k + ROWS - 1) / ROWS, begin + run);
    Similarities op;
    op.y_norms = y_norms;
    op.rows = m;
    op.columns = k;
    op.first_row = first_row;
    op.y_start = y_start;
    op.factor = factor;
    op.noise = Noise{seed, 0, tiny};
    op.stride = stride;
    op.out = out;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        op.row[h] = blockIdx.x * ROWS + row_of(2 * h);
        const bool real_row = threadIdx.x >= 128 && op.row[h] < m;
        const float2 own = real_row ? x_norms[op.row[h]] : make_float2(0.f, 0.f);
        op.norm[h] = own.x;
        op.unscale[h] = -2 * own.y;
    }
    sweep_tiles<3>(x_tiles, y_tiles, chunks, blockIdx.x, begin, end, op);
}
