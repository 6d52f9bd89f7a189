// All-pairs reductions for many features by products of split halves (split_products.cuh), float32 rows, Hopper.
//
//   gaussian    three products: sum over the columns of exp(-scale * s), as accurate as float32 products
//   both_ways   the same sums, each pair once for both of its rows
//   classify    one product: counts the pairs that are surely below a threshold, lists the doubtful ones
//   border      one product: marks rows that surely have a column of another label nearer than a threshold, lists the
//               doubtful pairs
//   nearest     one product: lists every pair that can be a row's nearest column of higher density
//   minima      one product: upper bounds of s, the least of each of many groups of columns
//   collect     one product: lists every column that can be among a row's nearest
//
// Listed pairs are decided by direct differences (listed_pairs.cu), so the decisions, and their bits, are those of
// many_features.cu.
//
// One file because all kernels pass over the same packed rows and share one bound of the error.
//
// The error of one product. Rows are scaled by a power of two; with x = h + r, h the high half,
//     x.y - h_x.h_y = r_x.y + h_x.r_y,   so   |x.y - h_x.h_y| <= |r_x| |y| + (|x| + |r_x|) |r_y|
// and adding up n/16 groups of exact products costs at most GAMMA |x| |y| each. `pack` finds |x| and |r| of every row,
// rounded up; a tile takes the largest of its columns. ROUNDING covers the few float32 operations with norms.
#include "pairs/pairs.cuh"
#include "pairs/products/split_products.cuh"

// A group: 16 exact products and the sum so far, each cut off behind the 25th binary digit of the largest of the 17.
// (Published experiments find that Hopper keeps two digits more than float32 has.)
#define GAMMA 1.1920929e-6f     // 17 times 2^-24, and a fifth more
#define ROUNDING 2e-6f          // of |x|^2 + |y|^2: a dozen roundings of 2^-24

struct Operand {                // rows as `pack` leaves them; padded by rows whose norm is infinite
    const unsigned char* tiles;
    const float* norms;         // squared lengths
    const float2* sizes;        // bounds of |x| and |r|
    const float2* largest;      // of each tile
    int rows;
};
#define OPERAND(x) \
    const unsigned char* x##_tiles, const float* x##_norms, const float2* x##_sizes, const float2* x##_largest, int x##_rows
// A row of blocks takes a few tiles of rows, the next one other columns, and only a plane of blocks the next tiles of
// rows: blocks that run at the same time, and pairs that are listed at the same time, share rows in the L2 cache.
__device__ __forceinline__ int row_tile() { return blockIdx.z * gridDim.x + blockIdx.x; }
#define OPERANDS \
    if (row_tile() * ROWS >= x_rows) return; \
    const Operand x{x_tiles, x_norms, x_sizes, x_largest, x_rows}, y{y_tiles, y_norms, y_sizes, y_largest, y_rows};

// A warp a row of the padded tiles. `which` names the rows to take, in order, or is null.
extern "C" __global__ void pack(const float* x, const int64* which, int m, int d, int chunks, float scale,
                                unsigned char* tiles, float* norms, float2* sizes) {
    const int row = blockIdx.x * (blockDim.x >> 5) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    const float* from = x + (row < m ? (which ? which[row] : (int64)row) : 0) * d;
    double length = 0, rest = 0;
    for (int part = lane; part < chunks * 8; part += 32) {  // eight features
        float v[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
            const int f = part * 8 + i;
            v[i] = row < m && f < d ? from[f] * scale : 0.f;
            length += (double)v[i] * v[i];
        }
        store_halves(v, tiles, row, part, chunks, rest);
    }
    for (int step = 16; step; step >>= 1) {
        length += __shfl_xor_sync(0xffffffffu, length, step);
        rest += __shfl_xor_sync(0xffffffffu, rest, step);
    }
    if (lane == 0) {
        norms[row] = row < m ? (float)length : infinity();
        const float longest = row < m ? __double2float_ru(sqrt(length) * (1 + 1e-12)) : 0.f;
        sizes[row] = make_float2(longest, row < m ? __double2float_ru(sqrt(rest) * (1 + 1e-12)) : 0.f);
    }
}

// The largest sizes of each tile; 128 threads a tile.
extern "C" __global__ void largest_sizes(const float2* sizes, float2* largest) {
    __shared__ float2 most[4];
    float2 own = sizes[blockIdx.x * ROWS + threadIdx.x];
    for (int step = 16; step; step >>= 1) {
        own.x = fmaxf(own.x, __shfl_xor_sync(0xffffffffu, own.x, step));
        own.y = fmaxf(own.y, __shfl_xor_sync(0xffffffffu, own.y, step));
    }
    if ((threadIdx.x & 31) == 0) most[threadIdx.x >> 5] = own;
    __syncthreads();
    if (threadIdx.x == 0)
        largest[blockIdx.x] = make_float2(fmaxf(fmaxf(most[0].x, most[1].x), fmaxf(most[2].x, most[3].x)),
                                          fmaxf(fmaxf(most[0].y, most[1].y), fmaxf(most[2].y, most[3].y)));
}

// Two norms of a thread's columns of a tile.
__device__ __forceinline__ float2 norms_at(const Operand& y, int t, int four) {
    return __ldg(reinterpret_cast<const float2*>(y.norms + t * ROWS + column_of(4 * four)));
}

// Products become factor * s, s not below 0, with factor = -scale * log2(e) and the rows' norms times factor. Both are
// rounded before they are added: a pair has the same bits whichever of its two is the row.
__device__ __forceinline__ void to_exponents(float (&c)[VALUES], const Operand& y, int t, const float (&norm)[2],
                                             float factor) {
#pragma unroll
    for (int four = 0; four < VALUES / 4; ++four) {
        const float2 n = norms_at(y, t, four);
#pragma unroll
        for (int i = 0; i < 4; ++i)
            c[4 * four + i] =
                fminf(fmaf(c[4 * four + i], -2 * factor, norm[i >> 1] + __fmul_rn(i & 1 ? n.y : n.x, factor)), 0.f);
    }
}

struct Gaussian {
    Operand y;
    double* groups;
    float factor;
    float norm[2];              // of the thread's two rows, times factor
    int own[2], rows, end_tile;
    double total[2];
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        to_exponents(c, y, t, norm, factor);
        const bool here = (unsigned)(own[0] - t * ROWS) < ROWS || (unsigned)(own[1] - t * ROWS) < ROWS;
        if (__any_sync(0xffffffffu, here))
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                if (own[i >> 1 & 1] == t * ROWS + column_of(i)) c[i] = -infinity();
        float sum[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VALUES; ++i) sum[i >> 1 & 1] += exp2_of_minus(-c[i]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 1);
            sum[h] += __shfl_xor_sync(0xffffffffu, sum[h], 2);
            total[h] += (double)sum[h];
        }
        if ((t + 1) % (GROUP / ROWS) == 0 || t + 1 == end_tile) {
#pragma unroll
            for (int h = 0; h < 2; ++h) {
                const int row = row_tile() * ROWS + row_of(2 * h);
                if ((threadIdx.x & 3) == 0 && row < rows) groups[(int64)(t / (GROUP / ROWS)) * rows + row] = total[h];
                total[h] = 0;
            }
        }
    }
    __device__ __forceinline__ void end() {}
};

// Runs of whole GROUPs; the groups' sums are added by `add_groups`.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
gaussian(OPERAND(x), OPERAND(y), int chunks, int run, float factor, const int* self, double* groups) {
    OPERANDS
    const int begin = blockIdx.y * run, end = min((y.rows + ROWS - 1) / ROWS, begin + run);
    Gaussian op;
    op.y = y;
    op.groups = groups;
    op.factor = factor;
    op.rows = x.rows;
    op.end_tile = end;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const int row = row_tile() * ROWS + row_of(2 * h);
        const bool real_row = threadIdx.x >= 128 && row < x.rows;
        op.norm[h] = real_row ? __fmul_rn(x.norms[row], factor) : 0.f;
        op.own[h] = real_row ? self[row] : -1;
        op.total[h] = 0;
    }
    sweep_tiles<3, true>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

// Adds the sums of two lanes that are `step` apart, and leaves half of them to each.
template <int COUNT> __device__ __forceinline__ void add_halves(uint64 (&sum)[16], int step) {
    const bool upper = threadIdx.x & step;
#pragma unroll
    for (int j = 0; j < COUNT / 2; ++j) {
        const uint64 away = upper ? sum[j] : sum[j + COUNT / 2];
        sum[j] = (upper ? sum[j + COUNT / 2] : sum[j]) + __shfl_xor_sync(0xffffffffu, away, step);
    }
}

// A term is a whole number of units: sums have no order, and a row's own side is as good as the column's.
#define WARPS 4             // of a group

struct BothWays {
    Operand y;
    float factor, unit;         // units in 1
    const float* norms;         // of the rows; infinite for those that only pad a tile
    int ahead;                  // columns' first tile less the rows': a pair counts if its column comes later
    uint64 *x_sums, *y_sums;
    int rows;
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        const float* own_norms = norms + row_tile() * ROWS;
        const float norm[2] = {__fmul_rn(__ldg(own_norms + row_of(0)), factor),
                               __fmul_rn(__ldg(own_norms + row_of(2)), factor)};
        to_exponents(c, y, t, norm, factor);
        if (t + ahead == row_tile())
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                if (column_of(i) <= row_of(i)) c[i] = -infinity();
        uint64 total[2] = {0, 0};
        // The warps of a group meet in shared memory; one half of it is read while the next tile fills the other.
        extern __shared__ unsigned char shared[];
        const int group = (threadIdx.x >> 7) - 1, warp = threadIdx.x >> 5 & 3, lane = threadIdx.x & 31;
        const int at = threadIdx.x & 127;
        uint64* room = reinterpret_cast<uint64*>(shared + SHARED_BYTES) - (2 * group + (t & 1) + 1) * WARPS * ROWS;
#pragma unroll
        for (int part = 0; part < 2; ++part) {
            uint64 sum[16];  // of the thread's columns in this half of the tile
#pragma unroll
            for (int four = 0; four < 8; ++four) {
                uint64 v[4];
#pragma unroll
                for (int i = 0; i < 4; ++i)
                    v[i] = __float2ull_rn(exp2_of_minus(-c[32 * part + 4 * four + i]) * unit);
                total[0] += v[0] + v[1];
                total[1] += v[2] + v[3];
                sum[2 * four] = v[0] + v[2];
                sum[2 * four + 1] = v[1] + v[3];
            }
            // Eight lanes hold the same columns; each is left with two of them, beside each other.
            add_halves<16>(sum, 16);
            add_halves<8>(sum, 8);
            add_halves<4>(sum, 4);
            uint64* to = room + warp * ROWS + 64 * part + (lane >> 2) * 8 + 2 * (lane & 3);
            to[0] = sum[0];
            to[1] = sum[1];
        }
        asm volatile("bar.sync %0, 128;" ::"r"(group + 1) : "memory");
        uint64 all = 0;
#pragma unroll
        for (int w = 0; w < WARPS; ++w) all += room[w * ROWS + at];
        if (all && t * ROWS + at < y.rows) atomicAdd(y_sums + t * ROWS + at, all);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 1);
            total[h] += __shfl_xor_sync(0xffffffffu, total[h], 2);
            const int row = row_tile() * ROWS + row_of(2 * h);
            if ((lane & 3) == 0 && row < rows && total[h]) atomicAdd(x_sums + row, total[h]);
        }
    }
    __device__ __forceinline__ void end() {}
};

// Adds what each pair is to both of its rows.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
both_ways(OPERAND(x), OPERAND(y), int chunks, int run, float factor, float unit, int ahead, uint64* x_sums,
          uint64* y_sums) {
    OPERANDS
    const int first = blockIdx.y * run, begin = max(first, row_tile() - ahead);
    const int end = min((y.rows + ROWS - 1) / ROWS, first + run);
    BothWays op;
    op.y = y;
    op.factor = factor;
    op.unit = unit;
    op.ahead = ahead;
    op.x_sums = x_sums;
    op.y_sums = y_sums;
    op.rows = x.rows;
    op.norms = x.norms;
    sweep_tiles<3, true>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

// What the filters share: the rows of a thread, and how far from s its approximation may be.
struct Filter {
    Operand y;
    float norm[2], length[2], rest[2], gamma;
    int row[2], rows;
    __device__ __forceinline__ void load(const Operand& x, const Operand& columns, int chunks) {
        y = columns;
        rows = x.rows;
        gamma = GAMMA * 4 * chunks;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            row[h] = row_tile() * ROWS + row_of(2 * h);
            const bool real_row = threadIdx.x >= 128 && row[h] < rows;
            norm[h] = real_row ? x.norms[row[h]] : 0.f;
            const float2 size = real_row ? x.sizes[row[h]] : make_float2(0.f, 0.f);
            length[h] = size.x;
            rest[h] = size.y;
        }
    }
    __device__ __forceinline__ float error(int h, float2 largest) const {
        return 2.0001f * (rest[h] * largest.x + (length[h] + rest[h]) * largest.y + gamma * length[h] * largest.x) +
               ROUNDING * (norm[h] + largest.x * largest.x);
    }
    // Values become s - |x|^2.
    __device__ __forceinline__ void subtract(float (&c)[VALUES], int t) const {
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            const float2 n = norms_at(y, t, four);
#pragma unroll
            for (int i = 0; i < 4; ++i) c[4 * four + i] = fmaf(c[4 * four + i], -2.f, i & 1 ? n.y : n.x);
        }
    }
    // Append the pairs whose bits are set; the counter goes on where there is no more room.
    __device__ __forceinline__ void list_pairs(const unsigned int (&bits)[2], int t, int2* list, uint64* count,
                                               int64 room) {
        const int lane = threadIdx.x & 31, own = __popc(bits[0]) + __popc(bits[1]);
        int upto = own;
        for (int step = 1; step < 32; step <<= 1) {
            const int before = __shfl_up_sync(0xffffffffu, upto, step);
            if (lane >= step) upto += before;
        }
        const int all = __shfl_sync(0xffffffffu, upto, 31);
        if (all == 0) return;
        uint64 at = 0;
        if (lane == 0) at = atomicAdd(count, (uint64)all);
        at = __shfl_sync(0xffffffffu, at, 0) + upto - own;
#pragma unroll
        for (int w = 0; w < 2; ++w)
            for (unsigned int left = bits[w]; left; left &= left - 1, ++at) {
                const int i = 32 * w + __ffs(left) - 1;
                if (at < (uint64)room) list[at] = make_int2(i >> 1 & 1 ? row[1] : row[0], t * ROWS + column_of(i));
            }
    }
};

struct Classify : Filter {
    float low, high;
    int ahead;                  // columns' first tile less the rows': a pair counts if its column comes later
    bool by_row;
    uint64* out;
    int2* list;
    uint64* count;
    int64 room;
    unsigned int below[2];
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        subtract(c, t);
        if (t + ahead == row_tile())
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                if (column_of(i) <= row_of(i)) c[i] = infinity();
        const float2 largest = y.largest[t];
        float sure[2], reach[2];
        int within = 0, surely[2] = {0, 0};
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float e = error(h, largest);
            const bool real_row = row[h] < rows;
            sure[h] = real_row ? low - e - norm[h] : -infinity();
            reach[h] = real_row ? high + e - norm[h] : -infinity();
        }
#pragma unroll
        for (int i = 0; i < VALUES; ++i) {
            surely[i >> 1 & 1] += c[i] < sure[i >> 1 & 1];
            within += c[i] <= reach[i >> 1 & 1];
        }
        below[0] += surely[0];
        below[1] += surely[1];
        if (__any_sync(0xffffffffu, within != surely[0] + surely[1])) {
            unsigned int bits[2] = {0, 0};
#pragma unroll
            for (int i = 0; i < VALUES; ++i)
                if (!(c[i] < sure[i >> 1 & 1]) && c[i] <= reach[i >> 1 & 1]) bits[i >> 5] |= 1u << (i & 31);
            list_pairs(bits, t, list, count, room);
        }
    }
    __device__ __forceinline__ void end() {
        if (!by_row) {
            add_warp_total((uint64)below[0] + below[1], out);
            return;
        }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            unsigned int sum = below[h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if ((threadIdx.x & 3) == 0 && row[h] < rows && sum) atomicAdd(out + row[h], (uint64)sum);
        }
    }
};

// Pairs with s surely below `low` are added to out[row], or to out[0]; those that may lie in [low, high) are listed.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
classify(OPERAND(x), OPERAND(y), int chunks, int run, float low, float high, int ahead, bool by_row, uint64* out,
         int2* list, uint64* count, int64 room) {
    OPERANDS
    const int first = blockIdx.y * run, begin = max(first, row_tile() - ahead);
    const int end = min((y.rows + ROWS - 1) / ROWS, first + run);
    Classify op;
    op.load(x, y, chunks);
    op.low = low;
    op.high = high;
    op.ahead = ahead;
    op.list = list;
    op.count = count;
    op.room = room;
    op.below[0] = op.below[1] = 0;
    op.by_row = by_row;
    op.out = out;
    sweep_tiles<1>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

struct Border : Filter {
    const int* y_labels;
    float low, high;
    int label[2];
    bool open[2];               // no such column is known yet
    unsigned char* out;
    int2* list;
    uint64* count;
    int64 room;
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        subtract(c, t);
        const float2 largest = y.largest[t];
        float least[2] = {infinity(), infinity()}, sure[2], reach[2];
#pragma unroll
        for (int i = 0; i < VALUES; ++i) least[i >> 1 & 1] = fminf(least[i >> 1 & 1], c[i]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float e = error(h, largest);
            sure[h] = low - e - norm[h];
            reach[h] = open[h] ? high + e - norm[h] : -infinity();
        }
        if (!__any_sync(0xffffffffu, least[0] <= reach[0] || least[1] <= reach[1])) return;
        unsigned int bits[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VALUES; ++i)
            if (c[i] <= reach[i >> 1 & 1]) {
                const int column = t * ROWS + column_of(i);
                if (column < y.rows && y_labels[column] != label[i >> 1 & 1]) {
                    if (c[i] < sure[i >> 1 & 1]) open[i >> 1 & 1] = false;
                    else bits[i >> 5] |= 1u << (i & 31);
                }
            }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const unsigned int found = __ballot_sync(0xffffffffu, !open[h]) >> (threadIdx.x & 28) & 15;
            if (found) {
                open[h] = false;
                const unsigned int of_row = h ? 0xccccccccu : 0x33333333u;  // values 2 and 3 of each four
                bits[0] &= ~of_row;
                bits[1] &= ~of_row;
            }
        }
        list_pairs(bits, t, list, count, room);
    }
    __device__ __forceinline__ void end() {
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if ((threadIdx.x & 3) == 0 && row[h] < rows && !open[h]) out[row[h]] = 1;
    }
};

// Rows that are marked already are left as they are.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
border(OPERAND(x), OPERAND(y), int chunks, int run, float low, float high, const int* x_labels, const int* y_labels,
       unsigned char* out, int2* list, uint64* count, int64 room) {
    OPERANDS
    const int begin = blockIdx.y * run, end = min((y.rows + ROWS - 1) / ROWS, begin + run);
    Border op;
    op.load(x, y, chunks);
    op.y_labels = y_labels;
    op.low = low;
    op.high = high;
    op.out = out;
    op.list = list;
    op.count = count;
    op.room = room;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const bool real_row = threadIdx.x >= 128 && op.row[h] < x.rows;
        op.label[h] = real_row ? x_labels[op.row[h]] : 0;
        op.open[h] = real_row && !out[op.row[h]];
    }
    sweep_tiles<1>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

struct Nearest : Filter {
    const int* y_order;
    float limit[2], wide;       // no nearest column is farther; how far beyond s direct differences may be
    int order[2];
    int* limits;
    int2* list;
    uint64* count;
    int64 room;
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        subtract(c, t);
        const float2 largest = y.largest[t];
        float least[2] = {infinity(), infinity()}, e[2], reach[2];
#pragma unroll
        for (int i = 0; i < VALUES; ++i) least[i >> 1 & 1] = fminf(least[i >> 1 & 1], c[i]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            e[h] = error(h, largest);
            reach[h] = limit[h] + e[h] - norm[h];
        }
        if (!__any_sync(0xffffffffu, least[0] <= reach[0] || least[1] <= reach[1])) return;
        const float nan = __int_as_float(0x7fffffff);
#pragma unroll
        for (int i = 0; i < VALUES; ++i)  // columns of no higher density are out
            if (c[i] <= reach[i >> 1 & 1]) {
                const int column = t * ROWS + column_of(i);
                if (column >= y.rows || y_order[column] >= order[i >> 1 & 1]) c[i] = nan;
                limit[i >> 1 & 1] = fminf(limit[i >> 1 & 1], (c[i] + norm[i >> 1 & 1] + e[i >> 1 & 1]) * wide);
            }
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            limit[h] = fminf(limit[h], __shfl_xor_sync(0xffffffffu, limit[h], 1));
            limit[h] = fminf(limit[h], __shfl_xor_sync(0xffffffffu, limit[h], 2));
            reach[h] = limit[h] + e[h] - norm[h];
        }
        unsigned int bits[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VALUES; ++i)
            if (c[i] <= reach[i >> 1 & 1]) bits[i >> 5] |= 1u << (i & 31);
        list_pairs(bits, t, list, count, room);
    }
    __device__ __forceinline__ void end() {
        if (threadIdx.x & 3) return;
#pragma unroll
        for (int h = 0; h < 2; ++h)
            if (row[h] < rows) atomicMin(limits + row[h], __float_as_int(limit[h]));
    }
};

// Rows and columns come by ascending order, so that tiles of lower density are left out. `limits` hold the bits of
// floats that are not negative: the least s that is known so far, a bit enlarged.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
nearest(OPERAND(x), OPERAND(y), int chunks, int run, float wide, const int* x_order, const int* y_order, int* limits,
        int2* list, uint64* count, int64 room) {
    OPERANDS
    const int begin = blockIdx.y * run;
    int end = min((y.rows + ROWS - 1) / ROWS, begin + run);
    const int last = x_order[min(x.rows, (row_tile() + 1) * ROWS) - 1];
    while (end > begin && y_order[(end - 1) * ROWS] >= last) --end;
    if (begin >= end) return;
    Nearest op;
    op.load(x, y, chunks);
    op.y_order = y_order;
    op.wide = wide;
    op.limits = limits;
    op.list = list;
    op.count = count;
    op.room = room;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        const bool real_row = threadIdx.x >= 128 && op.row[h] < x.rows;
        op.order[h] = real_row ? x_order[op.row[h]] : -1;
        op.limit[h] = real_row ? __int_as_float(limits[op.row[h]]) : -infinity();
    }
    sweep_tiles<1>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

// 32 groups of the columns of a run: by the thread that holds them, and by the eight columns modulo 64.
#define GROUPS 32

struct Minima : Filter {
    float least[2][8];
    float* out;
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        subtract(c, t);
        const float2 largest = y.largest[t];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const float beyond = error(h, largest) + norm[h];
#pragma unroll
            for (int g = 0; g < 8; ++g) {
                const float a = fminf(c[4 * g + 2 * h], c[4 * g + 2 * h + 1]);
                const float b = fminf(c[4 * g + 32 + 2 * h], c[4 * g + 32 + 2 * h + 1]);
                least[h][g] = fminf(least[h][g], fminf(a, b) + beyond);
            }
        }
    }
    __device__ __forceinline__ void end() {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            if (row[h] >= rows) continue;
            float* groups = out + ((int64)row[h] * gridDim.y + blockIdx.y) * GROUPS;
            float4* to = reinterpret_cast<float4*>(groups) + 2 * (threadIdx.x & 3);
            to[0] = make_float4(least[h][0], least[h][1], least[h][2], least[h][3]);
            to[1] = make_float4(least[h][4], least[h][5], least[h][6], least[h][7]);
        }
    }
};

// out[row][GROUPS * blockIdx.y + group]
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
minima(OPERAND(x), OPERAND(y), int chunks, int run, float* out) {
    OPERANDS
    const int begin = blockIdx.y * run, end = min((y.rows + ROWS - 1) / ROWS, begin + run);
    Minima op;
    op.load(x, y, chunks);
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int g = 0; g < 8; ++g) op.least[h][g] = infinity();
    op.out = out;
    sweep_tiles<1>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}

struct Collect : Filter {
    float limit[2];
    int* columns;
    int* counts;
    int room;
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        subtract(c, t);
        const float2 largest = y.largest[t];
        float least[2] = {infinity(), infinity()}, reach[2];
#pragma unroll
        for (int i = 0; i < VALUES; ++i) least[i >> 1 & 1] = fminf(least[i >> 1 & 1], c[i]);
#pragma unroll
        for (int h = 0; h < 2; ++h) reach[h] = limit[h] + error(h, largest) - norm[h];
        if (least[0] > reach[0] && least[1] > reach[1]) return;
#pragma unroll
        for (int i = 0; i < VALUES; ++i)
            if (c[i] <= reach[i >> 1 & 1] && c[i] < infinity() && row[i >> 1 & 1] < rows) {
                const int own = row[i >> 1 & 1], at = atomicAdd(counts + own, 1);
                if (at < room) columns[(int64)own * room + at] = t * ROWS + column_of(i);
            }
    }
    __device__ __forceinline__ void end() {}
};

// Every column with s at most limits[row], a bit enlarged: columns[row][at]; counts go on where there is no more room.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
collect(OPERAND(x), OPERAND(y), int chunks, int run, const float* limits, int* columns, int* counts, int room) {
    OPERANDS
    const int begin = blockIdx.y * run, end = min((y.rows + ROWS - 1) / ROWS, begin + run);
    Collect op;
    op.load(x, y, chunks);
    op.columns = columns;
    op.counts = counts;
    op.room = room;
#pragma unroll
    for (int h = 0; h < 2; ++h)
        op.limit[h] = threadIdx.x >= 128 && op.row[h] < x.rows ? limits[op.row[h]] : -infinity();
    sweep_tiles<1>(x.tiles, y.tiles, chunks, row_tile(), begin, end, op);
}
