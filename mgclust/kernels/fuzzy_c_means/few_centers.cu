// Fuzzy c-means with few centres, m = 2, by products on tensor cores: distances and weighted sums of a group of rows in the
// registers of one warp, rows read once. For 17 to 64 features, centres in one or two tiles of 16.
//
// A number is the sum of three of 8 bits (bfloat16: float32's exponents, so nothing overflows or needs a scale). Of their nine
// products the six largest are taken; the largest one has a sum of its own, because tensor cores cut sums off.
// s = |x|^2 + |v|^2 - 2 x v has an error of some 2^-23 (|x|^2 + |v|^2); a pair whose s is less than SHARE of that is computed
// again by differences, so s is never off by more than some 2^-19 of itself. So are pairs that are too small for thirds, and
// those whose sums overflow (the comparison is then false).
//
// A tile has 8 rows. Thread (g, t) = (lane / 4, lane % 4) of the warp holds
//
//     of row g              features 8 t .. 8 t + 7 (of 32)            right side of the distances' products
//     of the products       centres g, g + 8 and rows 2 t, 2 t + 1     left side of the sums' products, as g = w u^2
//     of the sums           centres g, g + 8 and features 8 t .. 8 t + 7
//     of rows 2 t, 2 t + 1  features 4 g .. 4 g + 3                    right side of the sums' products
//
// Which feature or row is which of the products' eight is free, as long as both sides agree: so all reads of shared memory are
// of 16 bytes, and a tile of products is the left side of the next without an exchange.
//
// Per row, 16 centres and 32 features: 6 x 2 x 512 multiply-adds of tensor cores, some 1000 other instructions of a thread.
// Limits on one H200, n = 10M: 0.20 ms at the rate that mma.sync reaches, 0.34 ms; reading the rows 0.30 ms.
#define POWER 0
#include "pairs/pairs.cuh"
#include "fuzzy_c_means/memberships.cuh"

#define SHARE 0.0625f
#define MAX_NEAR 3                      // of a row's centres, else all differences are faster
#define TILE 8
#define TILES 2                          // of rows at a time
#define STAGE_ROWS (TILE * TILES)
#define PADDED ((DIM + 31) / 32 * 32)    // features, with zeros
#define QUADS (PADDED / 16)              // of features of a row in a thread
#define EIGHTS (PADDED / 8)
#define CENTERS (16 * CENTER_TILES)      // with those that are none
#define OF_ROW (2 * CENTER_TILES)        // distances of a row in a thread
#define ALL 0xffffffffu
#define NO_CENTER 3e38f                  // its inverse is flushed to 0

struct __align__(16) Four {
    real v[4];
};

// Four numbers of a row in shared memory: eight rows, or two rows and four parts, lie in different banks.
__device__ __forceinline__ int place(int row, int part) { return row * PADDED + 4 * ((part & ~7) | ((part ^ row) & 7)); }
// The part of a row that is the q-th of thread t, and that has the features of the sums.
__device__ __forceinline__ int part_of(int q, int t) { return 8 * (q / 2) + 2 * t + (q & 1); }

// d = c + a b: 16 x 8 sums of 16 products. Not volatile: their order is the compiler's.
__device__ __forceinline__ void multiply(float (&d)[4], const float (&c)[4], const unsigned int (&a)[4], unsigned int b0,
                                         unsigned int b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%11,%12,%13};"
        : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    multiply(c, c, a, b0, b1);
}
__device__ __forceinline__ unsigned int two_of(float first, float second) {
    unsigned int both;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(second), "f"(first));
    return both;
}

// An 8 x 8 matrix that the warp holds, transposed: a pair of row g and columns 2 t, 2 t + 1 in each thread.
__device__ __forceinline__ unsigned int transposed(unsigned int pair) {
    unsigned int other;
    asm("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(other) : "r"(pair));
    return other;
}

// Two numbers, each the sum of three.
struct Thirds {
    unsigned int high, middle, low;
    __device__ __forceinline__ Thirds across() const { return Thirds{transposed(high), transposed(middle), transposed(low)}; }
};
__device__ __forceinline__ Thirds thirds_of(float first, float second) {
    Thirds of;
    of.high = two_of(first, second);
    first -= __uint_as_float(of.high << 16);
    second -= __uint_as_float(of.high & 0xffff0000u);
    of.middle = two_of(first, second);
    of.low = two_of(first - __uint_as_float(of.middle << 16), second - __uint_as_float(of.middle & 0xffff0000u));
    return of;
}

// Both sides' thirds. small: of all products but the largest.
struct Left {
    unsigned int high[4], middle[4], low[4];
    __device__ __forceinline__ void set(int i, float first, float second) {
        const Thirds of = thirds_of(first, second);
        high[i] = of.high;
        middle[i] = of.middle;
        low[i] = of.low;
    }
    __device__ __forceinline__ void add_small(float (&small)[4], const Thirds& b0, const Thirds& b1) const {
        multiply(small, low, b0.high, b1.high);
        multiply(small, high, b0.low, b1.low);
        multiply(small, middle, b0.middle, b1.middle);
        multiply(small, middle, b0.high, b1.high);
        multiply(small, high, b0.middle, b1.middle);
    }
};

// STAGE_ROWS rows from `from` on, zeros behind `left` of them.
template <bool ALL_THERE>
__device__ __forceinline__ void copy_rows(const real* from, int left, real* to) {
    constexpr int VECTOR = DIM % 4 == 0 ? 4 : 1, NUMBERS = STAGE_ROWS * DIM / VECTOR;
    const real* own = from + threadIdx.x * VECTOR;
#pragma unroll
    for (int k = 0; k < (NUMBERS + 31) / 32; ++k) {
        const int i = (32 * k + threadIdx.x) * VECTOR, row = i / DIM, f = i % DIM;
        if (NUMBERS % 32 && i >= STAGE_ROWS * DIM) break;
        const bool there = ALL_THERE || i < left * DIM;
        copy_later(to + place(row, f / 4) + f % 4, there ? own + 32 * k * VECTOR : from, VECTOR * sizeof(real), there);
    }
}
__device__ __forceinline__ void stage_rows(const real* from, int left, real* to) {
    if (left >= STAGE_ROWS) copy_rows<true>(from, left, to);
    else copy_rows<false>(from, left, to);
}

// Whether an s is to be computed by differences; `both`: |x|^2 + |v|^2.
__device__ __forceinline__ bool is_open(real s, real both) { return !(s > fma(SHARE, both, MIN_SAFE)); }

// All pairs of the rows at hand by differences, each thread those that it holds.
__device__ __forceinline__ void all_differences(real (&s)[TILES][2][OF_ROW], const real (&norms)[OF_ROW], const real* xs,
                                                const real* centers, int g, int t) {
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int j = 0; j < OF_ROW; ++j) s[tile][h][j] = norms[j] == NO_CENTER ? NO_CENTER : (real)0;
#pragma unroll 1
    for (int part = 0; part < PADDED / 4; ++part) {
        Four b[OF_ROW];
#pragma unroll
        for (int j = 0; j < OF_ROW; ++j) b[j] = *reinterpret_cast<const Four*>(centers + place(g + 8 * j, part));
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const Four a = *reinterpret_cast<const Four*>(xs + TILE * PADDED * tile + place(2 * t + h, part));
#pragma unroll
                for (int j = 0; j < OF_ROW; ++j)
#pragma unroll
                    for (int e = 0; e < 4; ++e) {
                        const real left = a.v[e] - b[j].v[e];
                        s[tile][h][j] = fma(left, left, s[tile][h][j]);
                    }
            }
    }
}

// Open pairs by differences: each row's next one at a time, the four threads that hold its features together.
__device__ __forceinline__ void differences(real (&s)[TILES][2][OF_ROW], const real (&of_rows)[TILES][2],
                                            const real (&norms)[OF_ROW], const real* xs, const real* centers, int g, int t) {
    unsigned int left[TILES] = {}, any = 0;  // of row g: bit 4 k + j is centre k + 8 j
    int most = 0;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile) {
#pragma unroll
        for (int j = 0; j < OF_ROW; ++j) {
            const unsigned int even = __ballot_sync(ALL, is_open(s[tile][0][j], of_rows[tile][0] + norms[j]));
            const unsigned int odd = __ballot_sync(ALL, is_open(s[tile][1][j], of_rows[tile][1] + norms[j]));
            left[tile] |= ((g & 1 ? odd : even) >> (g >> 1) & 0x11111111u) << j;
        }
        any |= left[tile];
        most = max(most, __popc(left[tile]));
    }
    if (__any_sync(ALL, most > MAX_NEAR)) {
        all_differences(s, norms, xs, centers, g, t);
        return;
    }
    while (__any_sync(ALL, any != 0)) {
        any = 0;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            const int bit = left[tile] ? __ffs(left[tile]) - 1 : 32, center = (bit >> 2 & 7) + 8 * (bit & 3);
            any |= left[tile] &= left[tile] - 1;
            real sum = 0;
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const Four x = *reinterpret_cast<const Four*>(xs + TILE * PADDED * tile + place(g, part_of(q, t)));
                const Four b = *reinterpret_cast<const Four*>(centers + place(center, part_of(q, t)));
#pragma unroll
                for (int e = 0; e < 4; ++e) {
                    const real a = x.v[e] - b.v[e];
                    sum = fma(a, a, sum);
                }
            }
            sum += __shfl_xor_sync(ALL, sum, 1);
            sum += __shfl_xor_sync(ALL, sum, 2);
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const real found = __shfl_sync(ALL, sum, 4 * (2 * t + h));
                const int of = __shfl_sync(ALL, bit, 4 * (2 * t + h)) - 4 * g;
#pragma unroll
                for (int j = 0; j < OF_ROW; ++j) s[tile][h][j] = of == j ? found : s[tile][h][j];
            }
        }
    }
}

// Squared distances become g = w u^2, in place: where the sums of all rows' inverses are neither too large nor too small,
// together, else a row at a time.
template <bool WEIGHTED>
__device__ __forceinline__ void weigh(real (&s)[TILES][2][OF_ROW], const real (&weight)[TILES][2], int centers_count, int g,
                                      Scores& scores) {
    real q[TILES][2][OF_ROW], total[TILES][2] = {}, least = infinity(), most = 0;
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int j = 0; j < OF_ROW; ++j) total[tile][h] += q[tile][h][j] = inverse_of(s[tile][h][j]);
#pragma unroll
            for (int step = 4; step < 32; step *= 2) total[tile][h] += __shfl_xor_sync(ALL, total[tile][h], step);
            most = fmax(most, total[tile][h]);
            least = fmin(least, total[tile][h]);
        }
    if (__all_sync(ALL, least > MIN_SAFE && most < MAX_SAFE)) {
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const real inverse = inverse_of(total[tile][h]), w = WEIGHTED ? weight[tile][h] : (real)1;
                scores.objective = fma(w, inverse, scores.objective);  // of the first eighth of the warp
#pragma unroll
                for (int j = 0; j < OF_ROW; ++j) {
                    const real u = q[tile][h][j] * inverse, wu = w * u;
                    scores.entropy = fma(-wu, log2_of(fmax(u, SMALLEST)), scores.entropy);
                    s[tile][h][j] = u * wu;
                }
            }
        return;
    }
#pragma unroll
    for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
            for (int j = 0; j < OF_ROW; ++j)
                if (g + 8 * j >= centers_count) s[tile][h][j] = infinity();
            row_memberships<OF_ROW, 8, 4>(s[tile][h], WEIGHTED ? weight[tile][h] : (real)1, Powers{2, 1, 0}, true, scores);
        }
}

// A warp a group of rows. grid: x over models, y over groups. partial: (groups, models, centres * DIM + centres + 3).
extern "C" __global__ void __launch_bounds__(32, BLOCKS)
warp_sums(const real* __restrict__ x, int64 rows, const real* __restrict__ all_centers, int centers_count,
          const real* __restrict__ weights, int group_rows, real* partial) {
    extern __shared__ __align__(16) char memory[];
    real* const stages = reinterpret_cast<real*>(memory);  // STAGES x STAGE_ROWS rows
    real* const centers = stages + STAGES * STAGE_ROWS * PADDED;
    const int lane = threadIdx.x, g = lane >> 2, t = lane & 3;
    const int64 start = (int64)blockIdx.y * group_rows;
    const int count = (int)min((int64)group_rows, rows - start), stage_count = (count + STAGE_ROWS - 1) / STAGE_ROWS;
    const real* from = x + start * DIM;

    const real* own_centers = all_centers + (int64)blockIdx.x * centers_count * DIM;
    for (int i = lane; i < STAGES * STAGE_ROWS * PADDED; i += 32) stages[i] = 0;  // there are no features behind DIM
    for (int i = lane; i < CENTERS * PADDED; i += 32) {
        const int j = i / PADDED, f = i % PADDED;
        centers[place(j, f / 4) + f % 4] = j < centers_count && f < DIM ? own_centers[j * DIM + f] : (real)0;
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < STAGES - 1; ++i) {
        if (i < stage_count)
            stage_rows(from + i * STAGE_ROWS * DIM, count - i * STAGE_ROWS, stages + i * STAGE_ROWS * PADDED);
        asm volatile("cp.async.commit_group;" ::: "memory");
    }

    // -2 v in thirds: the left side of the distances' products; |v|^2.
    Left left_centers[CENTER_TILES][QUADS];
    real norms[OF_ROW];
#pragma unroll
    for (int m = 0; m < CENTER_TILES; ++m) {
        double norm[2] = {0, 0};
#pragma unroll
        for (int q = 0; q < QUADS; ++q)
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const real* v = centers + place(16 * m + g + 8 * (i & 1), part_of(q, t)) + 2 * (i >> 1);
                norm[i & 1] += (double)v[0] * v[0] + (double)v[1] * v[1];
                left_centers[m][q].set(i, -2 * v[0], -2 * v[1]);
            }
#pragma unroll
        for (int e = 0; e < 2; ++e) {
            for (int step = 1; step < 4; step *= 2) norm[e] += __shfl_xor_sync(ALL, norm[e], step);
            norms[2 * m + e] = 16 * m + g + 8 * e < centers_count ? (real)norm[e] : NO_CENTER;
        }
    }

    real totals[CENTER_TILES][EIGHTS][4] = {}, column[OF_ROW] = {};
    Scores scores = {};
    int own[QUADS];  // parts of row g in shared memory, from a stage's begin on
#pragma unroll
    for (int q = 0; q < QUADS; ++q) own[q] = place(g, part_of(q, t));
    const real *xs = stages, *ahead = from + (STAGES - 1) * STAGE_ROWS * DIM;
    real* free = stages + (STAGES - 1) * STAGE_ROWS * PADDED;
    int left = count;  // rows from this stage on
    for (; left > 0; left -= STAGE_ROWS) {
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");
        __syncwarp();
        if (left > (STAGES - 1) * STAGE_ROWS) stage_rows(ahead, left - (STAGES - 1) * STAGE_ROWS, free);
        asm volatile("cp.async.commit_group;" ::: "memory");
        ahead += STAGE_ROWS * DIM;
        free = free == centers - STAGE_ROWS * PADDED ? stages : free + STAGE_ROWS * PADDED;

        real s[TILES][2][OF_ROW];
        Thirds v[TILES][2 * QUADS];  // two features each
        real of_rows[TILES][2];
        bool any = false;
#pragma unroll
        for (int tile = 0; tile < TILES; ++tile) {
            real norm = 0;
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const Four x = *reinterpret_cast<const Four*>(xs + TILE * PADDED * tile + own[q]);
#pragma unroll
                for (int e = 0; e < 4; ++e) norm = fma(x.v[e], x.v[e], norm);
#pragma unroll
                for (int e = 0; e < 2; ++e) v[tile][2 * q + e] = thirds_of(x.v[2 * e], x.v[2 * e + 1]);
            }
            norm += __shfl_xor_sync(ALL, norm, 1);
            norm += __shfl_xor_sync(ALL, norm, 2);
#pragma unroll
            for (int h = 0; h < 2; ++h) of_rows[tile][h] = __shfl_sync(ALL, norm, 4 * (2 * t + h));

            real both[CENTER_TILES][4], large[CENTER_TILES][4], small[CENTER_TILES][4] = {};
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int j = 0; j < OF_ROW; ++j) both[j / 2][2 * (j & 1) + h] = of_rows[tile][h] + norms[j];
#pragma unroll
            for (int q = 0; q < QUADS; ++q) {
                const Thirds &b0 = v[tile][2 * q], &b1 = v[tile][2 * q + 1];
#pragma unroll
                for (int m = 0; m < CENTER_TILES; ++m) {
                    left_centers[m][q].add_small(small[m], b0, b1);
                    multiply(large[m], q ? large[m] : both[m], left_centers[m][q].high, b0.high, b1.high);
                }
            }
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int j = 0; j < OF_ROW; ++j) {
                    const int m = j / 2, i = 2 * (j & 1) + h;
                    s[tile][h][j] = large[m][i] + small[m][i];
                    any |= is_open(s[tile][h][j], both[m][i]);
                }
        }
        if (__any_sync(ALL, any)) differences(s, of_rows, norms, xs, centers, g, t);

        real weight[TILES][2];
        if (weights || left < STAGE_ROWS) {
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile)
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    const int row = TILE * tile + 2 * t + h;
                    weight[tile][h] = row >= left ? (real)0 : weights ? weights[start + count - left + row] : (real)1;
                }
            weigh<true>(s, weight, centers_count, g, scores);
        } else
            weigh<false>(s, weight, centers_count, g, scores);
#pragma unroll
        for (int j = 0; j < OF_ROW; ++j)
#pragma unroll
            for (int tile = 0; tile < TILES; ++tile) column[j] += s[tile][0][j] + s[tile][1][j];

        Left weighing[CENTER_TILES];
#pragma unroll
        for (int m = 0; m < CENTER_TILES; ++m)
#pragma unroll
            for (int i = 0; i < 4; ++i) weighing[m].set(i, s[i >> 1][0][2 * m + (i & 1)], s[i >> 1][1][2 * m + (i & 1)]);
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i) {
            real sums[CENTER_TILES][4] = {};
            const Thirds b0 = v[0][i].across(), b1 = v[1][i].across();
#pragma unroll
            for (int m = 0; m < CENTER_TILES; ++m) {
                weighing[m].add_small(sums[m], b0, b1);
                multiply(sums[m], weighing[m].high, b0.high, b1.high);
#pragma unroll
                for (int e = 0; e < 4; ++e) totals[m][i][e] += sums[m][e];
            }
        }
        xs = xs == centers - STAGE_ROWS * PADDED ? stages : xs + STAGE_ROWS * PADDED;
    }

    const int length = centers_count * DIM + centers_count + 3;
    real* out = partial + ((int64)blockIdx.y * gridDim.x + blockIdx.x) * length;
#pragma unroll
    for (int m = 0; m < CENTER_TILES; ++m)
#pragma unroll
        for (int i = 0; i < EIGHTS; ++i)
#pragma unroll
            for (int e = 0; e < 4; ++e) {
                const int j = 16 * m + g + 8 * (e >> 1), f = 4 * part_of(i / 2, t) + 2 * (i & 1) + (e & 1);
                if (j < centers_count && f < DIM) out[j * DIM + f] = totals[m][i][e];
            }
    double squares = 0;
#pragma unroll
    for (int j = 0; j < OF_ROW; ++j) {
        squares += (double)column[j];
        for (int step = 1; step < 4; step *= 2) column[j] += __shfl_xor_sync(ALL, column[j], step);
        if (t == 0 && g + 8 * j < centers_count) out[centers_count * DIM + g + 8 * j] = column[j];
    }
    // Where m = 2, the sum of w u^2 is that of g.
    double found[3] = {g == 0 ? (double)scores.objective : 0.0, squares, LN2 * (double)scores.entropy};
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        for (int step = 16; step; step >>= 1) found[i] += __shfl_xor_sync(ALL, found[i], step);
        if (lane == 0) out[length - 3 + i] = (real)found[i];
    }
}
