// Similarities of many features in float32, by tensor cores, as accurate as a chain of float32 multiply-adds.
//
// -factor |x - y|^2 with |x - y|^2 = |x|^2 + |y|^2 - 2 x.y. Each value of a row, scaled by a power of two of that row, is
// split into the sum of two half-precision numbers, hi + lo: 22 bits of the row's largest value. Products of halves are
// exact in float32, so
//
//     x.y = sum over f of  hi_x hi_y + (lo_x hi_y + hi_x lo_y)            without lo lo, 2^-22 of |x| |y|
//
// Tensor cores add with truncation, therefore only 16 features at a time; these sums are added in float32, rounded to
// nearest. Of two tiles that mirror each other, one takes lo hi first, the other hi lo: the same products in the same
// order, hence the same bits. So where the columns are the rows, a tile is computed once and stored twice, once as it
// is and once transposed, and no rank's answer depends on whether it did that.
//
// One H200, n = 40,000, d = 120: 5.0 ms, where writing 6.4 GB takes 1.4 ms. Left out by turns, the products were worth
// 1.9 ms, the reading of tiles 0.5, the final sums 1.0, the noise and the two stores 1.8: they add up, nothing hides.
#include "pairs/pairs.cuh"
#include "pairs/products/halves.cuh"
#include "toolkit/tie_noise.cuh"
#include "affinity_propagation/messages.cuh"

#define SIDE 128
#define SLAB 32             // features of a stage
#define PITCH (SLAB + 8)    // halves of a row in shared memory: eight rows of 16 bytes then hit all banks once
#define TILE_PITCH 133      // floats of a row of the finished tile: neither rows nor columns collide
#define THREADS 256

// One warp a row: the row's scale from its largest value, hi and lo, zeros up to `width` features; |x|^2.
extern "C" __global__ void __launch_bounds__(THREADS)
split_rows(const float* __restrict__ x, int m, int d, int width, half16* hi, half16* lo, float* unscale, float* norms) {
    const int row = blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (row >= m) return;
    float most = 0;
    double norm = 0;
    for (int f = lane; f < d; f += 32) {
        const float v = x[(int64)row * d + f];
        most = fmaxf(most, fabsf(v));
        norm += (double)v * v;
    }
    for (int step = 16; step; step >>= 1) {
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, step));
        norm += __shfl_xor_sync(0xffffffffu, norm, step);
    }
    const int exponent = most > 0 ? ilogbf(most) : 0;
    const float scale = exp2f((float)(14 - exponent));
    for (int f = lane; f < width; f += 32) {
        const float v = f < d ? x[(int64)row * d + f] * scale : 0.0f;
        const half16 h = to_half(v);
        hi[(int64)row * width + f] = h;
        lo[(int64)row * width + f] = to_half(v - from_half(h));
    }
    if (lane == 0) {
        unscale[row] = exp2f((float)(exponent - 14));
        norms[row] = (float)norm;
    }
}

__device__ __forceinline__ unsigned int shared_address(const void* p) { return (unsigned int)__cvta_generic_to_shared(p); }

__device__ __forceinline__ void copy_async(void* to, const void* from) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(to)), "l"(from));
}

__device__ __forceinline__ void load_matrices(unsigned int (&r)[4], const half16* p) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(shared_address(p)));
}

// c = a b, and c += a b: products of 16 rows, 8 columns, 16 features. Not volatile: their order is the compiler's.
__device__ __forceinline__ void multiply(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%10,%10,%10,%10};"
        : "=f"(c[0]), "=f"(c[1]), "=f"(c[2]), "=f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1), "f"(0.0f));
}

__device__ __forceinline__ void multiply_add(float (&c)[4], const unsigned int (&a)[4], unsigned int b0, unsigned int b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

struct Side {               // one side of the pairs, split
    const half16 *hi, *lo;
    const float *unscale, *norms;
    int rows;
};

// Rows first .. first + SIDE - 1 (the last one again behind the end), SLAB features from f on.
__device__ __forceinline__ void fetch(half16* to, const half16* from, int first, int rows, int width, int f) {
#pragma unroll
    for (int c = threadIdx.x; c < SIDE * SLAB / 8; c += THREADS) {
        const int r = c / (SLAB / 8), part = c % (SLAB / 8) * 8;
        copy_async(to + r * PITCH + part, from + (int64)min(first + r, rows - 1) * width + f + part);
    }
}

// Sixteen features of a warp's 64 x 32 pairs. MIRRORED: the other order of the mixed products.
template <bool MIRRORED>
__device__ __forceinline__ void add_products(float (&sum)[4][4][4], const half16* stage, int f, int warp_row,
                                             int warp_column, int lane) {
    unsigned int b_hi[2][4], b_lo[2][4];
#pragma unroll
    for (int q = 0; q < 2; ++q) {
        const int r = warp_column + q * 16 + (lane & 7) + (lane >> 4) * 8, at = f + ((lane >> 3) & 1) * 8;
        load_matrices(b_hi[q], stage + (2 * SIDE + r) * PITCH + at);
        load_matrices(b_lo[q], stage + (3 * SIDE + r) * PITCH + at);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
        unsigned int a_hi[4], a_lo[4];
        const int r = warp_row + i * 16 + (lane & 15), at = f + (lane >> 4) * 8;
        load_matrices(a_hi, stage + r * PITCH + at);
        load_matrices(a_lo, stage + (SIDE + r) * PITCH + at);
#pragma unroll
        for (int q = 0; q < 2; ++q) {   // two columns of products at a time: more would not fit into registers
            const unsigned int(&first_b)[4] = MIRRORED ? b_lo[q] : b_hi[q];
            const unsigned int(&second_b)[4] = MIRRORED ? b_hi[q] : b_lo[q];
            float part[2][4];
#pragma unroll
            for (int j = 0; j < 2; ++j) multiply(part[j], MIRRORED ? a_hi : a_lo, first_b[2 * j], first_b[2 * j + 1]);
#pragma unroll
            for (int j = 0; j < 2; ++j)
                multiply_add(part[j], MIRRORED ? a_lo : a_hi, second_b[2 * j], second_b[2 * j + 1]);
#pragma unroll
            for (int j = 0; j < 2; ++j) multiply_add(part[j], a_hi, b_hi[q][2 * j], b_hi[q][2 * j + 1]);
#pragma unroll
            for (int j = 0; j < 2; ++j)
#pragma unroll
                for (int v = 0; v < 4; ++v) sum[i][q * 2 + j][v] += part[j][v];
        }
    }
}

// The products of a tile, a warp's 64 x 32 pairs each.
__device__ __forceinline__ void tile_products(float (&sum)[4][4][4], half16* stages, const Side& x, const Side& y, int row0,
                                              int column0, int width, bool mirrored, int warp_row, int warp_column,
                                              int lane) {
    const auto fetch_slab = [&](int slab) {
        half16* stage = stages + (slab & 1) * 4 * SIDE * PITCH;
        fetch(stage, x.hi, row0, x.rows, width, slab * SLAB);
        fetch(stage + SIDE * PITCH, x.lo, row0, x.rows, width, slab * SLAB);
        fetch(stage + 2 * SIDE * PITCH, y.hi, column0, y.rows, width, slab * SLAB);
        fetch(stage + 3 * SIDE * PITCH, y.lo, column0, y.rows, width, slab * SLAB);
        asm volatile("cp.async.commit_group;");
    };
    const int slabs = width / SLAB;
    fetch_slab(0);
    for (int slab = 0; slab < slabs; ++slab) {
        if (slab + 1 < slabs) {
            fetch_slab(slab + 1);
            asm volatile("cp.async.wait_group 1;");
        } else asm volatile("cp.async.wait_group 0;");
        __syncthreads();
        const half16* stage = stages + (slab & 1) * 4 * SIDE * PITCH;
#pragma unroll 1    // more would spill
        for (int f = 0; f < SLAB; f += 16) {
            if (mirrored) add_products<true>(sum, stage, f, warp_row, warp_column, lane);
            else add_products<false>(sum, stage, f, warp_row, warp_column, lane);
        }
        __syncthreads();    // the stage may be overwritten
    }
}

// The similarities of a tile without noise, from its products.
__device__ __forceinline__ void finish_tile(float* tile, const float (&sum)[4][4][4], const Side& x, const Side& y, int row0,
                                            int column0, float factor, int warp_row, int warp_column, int lane) {
    float column_unscale[8], column_norms[8];
#pragma unroll
    for (int q = 0; q < 8; ++q) {
        const int column = min(column0 + warp_column + q / 2 * 8 + (lane & 3) * 2 + (q & 1), y.rows - 1);
        column_unscale[q] = y.unscale[column];
        column_norms[q] = y.norms[column];
    }
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
            const int r = warp_row + i * 16 + half * 8 + (lane >> 2), row = min(row0 + r, x.rows - 1);
            const float norm = x.norms[row], unscale = x.unscale[row];
#pragma unroll
            for (int q = 0; q < 8; ++q) {
                const float dot = sum[i][q / 2][half * 2 + (q & 1)] * (unscale * column_unscale[q]);
                const float s = fmaxf(fmaf(-2.0f, dot, norm + column_norms[q]), 0.0f);
                tile[r * TILE_PITCH + warp_column + q / 2 * 8 + (lane & 3) * 2 + (q & 1)] = -factor * s;
            }
        }
}

// The noise of a tile whose first pair has these numbers: [SIDE][SIDE / 16].
__device__ __forceinline__ void draw_words(uint4* words, const Noise& noise, int row, int column) {
#pragma unroll
    for (int q = 0; q < SIDE * SIDE / 16 / THREADS; ++q) {
        const int at = q * THREADS + threadIdx.x;
        words[at] = noise.words(row + at / (SIDE / 16), column + at % (SIDE / 16) * 16);
    }
}

// One similarity of the tile with its noise: row r of it, and column c = part + lane.
__device__ __forceinline__ float with_noise(float v, const uint4* words, const Noise& noise, int r, int c, unsigned int byte) {
    const unsigned int word = reinterpret_cast<const unsigned int*>(words)[r * (SIDE / 4) + c / 4];
    // The byte as a float, by way of the digits of 2^23 + byte.
    return noise.add_finite(v, __uint_as_float(__byte_perm(word, 0x4B000000u, byte)) - 8388608.0f);
}

// Blocks number the tiles on and above the diagonal.
__device__ __forceinline__ void tile_above(int64 at, int& tile_row, int& tile_column) {
    int64 j = (int64)((sqrt(8.0 * (double)at + 1.0) - 1.0) * 0.5);
    while (j * (j + 1) / 2 > at) --j;
    while ((j + 1) * (j + 2) / 2 <= at) ++j;
    tile_column = (int)j;
    tile_row = (int)(at - j * (j + 1) / 2);
}

extern "C" __global__ void __launch_bounds__(THREADS, 2)
similarities_split(const half16* x_hi, const half16* x_lo, const float* x_unscale, const float* x_norms, int m,
                   const half16* y_hi, const half16* y_lo, const float* y_unscale, const float* y_norms, int k, int width,
                   bool symmetric, float factor, int first_row, int y_start, uint64 seed, float tiny, int64 stride,
                   float* out) {
    extern __shared__ __align__(16) unsigned char raw[];
    half16* stages = reinterpret_cast<half16*>(raw);                      // [2][4][SIDE][PITCH]: x hi, x lo, y hi, y lo
    float* tile = reinterpret_cast<float*>(raw);                          // [SIDE][TILE_PITCH], afterwards
    uint4* words = reinterpret_cast<uint4*>(raw + SIDE * TILE_PITCH * 4); // [SIDE][SIDE / 16]
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    int tile_row = blockIdx.y, tile_column = blockIdx.x;
    if (symmetric) tile_above(blockIdx.x, tile_row, tile_column);
    const int row0 = tile_row * SIDE, column0 = tile_column * SIDE;
    const Side x{x_hi, x_lo, x_unscale, x_norms, m}, y{y_hi, y_lo, y_unscale, y_norms, k};

    const bool mirrored = first_row + row0 > y_start + column0;
    // A warp owns 64 rows and 32 columns: 4 x 4 products of 16 x 8.
    const int warp_row = (warp >> 2) * 64, warp_column = (warp & 3) * 32;
    float sum[4][4][4] = {};
    tile_products(sum, stages, x, y, row0, column0, width, mirrored, warp_row, warp_column, lane);

    finish_tile(tile, sum, x, y, row0, column0, factor, warp_row, warp_column, lane);

    const Noise noise{seed, 0, tiny};
    const unsigned int byte = 0x7440u | (lane & 3);
    for (int turned = 0; turned < (symmetric && row0 != column0 ? 2 : 1); ++turned) {
        // Turned: the tile's columns are rows of the matrix.
        const int rows0 = turned ? column0 : row0, columns0 = turned ? row0 : column0;
        const int rows = min(SIDE, (turned ? k : m) - rows0), columns = min(SIDE, (turned ? m : k) - columns0);
        __syncthreads();    // the tile is complete; the words are no longer read
        draw_words(words, noise, first_row + rows0, y_start + columns0);
        __syncthreads();
        const int row_step = turned ? 1 : TILE_PITCH, column_step = turned ? TILE_PITCH : 1;
        float* to = out + (int64)rows0 * stride + y_start + columns0 + lane;
        const int diagonal = first_row + rows0 - y_start - columns0;
#pragma unroll 4
        for (int r = warp; r < rows; r += THREADS / 32) {
#pragma unroll
            for (int part = 0; part < SIDE; part += 32) {
                const int c = part + lane;
                const float v = with_noise(tile[r * row_step + c * column_step], words, noise, r, c, byte);
                if (c < columns) __stcs(to + (int64)r * stride + part, c == diagonal + r ? -infinity() : v);
            }
        }
    }
}

// sigma S - u as the files of messages have it, which are compiled so that what is below the normal numbers becomes 0.
__device__ __forceinline__ float term_of(float sigma, float s, float minus_u) {
    float term;
    asm("fma.rn.ftz.f32 %0, %1, %2, %3;" : "=f"(term) : "f"(sigma), "f"(s), "f"(minus_u));
    return term;
}

// The sums over rows of max(0, sigma S - u) in fixed point, without writing S. `most` has the largest S of each tile and of
// the turned one, [tiles of rows][tiles of columns]; where they are known, tiles without a positive term are left out.
extern "C" __global__ void __launch_bounds__(THREADS, 2)
add_positive_split(const half16* x_hi, const half16* x_lo, const float* x_unscale, const float* x_norms, int m,
                   const half16* y_hi, const half16* y_lo, const float* y_unscale, const float* y_norms, int k, int width,
                   bool symmetric, float factor, int first_row, uint64 seed, float tiny, const float* u,
                   const float* least_u, float sigma, double scale, float* most, bool known, uint64* sums) {
    extern __shared__ __align__(16) unsigned char raw[];
    __shared__ uint64 totals[SIDE];
    __shared__ ubits largest;
    float* tile = reinterpret_cast<float*>(raw);
    uint4* words = reinterpret_cast<uint4*>(raw + SIDE * TILE_PITCH * 4);
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, across = (k + SIDE - 1) / SIDE;
    int tile_row = blockIdx.y, tile_column = blockIdx.x;
    if (symmetric) tile_above(blockIdx.x, tile_row, tile_column);
    const int row0 = tile_row * SIDE, column0 = tile_column * SIDE;
    const auto largest_of = [&](bool turned) {
        return most + (turned ? (int64)tile_column * across + tile_row : (int64)tile_row * across + tile_column);
    };
    bool needed = true, turned_needed = symmetric && row0 != column0;
    if (known) {    // rounded, the term of the largest S and the least u is not below any other
        needed = fmaf(sigma, *largest_of(false), -least_u[tile_row]) > 0;
        turned_needed = turned_needed && fmaf(sigma, *largest_of(true), -least_u[tile_column]) > 0;
    }
    if (!needed && !turned_needed) return;
    const Side x{x_hi, x_lo, x_unscale, x_norms, m}, y{y_hi, y_lo, y_unscale, y_norms, k};
    const int warp_row = (warp >> 2) * 64, warp_column = (warp & 3) * 32;
    {
        float sum[4][4][4] = {};
        tile_products(sum, reinterpret_cast<half16*>(raw), x, y, row0, column0, width, first_row + row0 > column0, warp_row,
                      warp_column, lane);
        finish_tile(tile, sum, x, y, row0, column0, factor, warp_row, warp_column, lane);
    }
    const Noise noise{seed, 0, tiny};
    const unsigned int byte = 0x7440u | (lane & 3);
    for (int turned = 0; turned < 2; ++turned) {
        if (!(turned ? turned_needed : needed)) continue;
        // Turned: the tile's columns are rows of the matrix.
        const int rows0 = turned ? column0 : row0, columns0 = turned ? row0 : column0;
        const int rows = min(SIDE, (turned ? k : m) - rows0), columns = min(SIDE, (turned ? m : k) - columns0);
        __syncthreads();    // the tile is complete; words and totals are no longer read
        draw_words(words, noise, first_row + rows0, columns0);
        if (threadIdx.x < SIDE) totals[threadIdx.x] = 0;
        if (threadIdx.x == 0) largest = 0;
        __syncthreads();
        const int row_step = turned ? 1 : TILE_PITCH, column_step = turned ? TILE_PITCH : 1;
        const int diagonal = first_row + rows0 - columns0;
        uint64 total[SIDE / 32] = {};
        float best = -infinity();
        for (int r = warp; r < rows; r += THREADS / 32) {
            const float minus_u = -u[rows0 + r];
#pragma unroll
            for (int part = 0; part < SIDE; part += 32) {
                const int c = part + lane;
                const float v = with_noise(tile[r * row_step + c * column_step], words, noise, r, c, byte);
                if (c >= columns || c == diagonal + r) continue;
                best = fmaxf(best, v);
                const float term = term_of(sigma, v, minus_u);
                if (term > 0) total[part / 32] += (uint64)__double2ll_rn((double)term * scale);
            }
        }
#pragma unroll
        for (int part = 0; part < SIDE; part += 32)
            if (total[part / 32]) atomicAdd(totals + part + lane, total[part / 32]);
        if (!known) {
            best = number_of(real(), __reduce_max_sync(FULL, (unsigned)ordered(best)));
            if (lane == 0) atomicMax(&largest, ordered(best));
        }
        __syncthreads();
        if (threadIdx.x < columns && totals[threadIdx.x]) atomicAdd(sums + columns0 + threadIdx.x, totals[threadIdx.x]);
        if (!known && threadIdx.x == 0) *largest_of(turned) = number_of(real(), largest);
    }
}

// The same numbers for rows and columns that do not follow each other; their numbers ascend. Which of two mirrored tiles
// a pair would be in decides the order of its products, so a tile with pairs of both kinds is computed twice.
extern "C" __global__ void __launch_bounds__(THREADS)
similarities_chosen(const half16* x_hi, const half16* x_lo, const float* x_unscale, const float* x_norms, int m,
                    const half16* y_hi, const half16* y_lo, const float* y_unscale, const float* y_norms, int k, int width,
                    const int64* rows, const int64* columns, float factor, uint64 seed, float tiny, int64 stride,
                    float* out) {
    extern __shared__ __align__(16) unsigned char raw[];
    half16* stages = reinterpret_cast<half16*>(raw);
    float* tile = reinterpret_cast<float*>(raw);    // afterwards
    const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
    const int row0 = blockIdx.y * SIDE, column0 = blockIdx.x * SIDE;
    const Side x{x_hi, x_lo, x_unscale, x_norms, m}, y{y_hi, y_lo, y_unscale, y_norms, k};
    const int warp_row = (warp >> 2) * 64, warp_column = (warp & 3) * 32;
    const auto number_of_column = [&](int column) { return columns ? (int)columns[column] : column; };
    const int last_row = (int)rows[min(row0 + SIDE, m) - 1], last_column = number_of_column(min(column0 + SIDE, k) - 1);
    const bool some[2] = {(int)rows[row0] / SIDE <= last_column / SIDE, last_row / SIDE > number_of_column(column0) / SIDE};
    const Noise noise{seed, 0, tiny};
    for (int mirrored = 0; mirrored < 2; ++mirrored) {
        if (!some[mirrored]) continue;
        float sum[4][4][4] = {};
        tile_products(sum, stages, x, y, row0, column0, width, mirrored, warp_row, warp_column, lane);
        finish_tile(tile, sum, x, y, row0, column0, factor, warp_row, warp_column, lane);
        __syncthreads();    // the tile is complete
        for (int at = threadIdx.x; at < SIDE * SIDE; at += THREADS) {
            const int r = at / SIDE, c = at % SIDE, row = row0 + r, column = column0 + c;
            if (row >= m || column >= k) continue;
            const int number = (int)rows[row], other = number_of_column(column);
            if ((number / SIDE > other / SIDE) != mirrored) continue;
            const unsigned int word = word_of(noise.words(number, other & ~15), other / 4 & 3);
            const float v = noise.add_finite(tile[r * TILE_PITCH + c], (float)(word >> (8 * (other & 3)) & 255u));
            out[row * stride + column] = number == other ? -infinity() : v;
        }
        __syncthreads();    // the stages may be overwritten
    }
}
