// Memberships of a row from its squared distances, and copies of rows that run meanwhile. Compiled with POWER as fuzzy.cu says.
#pragma once
#include "fuzzy_c_means/approximations.cuh"

// Between these, inverses and ratios of squared distances neither overflow nor become subnormal.
#define MIN_SAFE ((real)(sizeof(real) == 4 ? 1e-30 : 1e-290))
#define MAX_SAFE ((real)(sizeof(real) == 4 ? 1e30 : 1e290))

// What rows add to the sums of J, u^2 and -u log2 u.
struct Scores {
    real objective, squares, entropy;
};

// What the powers of memberships need: m, slope = 1 / (m - 1), and log2 of a scale of u^m, 0 unless it would vanish in all
// rows. What the scale makes too large is cut off: of rows that coincide with a centre, which then outweigh all others.
struct Powers {
    real m, slope, log2_scale;
    __device__ __forceinline__ real of_total(real log2_total) const {
        return exp2_of(fmin(log2_scale - m * log2_total, (real)(sizeof(real) == 4 ? 100 : 900)));
    }
};

// r = s_min / s, where 0 / 0 is 1.
__device__ __forceinline__ real careful_ratio(real least, real s) {
    return least > 0 ? least / s : (real)(s == 0);
}

// Memberships of a row from its squared distances s[0..COUNT), in place as g = w u^m. LANES neighbouring threads, STEP apart,
// have parts of the row. A centre that is none has s = infinity, and g = 0. With r = s_min / s and p = r^slope, P = sum p:
//
//     u = p / P      p^m = p r      so that  g = w p r P^-m,      sum of g s = w s_min P^(1-m)
//
// and for m = 2 simply q = 1 / s, u = q / sum q, sum of g s = w / sum q.
template <int COUNT, int LANES, int STEP, bool ONLY_U = false>
__device__ __forceinline__ void row_memberships(real (&s)[COUNT], real weight, Powers powers, bool first_lane,
                                                Scores& scores) {
    real total = 0, squares = 0, entropy = 0;
#if !POWER
    real q[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; ++j) total += q[j] = inverse_of(s[j]);
    for (int step = STEP; step < LANES * STEP; step *= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    if (__all_sync(0xffffffffu, total > MIN_SAFE && total < MAX_SAFE)) {  // together: there are more shuffles below
        const real inverse = inverse_of(total);
#pragma unroll
        for (int j = 0; j < COUNT; ++j) {
            const real u = q[j] * inverse;
            entropy -= u * log2_of(fmax(u, SMALLEST));
            squares = fma(u, u, squares);
            s[j] = ONLY_U ? u : u * (u * weight);
        }
        if (first_lane) scores.objective += weight * inverse;
        scores.squares += weight * squares;
        scores.entropy += weight * entropy;
        return;
    }
    total = 0;
#endif
    real least = s[0];
#pragma unroll
    for (int j = 1; j < COUNT; ++j) least = fmin(least, s[j]);
    for (int step = STEP; step < LANES * STEP; step *= 2) least = fmin(least, __shfl_xor_sync(0xffffffffu, least, step));
    const bool safe = least > MIN_SAFE && least < MAX_SAFE;
    real p[COUNT];
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        if (safe) s[j] = least * inverse_of(s[j]);
        else s[j] = careful_ratio(least, s[j]);
        p[j] = POWER ? exp2_of(powers.slope * log2_of(s[j])) : s[j];
        total += p[j];
    }
    for (int step = STEP; step < LANES * STEP; step *= 2) total += __shfl_xor_sync(0xffffffffu, total, step);
    const real inverse = inverse_of(total), scale = weight * powers.of_total(log2_of(total));
#pragma unroll
    for (int j = 0; j < COUNT; ++j) {
        const real u = p[j] * inverse;
        entropy -= u * log2_of(fmax(u, SMALLEST));
        squares = fma(u, u, squares);
        s[j] = ONLY_U ? u : s[j] * (p[j] * scale);
    }
    if (first_lane) scores.objective += least * (total * scale);
    scores.squares += weight * squares;
    scores.entropy += weight * entropy;
}

// Copies that run while the threads compute.
__device__ __forceinline__ void copy_later(real* to, const real* from, int bytes, bool there) {
    const unsigned int target = (unsigned int)__cvta_generic_to_shared(to);
    const int valid = there ? bytes : 0;  // the rest is filled with 0
    if (bytes == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(target), "l"(from), "r"(valid) : "memory");
    else if (bytes == 8)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 8, %2;" ::"r"(target), "l"(from), "r"(valid) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(target), "l"(from), "r"(valid) : "memory");
}
__device__ __forceinline__ void wait_for_copies() { asm volatile("cp.async.wait_all;" ::: "memory"); }
