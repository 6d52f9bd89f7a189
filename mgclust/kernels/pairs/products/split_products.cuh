// Products of rows with columns at the tensor cores' rate (Hopper): tiles of 128 x 128 that never leave the registers.
//
// Every number x is the sum of two halves of 16 bits, hi + lo, and what they leave, at most 2^-22 |x|. Rows lie in
// tiles of ROWS rows and CHUNK features, hi before lo, each in the order in which the tensor cores read shared memory:
// 128 bytes a row, its eight parts of 16 bytes exchanged by the row's number. `pack` in split_products.cu writes them,
// so that one bulk copy brings a tile. One product (hi hi) is a filter with a known error; three (hi hi + hi lo +
// lo hi) are as accurate as float32.
//
// A block has three groups of four warps. The first has one thread that copies, STAGES chunks ahead; the two others
// multiply 64 rows each with all columns of a tile, and reduce its values in the registers that hold them. A value's
// products are added in the order of the features, wherever its row and column lie in a call: the same bits always.
// The tensor cores cut sums off instead of rounding them. Products with a low half have sums of their own, so that the
// large one is cut off a third as often; and one each, hi lo and lo hi, so that a pair has the same bits whichever of
// its two is the row.
#pragma once
#include "pairs/products/halves.cuh"

#define ROWS 128         // and columns
#define CHUNK 64         // features
#define HALF_BYTES 16384 // one half of ROWS rows and CHUNK features
#define VALUES 64        // of a tile in each thread
#define BLOCK_THREADS 384
#define SHARED_BYTES (225 * 1024)
#define STAYING 2        // chunks of rows that stay in shared memory while columns pass

// Eight features of a row, the part-th eight, to their places in the tiles; `rest` gains the squares that high halves leave.
__device__ __forceinline__ void store_halves(const float (&v)[8], unsigned char* tiles, int row, int part, int chunks,
                                             double& rest) {
    __align__(16) unsigned short hi[8], lo[8];
#pragma unroll
    for (int i = 0; i < 8; ++i) {
        hi[i] = to_half(v[i]);
        const float left = v[i] - from_half(hi[i]);
        lo[i] = to_half(left);
        rest += (double)left * left;
    }
    const int r = row & (ROWS - 1);
    unsigned char* to =
        tiles + ((int64)(row / ROWS) * chunks + (part >> 3)) * 2 * HALF_BYTES + r * 128 + ((part ^ r) & 7) * 16;
    *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(hi);
    *reinterpret_cast<uint4*>(to + HALF_BYTES) = *reinterpret_cast<const uint4*>(lo);
}

__device__ __forceinline__ unsigned int shared_address(const void* p) {
    return (unsigned int)__cvta_generic_to_shared(p);
}

__device__ __forceinline__ void barrier_init(unsigned int barrier, int count) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(count));
}

__device__ __forceinline__ void barrier_expect(unsigned int barrier, int bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

__device__ __forceinline__ void barrier_arrive(unsigned int barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory");
}

__device__ __forceinline__ void barrier_wait(unsigned int barrier, int parity) {
    asm volatile(
        "{\n.reg .pred p;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 p, [%0], %1;\n@p bra done;\nbra again;\n"
        "done:\n}" ::"r"(barrier), "r"(parity) : "memory");
}

__device__ __forceinline__ void bulk_copy(unsigned int to, const void* from, int bytes, unsigned int barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                 "l"(from), "r"(bytes), "r"(barrier) : "memory");
}

// A tile in shared memory for wgmma: groups of eight rows 1024 bytes apart, parts exchanged over 128 bytes.
__device__ __forceinline__ uint64 tile_at(unsigned int address) {
    return (uint64)((address & 0x3ffff) >> 4) | 1ull << 16 | 64ull << 32 | 1ull << 62;
}

#define FOUR(c, i) "+f"(c[i]), "+f"(c[i + 1]), "+f"(c[i + 2]), "+f"(c[i + 3])
#define SIXTEEN(c, i) FOUR(c, i), FOUR(c, i + 4), FOUR(c, i + 8), FOUR(c, i + 12)

// c (+)= 64 rows times 128 columns over 16 features; c starts at zero where `keep` is 0.
__device__ __forceinline__ void multiply(float (&c)[VALUES], uint64 a, uint64 b, int keep) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.b32 p, %66, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n128k16.f32.f16.f16 {"
        "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15,%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27,%28,%29,"
        "%30,%31,%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47,%48,%49,%50,%51,%52,%53,%54,%55,%56,"
        "%57,%58,%59,%60,%61,%62,%63}, %64, %65, p, 1, 1, 0, 0;\n}"
        : SIXTEEN(c, 0), SIXTEEN(c, 16), SIXTEEN(c, 32), SIXTEEN(c, 48)
        : "l"(a), "l"(b), "r"(keep));
}

// Value i of a thread lies in this row and column of its block's tile.
__device__ __forceinline__ int row_of(int i) {
    return ((threadIdx.x >> 7) - 1) * 64 + (threadIdx.x >> 5 & 3) * 16 + (threadIdx.x >> 2 & 7) + 8 * (i >> 1 & 1);
}
__device__ __forceinline__ int column_of(int i) { return (i >> 2) * 8 + 2 * (threadIdx.x & 3) + (i & 1); }

#ifdef FEW_CHUNKS
// Calls op.tile(values, t) with the products of a block's rows and the columns of every tile t in [begin, end), then
// op.end(), in the groups that multiply. Nothing may follow: the first group has few registers left. EITHER: values are
// the same whichever side is the rows.
//
// FEW_CHUNKS: rows of at most STAYING chunks stay in shared memory while the columns pass, and the two groups take turns:
// one multiplies, the other reduces what it has multiplied. Rows of more features come again with every tile. A constant
// of the program, since either takes half a second to compile.
template <int PRODUCTS, bool EITHER = false, class Op>
__device__ __forceinline__ void sweep_tiles(const unsigned char* rows, const unsigned char* columns, int chunks,
                                            int row_tile, int begin, int end, Op& op) {
    const bool FEW = FEW_CHUNKS;
    const int halves = PRODUCTS == 3 ? 2 : 1, part = halves * HALF_BYTES;
    const int stage_bytes = FEW ? part : 2 * part;
    const int stages = (SHARED_BYTES - 2048 - (FEW ? STAYING * part : 0)) / stage_bytes;
    // Else a group that has its turn would wait for stages that the other has not read.
    static_assert(!FEW || STAYING <= stages, "a tile of columns fits");
    extern __shared__ unsigned char shared[];
    const unsigned int own = (shared_address(shared) + 1023) & ~1023u, base = own + (FEW ? STAYING * part : 0);
    const unsigned int full = base + stages * stage_bytes, empty = full + 8 * stages, own_full = empty + 8 * stages;
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 2);
        }
        barrier_init(own_full, 1);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int group = (threadIdx.x >> 7) - 1;
    const int64 stride = (int64)chunks * 2 * HALF_BYTES;
    if (group < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x != 0) return;
        if (FEW && begin < end) {
            barrier_expect(own_full, chunks * part);
            for (int c = 0; c < chunks; ++c)
                bulk_copy(own + c * part, rows + row_tile * stride + c * 2 * HALF_BYTES, part, own_full);
        }
        int stage = 0, parity = 1;
        for (int t = begin; t < end; ++t)
            for (int c = 0; c < chunks; ++c) {
                const unsigned int to = base + stage * stage_bytes, ready = full + 8 * stage;
                barrier_wait(empty + 8 * stage, parity);
                barrier_expect(ready, stage_bytes);
                bulk_copy(to, columns + t * stride + c * 2 * HALF_BYTES, part, ready);
                if (!FEW) bulk_copy(to + part, rows + row_tile * stride + c * 2 * HALF_BYTES, part, ready);
                if (++stage == stages) { stage = 0; parity ^= 1; }
            }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    if (FEW && begin < end) barrier_wait(own_full, 0);
    if (FEW && group == 1) asm volatile("bar.arrive 3, 256;" ::: "memory");
    int turn = 0;  // of two rounds through the stages
    float values[VALUES], low[VALUES], low_too[EITHER ? VALUES : 1];  // of the columns' low halves, of the rows'
    for (int t = begin; t < end; ++t) {
        if (FEW) asm volatile("bar.sync %0, 256;" ::"r"(3 + group) : "memory");
        for (int c = 0; c < chunks; ++c) {
            const int stage = turn < stages ? turn : turn - stages;
            barrier_wait(full + 8 * stage, turn >= stages);
            const unsigned int b = base + stage * stage_bytes;
            const unsigned int a = (FEW ? own + c * part : b + part) + group * (HALF_BYTES / 2);
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
            for (int k = 0; k < CHUNK / 16; ++k) {
                multiply(values, tile_at(a + 32 * k), tile_at(b + 32 * k), c + k > 0);
                if (PRODUCTS == 3) {
                    multiply(low, tile_at(a + 32 * k), tile_at(b + HALF_BYTES + 32 * k), c + k > 0);
                    if constexpr (EITHER)
                        multiply(low_too, tile_at(a + HALF_BYTES + 32 * k), tile_at(b + 32 * k), c + k > 0);
                    else
                        multiply(low, tile_at(a + HALF_BYTES + 32 * k), tile_at(b + 32 * k), 1);
                }
            }
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
            if (c > 0) {
                asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");
                if ((threadIdx.x & 127) == 0) barrier_arrive(empty + 8 * (stage > 0 ? stage - 1 : stages - 1));
            }
            if (++turn == 2 * stages) turn = 0;
        }
        if (FEW && (group == 0 || t + 1 < end)) asm volatile("bar.arrive %0, 256;" ::"r"(4 - group) : "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
        const int last = turn > stages ? turn - stages : turn > 0 ? turn : stages;
        if ((threadIdx.x & 127) == 0) barrier_arrive(empty + 8 * (last - 1));
        if (PRODUCTS == 3)
#pragma unroll
            for (int i = 0; i < VALUES; ++i) values[i] += low[i] + (EITHER ? low_too[i] : 0.f);
        op.tile(values, t);
    }
    op.end();
}
#endif
