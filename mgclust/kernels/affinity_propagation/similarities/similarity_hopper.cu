// Similarities of many features on Hopper: those of similarity.cu, to the bit, at the rate at which memory takes them.
//
// The same halves, products in the same order, and sums of 16 features in float32. Instead of phases with barriers
// between them (products, final sums, noise, one store, the other), two groups of four warps go on independently: each
// multiplies 64 rows with the 128 columns of a tile (wgmma, operands from shared memory) and finishes what it has
// multiplied. Values never leave the registers before they are stored. Like similarity.cu, which CuPy compiles, this is
// compiled with -ftz=true: the offset of the noise is below the normal numbers.
//
// Rows lie in the tiles of split_products.cuh, but those of every sixteen in another order, row 2 (p mod 8) + p / 8 at
// place p. Thus a thread holds two rows that follow each other and four columns that do, in which four lanes follow each
// other: it stores 16 bytes of a row as it is, 8 bytes of one that is transposed, and a warp 64 bytes of each row.
//
// One thread copies tiles ahead. Rows of up to 128 features stay in shared memory while their columns pass.
//
// One H100, n = 40,000, d = 120: 3.6 ms, where similarity.cu takes 5.3 and writing 6.4 GB 2.0. Products alone take 2.8 ms,
// stores alone 3.5.
#include "pairs/pairs.cuh"
#include "pairs/products/split_products.cuh"
#include "toolkit/tie_noise.cuh"

#define PAIR_BYTES (2 * HALF_BYTES) // hi and lo of ROWS rows and CHUNK features
#define RESIDENT 2                  // chunks of rows that stay while their columns pass
#define OPERAND_BYTES (6 * PAIR_BYTES)
#define WORDS 256                   // of noise of a warp: 16 rows, 128 columns, as it is and transposed
#define WARPS 8                     // that multiply

// One warp a row: split_rows in similarity.cu, into tiles. Rows behind the end are zeros.
extern "C" __global__ void __launch_bounds__(256, 1)
pack_rows(const float* __restrict__ x, int m, int d, int chunks, unsigned char* tiles, float* unscale, float* norms) {
    const int row = blockIdx.x * 8 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    const float* from = x + (int64)(row < m ? row : 0) * d;
    const int width = row < m ? d : 0;
    float most = 0;
    double norm = 0;
    for (int f = lane; f < width; f += 32) {
        const float v = from[f];
        most = fmaxf(most, fabsf(v));
        norm += (double)v * v;
    }
    for (int step = 16; step; step >>= 1) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        norm += __shfl_xor_sync(0xffffffffu, norm, step);
    }
    const int exponent = most > 0 ? ilogbf(most) : 0;
    const float scale = exp2f((float)(14 - exponent));
    const int place = (row & ~15) | (row >> 1 & 7) | (row & 1) << 3;
    double rest = 0;
    for (int part = lane; part < chunks * 8; part += 32) {  // eight features
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) v[i] = part * 8 + i < width ? from[part * 8 + i] * scale : 0.f;
        store_halves(v, tiles, place, part, chunks, rest);
    }
    if (lane == 0) {
        unscale[row] = exp2f((float)(exponent - 14));
        norms[row] = (float)norm;
    }
}

// Tiles of a block, one after the other: rows, and columns up to the diagonal or all.
struct Tiles {
    int row, column, across;    // across: tiles of columns; 0: up to the diagonal
    bool begins;                // other rows than before

    __device__ __forceinline__ Tiles(int64 at, int across) : across(across), begins(true) {
        if (across) {
            row = (int)(at / across);
            column = (int)(at % across);
        } else {
            int64 j = (int64)((sqrt(8.0 * (double)at + 1.0) - 1.0) * 0.5);
            while (j * (j + 1) / 2 > at) --j;
            while ((j + 1) * (j + 2) / 2 <= at) ++j;
            row = (int)j;
            column = (int)(at - j * (j + 1) / 2);
        }
    }
    __device__ __forceinline__ bool last_column() const { return column == (across ? across - 1 : row); }
    __device__ __forceinline__ void next() {
        begins = last_column();
        column = begins ? 0 : column + 1;
        row += begins;
    }
};

struct Ring {                   // where the next chunk lies
    int stage, parity, stages;
    __device__ __forceinline__ void next() {
        if (++stage == stages) {
            stage = 0;
            parity ^= 1;
        }
    }
};

// The compiler may not move what uses these registers across.
__device__ __forceinline__ void settle(float (&c)[VALUES]) {
#pragma unroll
    for (int i = 0; i < VALUES; ++i) asm volatile("" : "+f"(c[i])::"memory");
}

struct Side {
    const unsigned char* tiles;
    const float *unscale, *norms;
    int rows;
};

// The byte as a float, by way of the digits of 2^23 + byte.
__device__ __forceinline__ float number_of_byte(unsigned int word, int byte) {
    return __uint_as_float(__byte_perm(word, 0x4B000000u, 0x7440u | byte)) - 8388608.0f;
}

// Stores a warp's 16 x 128 similarities. CHECKED: some may be outside of the matrix, on its diagonal, or not aligned.
template <bool CHECKED>
__device__ __forceinline__ void store_tile(const float (&sum)[VALUES], const uint4* words, const Noise& noise, const Side& x,
                                           const Side& y, int row, int column, bool turned, float factor, int diagonal,
                                           int64 stride, float* out, int y_start) {
    const int lane = threadIdx.x & 31;
    const float2 unscale = __ldg(reinterpret_cast<const float2*>(x.unscale + row));
    const float2 norm = __ldg(reinterpret_cast<const float2*>(x.norms + row));
    const unsigned int* as_it_is = reinterpret_cast<const unsigned int*>(words) + lane;
    const unsigned short* transposed =
        reinterpret_cast<const unsigned short*>(words + WORDS / 2) + (lane & 3) * 8 + (lane >> 2);
    float* to = out + (int64)row * stride + y_start + column;
    float* turned_to = out + (int64)column * stride + y_start + row;
#pragma unroll
    for (int i = 0; i < ROWS / 16; ++i) {
        const float4 u = __ldg(reinterpret_cast<const float4*>(y.unscale + column + 16 * i));
        const float4 n = __ldg(reinterpret_cast<const float4*>(y.norms + column + 16 * i));
        float own[2][4], other[4][2];
#pragma unroll
        for (int c = 0; c < 4; ++c) {
            const float column_unscale = c == 0 ? u.x : c == 1 ? u.y : c == 2 ? u.z : u.w;
            const float column_norm = c == 0 ? n.x : c == 1 ? n.y : c == 2 ? n.z : n.w;
            const unsigned int word = turned ? transposed[(i * 16 + c * 4) * 8] : 0;
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const float dot =
                    sum[4 * (2 * i + (c & 1)) + 2 * h + (c >> 1)] * ((h ? unscale.y : unscale.x) * column_unscale);
                const float v = -factor * fmaxf(fmaf(-2.0f, dot, (h ? norm.y : norm.x) + column_norm), 0.0f);
                own[h][c] = noise.add_finite(v, number_of_byte(as_it_is[(i * 16 + h * 8) * 4], c));
                other[c][h] = noise.add_finite(v, number_of_byte(word, h));
            }
        }
        if (!CHECKED) {
#pragma unroll
            for (int h = 0; h < 2; ++h)
                __stcs(reinterpret_cast<float4*>(to + h * stride + 16 * i),
                       make_float4(own[h][0], own[h][1], own[h][2], own[h][3]));
            if (turned)
#pragma unroll
                for (int c = 0; c < 4; ++c)
                    __stcs(reinterpret_cast<float2*>(turned_to + (int64)(16 * i + c) * stride),
                           make_float2(other[c][0], other[c][1]));
        } else
#pragma unroll
            for (int c = 0; c < 4; ++c)
#pragma unroll
                for (int h = 0; h < 2; ++h)
                    if (row + h < x.rows && column + 16 * i + c < y.rows) {
                        to[h * stride + 16 * i + c] = 16 * i + c - h == diagonal ? -infinity() : own[h][c];
                        if (turned) turned_to[(int64)(16 * i + c) * stride + h] = other[c][h];
                    }
    }
}

extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
similarities_packed(const unsigned char* x_tiles, const float* x_unscale, const float* x_norms, int m,
                    const unsigned char* y_tiles, const float* y_unscale, const float* y_norms, int k, int d,
                    bool symmetric, float factor, int first_row, int y_start, uint64 seed, float tiny, int64 stride,
                    float* out) {
    extern __shared__ unsigned char shared[];
    const unsigned int start = shared_address(shared), base = (start + 1023) & ~1023u;
    const unsigned int words_at = base + OPERAND_BYTES, full = words_at + WARPS * WORDS * 16, empty = full + 8 * 4;
    const unsigned int rows_full = empty + 8 * 4, rows_empty = rows_full + 8;
    const int chunks = (d + CHUNK - 1) / CHUNK;
    const bool resident = chunks <= RESIDENT;
    const int stages = resident ? 4 : 3, stage_bytes = resident ? PAIR_BYTES : 2 * PAIR_BYTES;
    const unsigned int ring = base + (resident ? RESIDENT * PAIR_BYTES : 0);
    if (threadIdx.x == 0) {
        for (int s = 0; s < stages; ++s) {
            barrier_init(full + 8 * s, 1);
            barrier_init(empty + 8 * s, 2);
        }
        barrier_init(rows_full, 1);
        barrier_init(rows_empty, 2);
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    __syncthreads();
    const int group = (threadIdx.x >> 7) - 1;
    const int64 down = (m + ROWS - 1) / ROWS, across = (k + ROWS - 1) / ROWS;
    const int64 all = symmetric ? down * (down + 1) / 2 : down * across;
    const int64 begin = all * blockIdx.x / gridDim.x, end = all * (blockIdx.x + 1) / gridDim.x;
    Tiles tile(begin, symmetric ? 0 : (int)across);
    if (group < 0) {
        asm volatile("setmaxnreg.dec.sync.aligned.u32 24;");
        if (threadIdx.x != 0) return;
        Ring at{0, 1, stages};
        int rows_parity = 1;
        for (int64 t = begin; t < end; ++t, tile.next()) {
            const unsigned char* rows = x_tiles + (int64)tile.row * chunks * PAIR_BYTES;
            const unsigned char* columns = y_tiles + (int64)tile.column * chunks * PAIR_BYTES;
            if (resident && tile.begins) {
                barrier_wait(rows_empty, rows_parity);
                rows_parity ^= 1;
                barrier_expect(rows_full, chunks * PAIR_BYTES);
                for (int c = 0; c < chunks; ++c)
                    bulk_copy(base + c * PAIR_BYTES, rows + (int64)c * PAIR_BYTES, PAIR_BYTES, rows_full);
            }
            for (int c = 0; c < chunks; ++c, at.next()) {
                const unsigned int to = ring + at.stage * stage_bytes, ready = full + 8 * at.stage;
                barrier_wait(empty + 8 * at.stage, at.parity);
                barrier_expect(ready, stage_bytes);
                bulk_copy(to, columns + (int64)c * PAIR_BYTES, PAIR_BYTES, ready);
                if (!resident) bulk_copy(to + PAIR_BYTES, rows + (int64)c * PAIR_BYTES, PAIR_BYTES, ready);
            }
        }
        return;
    }
    asm volatile("setmaxnreg.inc.sync.aligned.u32 240;");
    const Side x{x_tiles, x_unscale, x_norms, m}, y{y_tiles, y_unscale, y_norms, k};
    const Noise noise{seed, 0, tiny};
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5 & 3;
    uint4* words = reinterpret_cast<uint4*>(shared + (words_at - start)) + (group * 4 + warp) * WORDS;
    const int first = group * 64 + warp * 16, steps = (d + 15) / 16;
    const bool aligned = ((int64)out + 4 * (int64)y_start) % 16 == 0 && stride % 4 == 0;
    const auto leave = [&](unsigned int barrier) {
        if ((threadIdx.x & 127) == 0) barrier_arrive(barrier);
    };
    Ring at{0, 0, stages};
    int rows_parity = 0;
    for (int64 t = begin; t < end; ++t, tile.next()) {
        const int row0 = tile.row * ROWS, column0 = tile.column * ROWS;
        const bool mirrored = first_row + row0 > y_start + column0, turned = symmetric && row0 != column0;
        if (resident && tile.begins) {
            barrier_wait(rows_full, rows_parity);
            rows_parity ^= 1;
        }
        float sum[VALUES], part[VALUES];
#pragma unroll
        for (int i = 0; i < VALUES; ++i) sum[i] = 0;
        // Sixteen features: as in similarity.cu, the two mixed products first.
        const auto multiply_step = [&](float(&into)[VALUES], int step, unsigned int stage) {
            const unsigned int b = ring + stage * stage_bytes + 32 * (step & 3);
            const unsigned int a = (resident ? base + (step >> 2) * PAIR_BYTES : ring + stage * stage_bytes + PAIR_BYTES) +
                                   group * (HALF_BYTES / 2) + 32 * (step & 3);
            const unsigned int low_a = mirrored ? 0 : HALF_BYTES, low_b = HALF_BYTES - low_a;
            asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
            multiply(into, tile_at(a + low_a), tile_at(b + low_b), 0);
            multiply(into, tile_at(a + HALF_BYTES - low_a), tile_at(b + HALF_BYTES - low_b), 1);
            multiply(into, tile_at(a), tile_at(b), 1);
            asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        };
        for (int step = 0; step < steps; ++step) {
            if ((step & 3) == 0) barrier_wait(full + 8 * at.stage, at.parity);
            multiply_step(part, step, at.stage);
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
            settle(part);
            if ((step & 3) == 3 || step + 1 == steps) {
                leave(empty + 8 * at.stage);
                at.next();
            }
#pragma unroll
            for (int i = 0; i < VALUES; ++i) sum[i] += part[i];
        }
        if (resident && tile.last_column()) leave(rows_empty);
        // Noise of the warp's pairs: of row 2 t + h and columns 16 i on at [i][h][t]; transposed, of the tile's column
        // 16 i + 4 q + c at [i][c][q].
#pragma unroll
        for (int s = 0; s < 4; ++s) {
            const int i = 2 * s + (lane >> 4);
            words[lane + 32 * s] = noise.words(first_row + row0 + first + 2 * (lane & 7) + (lane >> 3 & 1),
                                               y_start + column0 + 16 * i);
            if (turned)
                words[WORDS / 2 + lane + 32 * s] =
                    noise.words(first_row + column0 + 16 * i + 4 * (lane & 3) + (lane >> 2 & 3), y_start + row0 + first);
        }
        __syncwarp();
        const int row = row0 + first + 2 * (lane >> 2), column = column0 + 4 * (lane & 3);
        const int diagonal = first_row + row - y_start - column;
        const bool inside = row0 + ROWS <= m && column0 + ROWS <= k;
        const bool off = first_row + row0 >= y_start + column0 + ROWS || y_start + column0 >= first_row + row0 + ROWS;
        if (inside && off && aligned)
            store_tile<false>(sum, words, noise, x, y, row, column, turned, factor, diagonal, stride, out, y_start);
        else store_tile<true>(sum, words, noise, x, y, row, column, turned, factor, diagonal, stride, out, y_start);
        __syncwarp();
    }
}
