// Fuzzy c-means of many centres by products of split halves (pairs/products/split_products.cuh): m = 2, float32, Hopper.
//
//   pack      rows, or centres, as halves, each with a power of two of its own
//   totals    a tile of rows stays in shared memory, centres pass by: sum of 1 / s for each row
//   sums      a tile of centres stays, rows pass by: the same products again give u, and g = w u^2 in registers is at
//             once the left operand of the next product, whose right one is the tile of rows that s came from
//   scores    sums of J, u^2 and -u log u of a piece of rows
//
// Per pair, products of 2 d multiply-adds, three times each: 1M rows, 128 features, 1,024 centres are 2.4e12 operations, 4 ms
// at 600e12 a second. Nothing is stored for a pair; sums of pieces of 1,024 rows are, 0.5 GB.
//
// s = |x|^2 + |v|^2 - 2 x.v = both - 2 p has an error of about 1e-7 of `both`. Pairs with s <= share * both are decided by
// direct differences, by the warp that meets them. A piece of rows with too many of them, or with sums that float32 does not hold,
// is marked, and left to the kernels of direct differences: by its rows and all centres alone, so any rank decides alike.
//
// The weights of one cluster in a tile of rows share a power of two, by the largest g |x|: what the halves leave is 2^-22 of a
// weight, or 2^-38 of the largest. Sums of a tile are added in float32.
//
// Rows have 128 features here; those of fewer are filled up with zeros.
//
// One file because `totals` and `sums` compute the same products, and `scores` adds up what they leave.
#include "pairs/pairs.cuh"
#include "pairs/products/split_products.cuh"
#include "fuzzy_c_means/approximations.cuh"

#define CHUNKS 2
#define TILE_BYTES (CHUNKS * 2 * HALF_BYTES)
#define STAGES ((SHARED_BYTES - 2048) / (TILE_BYTES + FACTOR_BYTES) - 1)
#define FACTOR_BYTES (ROWS * 24)     // of a tile of rows: geometry, then of_rows
#define PIECE 8                      // tiles of rows
#define WARPS 8                      // that multiply
#define LANES (8 * CHUNKS)           // that pack a row
#define OUTPUTS (32 * CHUNKS)        // sums of a thread
#define COINCIDENT 7.5231638e-37f    // 2^-120: in place of 0, a distance that leaves nothing to others
#define MIN_TOTAL 1e-30
#define MAX_TOTAL 4e37              // the inverse of more is subnormal

// LANES threads a row of the padded tiles. geometry[row]: the squared length, infinite in padded rows, and the power of two that
// halves are to be multiplied by.
extern "C" __global__ void __launch_bounds__(256)
pack(const float* __restrict__ x, int rows, int d, unsigned char* tiles, float2* geometry) {
    const int row = (blockIdx.x * 256 + threadIdx.x) / LANES, part = threadIdx.x % LANES;
    const float* from = x + (int64)(row < rows ? row : 0) * d + 8 * part;
    const int there = row < rows ? min(8, d - 8 * part) : 0;
    float v[8] = {};
    if (there == 8 && d % 4 == 0 && ((uint64)x & 15) == 0) {
        *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(from);
        *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(from + 4);
    } else {
#pragma unroll
        for (int i = 0; i < 8; ++i)
            if (i < there) v[i] = from[i];
    }
    float most = 0;
    double length = 0, rest = 0;
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        most = fmaxf(most, fabsf(v[i]));
        length += (double)v[i] * v[i];
    }
#pragma unroll
    for (int step = 1; step < LANES; step *= 2) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        length += __shfl_xor_sync(0xffffffffu, length, step);
    }
    // That of a row of zeros is small: it should not count in the power of two that the weights of a tile share.
    const int exponent = most > 0 && most < infinity() ? max(ilogbf(most), -86) - 14 : -100;
    const float scale = ldexpf(1.f, -exponent);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[i] *= scale;
    store_halves(v, tiles, row, part, CHUNKS, rest);
    if (part == 0) geometry[row] = row < rows ? make_float2((float)length, ldexpf(1.f, exponent)) : make_float2(infinity(), 1.f);
}

// c = 64 rows of a tile times 128 of another. Products with a low half come first, while the sum is small: it is cut off less.
__device__ __forceinline__ void tile_product(float (&c)[VALUES], unsigned int a, unsigned int b) {
    asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
    for (int k = 0; k < 4 * CHUNKS; ++k) {
        const int at = k / 4 * 2 * HALF_BYTES + k % 4 * 32;
        multiply(c, tile_at(a + at), tile_at(b + at + HALF_BYTES), k > 0);
        multiply(c, tile_at(a + at + HALF_BYTES), tile_at(b + at), 1);
    }
#pragma unroll
    for (int k = 0; k < 4 * CHUNKS; ++k) {
        const int at = k / 4 * 2 * HALF_BYTES + k % 4 * 32;
        multiply(c, tile_at(a + at), tile_at(b + at), 1);
    }
    asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
}

// The same tile as a right operand whose features are the columns: 64 neighbouring ones in 128 bytes, the next 64 in the
// next chunk, groups of eight rows 1024 bytes apart.
__device__ __forceinline__ uint64 features_at(unsigned int address) {
    return (uint64)((address & 0x3ffff) >> 4) | (uint64)(2 * HALF_BYTES >> 4) << 16 | 64ull << 32 | 1ull << 62;
}

// c (+)= weights in registers, 64 rows times 16 columns, times 16 rows of features.
__device__ __forceinline__ void weigh(float (&c)[OUTPUTS], unsigned int a0, unsigned int a1, unsigned int a2, unsigned int a3,
                                      uint64 b, int keep) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %69, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, {%64,%65,%66,%67}, %68, p, 1, 1, 1;\n}"
        : SIXTEEN(c, 0), SIXTEEN(c, 16), SIXTEEN(c, 32), SIXTEEN(c, 48)
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "l"(b), "r"(keep));
}

// Rows or centres, as `pack` left them. of_rows: what else the tile's rows have, or null.
struct Side {
    const float* x;
    const unsigned char* tiles;
    const float2* geometry;
    const float4* of_rows;
};

__device__ __forceinline__ void copy_tile(unsigned int to, const unsigned char* tiles, int tile, unsigned int ready) {
#pragma unroll
    for (int c = 0; c < CHUNKS; ++c)
        bulk_copy(to + c * 2 * HALF_BYTES, tiles + (int64)tile * TILE_BYTES + c * 2 * HALF_BYTES, 2 * HALF_BYTES, ready);
}

// For every tile h of [first, last), which stays in shared memory: op.begin(h), then op.tile(products of its rows with those of
// tile t, t, where tile t is, where its factors are) for every t of [begin, end) but those of marked pieces, then op.end(h).
// Nothing may follow. If READS_TILE, the tile stays until op.tile is done, with its factors.
template <class Op>
__device__ __forceinline__ void sweep_about(const Side& held, int first, int last, const Side& passing, int begin, int end,
                                            const unsigned char* marked, Op& op) {
    extern __shared__ unsigned char shared[];
    const unsigned int own = (shared_address(shared) + 1023) & ~1023u, ring = own + TILE_BYTES;
    const unsigned int factors = ring + STAGES * TILE_BYTES;
    const unsigned int full = factors + STAGES * FACTOR_BYTES, empty = full + 8 * STAGES;
    const unsigned int own_full = empty + 8 * STAGES, own_empty = own_full + 8;
    if (threadIdx.x == 0) {
        for (int s = 0; s < STAGES; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, WARPS);
        }
        barrier_init(own_full, 1);
        barrier_init(own_empty, WARPS);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int group = (threadIdx.x >> 7) - 1;
    int stage = 0;
    if (group < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
        if (threadIdx.x != 0) return;
        for (int h = first, parity = 1, own_parity = 1; h < last; ++h, own_parity ^= 1) {
            barrier_wait(own_empty, own_parity);
            barrier_expect(own_full, TILE_BYTES);
            copy_tile(own, held.tiles, h, own_full);
            for (int t = begin; t < end; ++t) {
                if (marked && marked[t / PIECE]) continue;
                barrier_wait(empty + 8 * stage, parity);
                barrier_expect(full + 8 * stage, TILE_BYTES + (Op::READS_TILE ? FACTOR_BYTES : 0));
                copy_tile(ring + stage * TILE_BYTES, passing.tiles, t, full + 8 * stage);
                if (Op::READS_TILE) {
                    const unsigned int to = factors + stage * FACTOR_BYTES;
                    bulk_copy(to, passing.geometry + t * ROWS, ROWS * 8, full + 8 * stage);
                    bulk_copy(to + ROWS * 8, passing.of_rows + t * ROWS, ROWS * 16, full + 8 * stage);
                }
                if (++stage == STAGES) { stage = 0; parity ^= 1; }
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    float values[VALUES];
    for (int h = first, parity = 0, own_parity = 0; h < last; ++h, own_parity ^= 1) {
        op.begin(h);
        barrier_wait(own_full, own_parity);
        for (int t = begin; t < end; ++t) {
            if (marked && marked[t / PIECE]) continue;
            const unsigned int tile = ring + stage * TILE_BYTES;
            barrier_wait(full + 8 * stage, parity);
            tile_product(values, own + group * (HALF_BYTES / 2), tile);
            if (t + 1 == end && (threadIdx.x & 31) == 0) barrier_arrive(own_empty);
            if (!Op::READS_TILE && (threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * stage);
            op.tile(values, t, tile, factors + stage * FACTOR_BYTES);
            if (Op::READS_TILE && (threadIdx.x & 31) == 0) barrier_arrive(empty + 8 * stage);
            if (++stage == STAGES) { stage = 0; parity ^= 1; }
        }
        op.end(h);
    }
}

__device__ __forceinline__ float4 shared_four(unsigned int address) {
    float4 n;
    asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(n.x), "=f"(n.y), "=f"(n.z), "=f"(n.w) : "r"(address));
    return n;
}

// Products of a tile become squared distances. The held rows are `mine`.
template <bool READS>
struct Pairs {
    static constexpr bool READS_TILE = READS;
    Side mine, theirs;
    int d, near, most_near;     // near: pairs that were decided by direct differences, of this warp
    float share;
    int row[2];
    float norm[2], unscale[2];
    __device__ __forceinline__ void load(int h) {
        near = 0;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            row[i] = h * ROWS + row_of(2 * i);
            const float2 own = mine.geometry[row[i]];
            norm[i] = own.x;
            unscale[i] = -2 * own.y;
        }
    }
    // Squared lengths and factors of two neighbouring columns: x, y of the first, z, w of the second. Not kept: 64 numbers.
    __device__ __forceinline__ float4 columns_at(int t, int four, unsigned int factors) const {
        if (READS) return shared_four(factors + 8 * column_of(4 * four));
        float4 n;
        asm volatile("ld.global.nc.v4.f32 {%0, %1, %2, %3}, [%4];"
                     : "=f"(n.x), "=f"(n.y), "=f"(n.z), "=f"(n.w)
                     : "l"(theirs.geometry + t * ROWS + column_of(4 * four)));
        return n;
    }
    __device__ __forceinline__ void distances(float (&c)[VALUES], int t, unsigned int factors) {
        float least = infinity();
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            const float4 n = columns_at(t, four, factors);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float both = norm[i >> 1] + (i & 1 ? n.z : n.x);
                const float s = fmaf(c[4 * four + i] * (i & 1 ? n.w : n.y), unscale[i >> 1], both);
                least = fminf(least, fmaf(-share, both, s));
                c[4 * four + i] = s;
            }
        }
        if (__any_sync(0xffffffffu, least <= 0) && near <= most_near) decide(c, t, factors);
    }
    // Four pairs at a time, eight threads each.
    __device__ __forceinline__ void decide(float (&c)[VALUES], int t, unsigned int factors) {
        unsigned int left[2] = {0, 0};
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            const float4 n = columns_at(t, four, factors);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int i = 4 * four + j;
                const float both = norm[j >> 1] + (j & 1 ? n.z : n.x);
                if (c[i] <= share * both && both < infinity()) left[i >> 5] |= 1u << (i & 31);
            }
        }
        const int lane = threadIdx.x & 31;
        while (const unsigned int lanes = __ballot_sync(0xffffffffu, (left[0] | left[1]) != 0)) {
            unsigned int others = lanes;  // whose first is the one that this quarter works for
            for (int q = 0; q < lane >> 3; ++q) others &= others - 1;
            const bool work = others != 0;
            const int leader = work ? __ffs(others) - 1 : lane;
            const int next = left[0] ? __ffs(left[0]) - 1 : 31 + __ffs(left[1]);  // 31 where there is none
            const int i = __shfl_sync(0xffffffffu, next, leader);
            const int own = __shfl_sync(0xffffffffu, next & 2 ? row[1] : row[0], leader);
            const int column = t * ROWS + (i >> 2) * 8 + 2 * (leader & 3) + (i & 1);
            float s = 0;
            bool differ = false;
            if (work) {
                const float *a = mine.x + (int64)own * d, *b = theirs.x + (int64)column * d;
#pragma unroll 4
                for (int f = lane & 7; f < d; f += 8) {
                    const float v = a[f] - b[f];
                    s = fmaf(v, v, s);
                    differ |= v != 0;
                }
            }
#pragma unroll
            for (int step = 1; step < 8; step *= 2) s += __shfl_xor_sync(0xffffffffu, s, step);
            const unsigned int differing = __ballot_sync(0xffffffffu, differ);
            const int rank = __popc(lanes & ((1u << lane) - 1));  // of this thread among those that wait
            const int from = 8 * min(rank, 3);
            float mine_s = __shfl_sync(0xffffffffu, s, from);
            // 0 of different rows: float32 does not hold their distance.
            if (mine_s == 0) mine_s = differing >> from & 0xff ? __int_as_float(0x7fc00000) : COINCIDENT;
            const bool take = (left[0] | left[1]) != 0 && rank < 4;
#pragma unroll
            for (int j = 0; j < VALUES; ++j)
                if (take && next == j) c[j] = mine_s;
            if (take) {
                if (left[0]) left[0] &= left[0] - 1;
                else left[1] &= left[1] - 1;
            }
            near += min(4, __popc(lanes));
        }
    }
};

struct Totals : Pairs<false> {
    const float* weights;
    int rows;
    float4* of_rows;
    unsigned char* marked;
    double total[2];
    __device__ __forceinline__ void begin(int h) {
        load(h);
        total[0] = total[1] = 0;
    }
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t, unsigned int, unsigned int) {
        distances(c, t, 0);
        float sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VALUES; ++i) sum[i >> 1 & 1] += inverse_of(c[i]);
        total[0] += (double)sum[0];
        total[1] += (double)sum[1];
    }
    __device__ __forceinline__ void end(int h) {
        bool held = near <= most_near;
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            double sum = total[i];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            const bool there = row[i] < rows;
            held &= !there || (sum > MIN_TOTAL && sum < MAX_TOTAL);
            const float weight = !there ? 0.f : weights ? weights[row[i]] : 1.f;
            if ((threadIdx.x & 3) == 0)
                of_rows[row[i]] = make_float4(there ? (float)(1 / sum) : 0.f, weight, weight * (unscale[i] * -0.5f), 0.f);
        }
        if (!held) marked[h / PIECE] = 1;
    }
};

// of_rows[row]: 1 / sum of 1 / s, w, and w times the row's power of two. marked[piece] becomes 1 where direct differences have to do
// everything. grid: x over runs of tiles of rows.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
totals(const float* x, const unsigned char* x_tiles, const float2* x_geometry, int rows, const float* centers,
       const unsigned char* center_tiles, const float2* center_geometry, int centers_count, int d, float share, int most_near,
       int run, const float* weights, float4* of_rows, unsigned char* marked) {
    const int first = blockIdx.x * run, last = min((rows + ROWS - 1) / ROWS, first + run);
    Totals op;
    op.mine = Side{x, x_tiles, x_geometry, nullptr};
    op.theirs = Side{centers, center_tiles, center_geometry, nullptr};
    op.d = d;
    op.share = share;
    op.most_near = most_near;
    op.weights = weights;
    op.rows = rows;
    op.of_rows = of_rows;
    op.marked = marked;
    sweep_about(op.mine, first, last, op.theirs, 0, (centers_count + ROWS - 1) / ROWS, nullptr, op);
}

__device__ __forceinline__ unsigned int two_halves(float low, float high) {
    unsigned int both;
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
    return both;
}

struct Sums : Pairs<true> {
    int centers_count, end_tile;
    int64 stride;
    float *partial, *entropies;
    float totals[OUTPUTS], weight[2], entropy;
    __device__ __forceinline__ void clear() {
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) totals[i] = 0;
        weight[0] = weight[1] = entropy = 0;
    }
    __device__ __forceinline__ void begin(int h) {
        load(h);
        clear();
    }
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t, unsigned int features, unsigned int factors) {
        distances(c, t, factors);
        float most[2] = {0, 0}, of_tile[4] = {}, entropies_of_tile[4] = {};
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            // Adds nothing, but waits: the compiler would load all factors first, into registers that it lacks.
            if (four % 2 == 0) factors += __float_as_uint(most[0]) >> 31;
            const unsigned int of = factors + ROWS * 8 + 16 * column_of(4 * four);
            const float4 left = shared_four(of), right = shared_four(of + 16);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float4 n = i & 1 ? right : left;
                const float u = inverse_of(c[4 * four + i]) * n.x, wu = n.y * u;
                entropies_of_tile[i] = fmaf(-wu, log2_of(fmaxf(u, SMALLEST)), entropies_of_tile[i]);
                of_tile[i] = fmaf(u, wu, of_tile[i]);
                c[4 * four + i] = u * (u * n.z);
                most[i >> 1] = fmaxf(most[i >> 1], c[4 * four + i]);
            }
        }
        entropy += entropies_of_tile[0] + entropies_of_tile[1] + (entropies_of_tile[2] + entropies_of_tile[3]);
        weight[0] += of_tile[0] + of_tile[1];
        weight[1] += of_tile[2] + of_tile[3];
        float scale[2], unscaled[2];  // the largest weight of a cluster to between 2^14 and 2^15
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 1));
            most[i] = fmaxf(most[i], __shfl_xor_sync(0xffffffffu, most[i], 2));
            const int exponent = max(__float_as_int(most[i]) >> 23, 15);
            scale[i] = __int_as_float((268 - exponent) << 23);
            unscaled[i] = __int_as_float((exponent - 14) << 23);
        }
        unsigned int high[VALUES / 2], low[VALUES / 2];
        float sums[OUTPUTS];
#pragma unroll
        for (int k = 0; k < ROWS / 16; ++k) {
#pragma unroll
            for (int j = 4 * k; j < 4 * k + 4; ++j) {
                const float a = c[2 * j] * scale[j & 1], b = c[2 * j + 1] * scale[j & 1];
                high[j] = two_halves(a, b);
                low[j] = two_halves(a - from_half(high[j] & 0xffff), b - from_half(high[j] >> 16));
                asm volatile("" : "+r"(high[j]), "+r"(low[j])::"memory");
            }
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            const unsigned int at = features + k * 2048;
            weigh(sums, low[4 * k], low[4 * k + 1], low[4 * k + 2], low[4 * k + 3], features_at(at), k > 0);
            weigh(sums, high[4 * k], high[4 * k + 1], high[4 * k + 2], high[4 * k + 3], features_at(at + HALF_BYTES), 1);
        }
#pragma unroll
        for (int k = 0; k < ROWS / 16; ++k)
            weigh(sums, high[4 * k], high[4 * k + 1], high[4 * k + 2], high[4 * k + 3], features_at(features + k * 2048), 1);
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int i = 0; i < OUTPUTS; ++i) totals[i] = fmaf(sums[i], unscaled[i >> 1 & 1], totals[i]);
        if ((t + 1) % PIECE == 0 || t + 1 == end_tile) write(t / PIECE);
    }
    __device__ __forceinline__ void write(int piece) {
        float* out = partial + piece * stride;
        int left = d - column_of(0);  // features from the thread's first on
        asm volatile("" : "+r"(left));  // computed here: what follows from it would be kept in registers from tile to tile
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            float* to = out + (int64)row[h] * d + column_of(0);
            if (row[h] >= centers_count) continue;
#pragma unroll
            for (int i = 2 * h; i < OUTPUTS; i += i & 1 ? 3 : 1)
                if ((i >> 2) * 8 + (i & 1) < left) to[(i >> 2) * 8 + (i & 1)] = totals[i];
        }
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            weight[i] += __shfl_xor_sync(0xffffffffu, weight[i], 1);
            weight[i] += __shfl_xor_sync(0xffffffffu, weight[i], 2);
            if ((threadIdx.x & 3) == 0 && row[i] < centers_count) out[(int64)centers_count * d + row[i]] = weight[i];
        }
        for (int step = 16; step; step >>= 1) entropy += __shfl_xor_sync(0xffffffffu, entropy, step);
        if ((threadIdx.x & 31) == 0) entropies[((int64)piece * gridDim.x + blockIdx.x) * WARPS + (threadIdx.x >> 5) - 4] = entropy;
        clear();
    }
    __device__ __forceinline__ void end(int) {}
};

// partial[piece]: the sums of g x and of g of the piece's rows; pieces lie `stride` numbers apart. entropies: eight numbers for each
// piece and tile of centres. grid: x over tiles of centres, y over runs of pieces.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
sums(const float* x, const unsigned char* x_tiles, const float2* x_geometry, int rows, const float* centers,
     const unsigned char* center_tiles, const float2* center_geometry, int centers_count, int d, float share, int run,
     const float4* of_rows, const unsigned char* marked, int64 stride, float* partial, float* entropies) {
    const int begin = blockIdx.y * run * PIECE, end = min((rows + ROWS - 1) / ROWS, begin + run * PIECE);
    Sums op;
    op.mine = Side{centers, center_tiles, center_geometry, nullptr};
    op.theirs = Side{x, x_tiles, x_geometry, of_rows};
    op.d = d;
    op.share = share;
    op.most_near = 0x7fffffff;
    op.centers_count = centers_count;
    op.end_tile = end;
    op.stride = stride;
    op.partial = partial;
    op.entropies = entropies;
    sweep_about(op.mine, blockIdx.x, blockIdx.x + 1, op.theirs, begin, end, marked, op);
}

// The last three numbers of a piece's sums. A warp a piece; where m = 2, the sum of w u^2 is that of g.
extern "C" __global__ void __launch_bounds__(32)
scores(int rows, int centers_count, int d, const float4* of_rows, const float* entropies, int64 stride, float* partial) {
    float* out = partial + blockIdx.x * stride + (int64)centers_count * d;
    const int start = blockIdx.x * PIECE * ROWS, stop = min(rows, start + PIECE * ROWS);
    const int count = (centers_count + ROWS - 1) / ROWS * WARPS;
    double found[3] = {0, 0, 0};
    for (int row = start + threadIdx.x; row < stop; row += 32) found[0] += (double)(of_rows[row].x * of_rows[row].y);
    for (int j = threadIdx.x; j < centers_count; j += 32) found[1] += (double)out[j];
    for (int i = threadIdx.x; i < count; i += 32) found[2] += (double)entropies[(int64)blockIdx.x * count + i];
#pragma unroll
    for (int i = 0; i < 3; ++i) {
        for (int step = 16; step; step >>= 1) found[i] += __shfl_xor_sync(0xffffffffu, found[i], step);
        if (threadIdx.x == 0) out[centers_count + i] = (float)(i == 2 ? LN2 * found[i] : found[i]);
    }
}
