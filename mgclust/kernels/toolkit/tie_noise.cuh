// Random numbers that depend on (seed, draw, row, column) alone, and the noise that breaks ties between similarities.
#pragma once

// Philox4x32-10 (Salmon et al., SC 2011).
__device__ __forceinline__ uint4 philox(uint4 c, uint2 key) {
#pragma unroll
    for (int round = 0; round < 10; ++round) {
        const unsigned int low0 = 0xD2511F53u * c.x, high0 = __umulhi(0xD2511F53u, c.x);
        const unsigned int low1 = 0xCD9E8D57u * c.z, high1 = __umulhi(0xCD9E8D57u, c.z);
        c = make_uint4(high1 ^ c.y ^ key.x, low1, high0 ^ c.w ^ key.y, low0);
        key.x += 0x9E3779B9u;
        key.y += 0xBB67AE85u;
    }
    return c;
}

// v + (eps v + tiny) U with U = byte / 256: the noise moves a value by no, one or two units of its last place, so a
// byte is enough, and one Philox block serves 16 columns.
struct Noise {
    uint64 seed;
    unsigned int draw;
    real tiny;

    // Sixteen bytes: of columns k .. k + 15, where k is a multiple of 16.
    __device__ __forceinline__ uint4 words(int i, int k) const {
        return philox(make_uint4((unsigned int)k / 16, (unsigned int)i, draw, 0),
                      make_uint2((unsigned int)seed, (unsigned int)(seed >> 32)));
    }
    // Of `bits`, the lowest byte counts.
    __device__ __forceinline__ real add(real v, unsigned int bits) const {
        return v > -infinity() ? add_finite(v, (real)(bits & 255u)) : v;
    }
    __device__ __forceinline__ real add_finite(real v, real byte) const {
        const real epsilon = sizeof(real) == 4 ? (real)1.1920928955078125e-07 : (real)2.220446049250313e-16;
        return fma(fma(epsilon / 256, v, tiny / 256), byte, v);
    }
};

// Number of a row: those of a call follow each other from first_row on, or are given.
__device__ __forceinline__ int number_of_row(const int64* numbers, int first_row, int i) {
    return numbers ? (int)numbers[i] : first_row + i;
}

// The word with the bytes of columns 4 q .. 4 q + 3.
__device__ __forceinline__ unsigned int word_of(const uint4& w, int q) {
    return q == 0 ? w.x : q == 1 ? w.y : q == 2 ? w.z : w.w;
}
