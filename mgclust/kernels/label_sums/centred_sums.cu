// Sums of distances to the columns of one cluster by products of split halves (pairs/products/split_products.cuh), float32, Hopper.
//
// Rows and columns are taken about a point mu near the cluster, so that what cancels in
//
//     s = |x - mu|^2 + |y - mu|^2 - 2 (x - mu).(y - mu) = both - 2 p
//
// is as small as the cluster. Each row has a power of two of its own, so halves neither overflow nor vanish beside rows
// of another size. The error of s is a few 2^-24 of `both`, and up to 2^-24 for every 16 features where x and y lie in
// the same direction from mu. Pairs with s < share * both would lose more than that: they are decided by direct
// differences, at once, by the warp that meets them.
//
// In a model that cuts sums off at 24 digits, sums over a cluster are within 2e-7 of float64 for rows of clusters, with
// any labels, and within 6e-7 in the worst cases found: 120 features with two values each, or one of 1e6 times the size
// of the others, and labels by chance. It is up to 1.5e-6 for 512 features, so these are left to direct differences.
//
// A distance becomes an integer: its unit is 2^-25 or less of the row's root mean square distance to the cluster; its
// square is |x - mu|^2 + spread if mu is the mean and spread the mean of |y - mu|^2. At most one of 256 can be more
// than 16 times that, where the integer would be too large; these are decided by direct differences, too, and rounded
// in 64 bits. Everything about a pair depends on the pair, mu, spread and scale alone, and integers have no order: the
// same bits however rows and columns come. Equal rows have equal bits.
#include "pairs/pairs.cuh"
#include "pairs/products/split_products.cuh"

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

#define FAR 16.f                // times the root mean square distance
#define BITS 30                 // of a distance

__device__ __forceinline__ float approximate_root(float s) {
    float root;
    asm("sqrt.approx.ftz.f32 %0, %1;" : "=f"(root) : "f"(s));
    return root;
}

struct Distances {
    const float *x, *y;
    const float2* y_norms;
    const int64* which;
    int d, rows, columns, clusters;
    float share;
    uint64* out;
    int row[2], shift[2];       // a row's integers count 2^shift / scale
    float norm[2], unscale[2];  // unscale: -2 times that of pack_about
    float factor[2], beyond[2]; // of a distance; s from which on the integer is too large
    uint64 total[2];
    // Norms and factors of two neighbouring columns: x, y of the first, z, w of the second.
    __device__ __forceinline__ float4 columns_at(int t, int four) const {
        return __ldg(reinterpret_cast<const float4*>(y_norms + t * ROWS + column_of(4 * four)));
    }
    // rint(distance * factor) by additions, as conversions take as long as roots. v is below 2^30, so 2^30 + v rounds it to a
    // multiple of 2^7, whose number is in the last digits. What is left is exact, at most 2^6, and 1.5 x 2^23 rounds it to
    // an integer, halves to even ones; multiples of 2^7 are even, so the sum is v, rounded likewise.
    __device__ __forceinline__ void add_integer(float s, int h, unsigned int& coarse, unsigned int& fine) const {
        const float v = __fmul_rn(approximate_root(s), factor[h]), large = v + 1073741824.f;
        coarse += __float_as_uint(large);
        fine += __float_as_uint((v - (large - 1073741824.f)) + 12582912.f);
    }
    __device__ __forceinline__ void tile(float (&c)[VALUES], int t) {
        float least = infinity(), most[2] = {0, 0};
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            const float4 n = columns_at(t, four);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float both = norm[i >> 1] + (i & 1 ? n.z : n.x);
                const float s = fmaf(c[4 * four + i] * (i & 1 ? n.w : n.y), unscale[i >> 1], both);
                least = fminf(least, fmaf(-share, both, s));
                most[i >> 1] = fmaxf(most[i >> 1], s);
                c[4 * four + i] = s;
            }
        }
        if (__any_sync(0xffffffffu, least < 0 || !(most[0] < beyond[0]) || !(most[1] < beyond[1]))) decide(c, t);
        unsigned int coarse[2] = {0, 0}, fine[2] = {0, 0};
#pragma unroll
        for (int i = 0; i < VALUES; i += 8)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
                for (int j = 0; j < 4; ++j) add_integer(c[i + 2 * h + (j & 1) + 4 * (j >> 1)], h, coarse[h], fine[h]);
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            const unsigned int added = VALUES / 2;
            total[h] += (uint64)(coarse[h] - added * 0x4E800000u) << 7;
            total[h] += (int64)(int)(fine[h] - added * 0x4B400000u);
        }
    }
    // Doubtful pairs become 0 in c, and what they are is added to the total.
    __device__ __forceinline__ void decide(float (&c)[VALUES], int t) {
        uint64 left = 0;
#pragma unroll
        for (int four = 0; four < VALUES / 4; ++four) {
            const float4 n = columns_at(t, four);
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int i = 4 * four + j;
                const float both = norm[j >> 1] + (j & 1 ? n.z : n.x);
                const bool padding = t * ROWS + column_of(i) >= columns;
                const bool doubtful = fmaf(-share, both, c[i]) < 0 || !(c[i] < beyond[j >> 1]);
                if (doubtful && !padding) left |= 1ull << i;
                if (doubtful || padding) c[i] = 0;
            }
        }
        while (const unsigned int lanes = __ballot_sync(0xffffffffu, left != 0)) {
            const int leader = __ffs(lanes) - 1, i = __ffsll(left) - 1;
            const int own = __shfl_sync(0xffffffffu, i & 2 ? row[1] : row[0], leader);
            const int column = __shfl_sync(0xffffffffu, t * ROWS + column_of(i), leader);
            const float *a = x + (int64)own * d, *b = y + which[column] * d;
            float s = 0;
            for (int f = threadIdx.x & 31; f < d; f += 32) s = accumulate(a[f], b[f], s);
            for (int step = 16; step; step >>= 1) s += __shfl_xor_sync(0xffffffffu, s, step);
            if ((threadIdx.x & 31) == leader) {
                const uint64 integer = __float2ull_rn(sqrtf(s) * (i & 2 ? factor[1] : factor[0]));
                total[0] += i & 2 ? 0 : integer;
                total[1] += i & 2 ? integer : 0;
                left &= left - 1;
            }
        }
    }
    __device__ __forceinline__ void end() {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
            uint64 sum = total[h];
            sum += __shfl_xor_sync(0xffffffffu, sum, 1);
            sum += __shfl_xor_sync(0xffffffffu, sum, 2);
            if ((threadIdx.x & 3) == 0 && row[h] < rows) atomicAdd(out + (int64)row[h] * clusters, sum << shift[h]);
        }
    }
};

// Adds to out[row * clusters] the sum of rint(distance * scale), in units that may be larger than 1.
extern "C" __global__ void __launch_bounds__(BLOCK_THREADS, 1)
centred_sums(const float* x, const unsigned char* x_tiles, const float2* x_norms, int m, const float* y,
             const unsigned char* y_tiles, const float2* y_norms, const int64* which, int k, int d, int chunks, int run,
             const double* spread, float share, double scale, int clusters, uint64* out) {
    const int begin = blockIdx.y * run, end = min((k + ROWS - 1) / ROWS, begin + run);
    Distances op;
    op.x = x;
    op.y = y;
    op.y_norms = y_norms;
    op.which = which;
    op.d = d;
    op.rows = m;
    op.columns = k;
    op.clusters = clusters;
    op.share = share;
    op.out = out;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
        op.row[h] = blockIdx.x * ROWS + row_of(2 * h);
        op.total[h] = 0;
        op.shift[h] = 0;
        op.norm[h] = op.unscale[h] = op.factor[h] = 0;
        op.beyond[h] = infinity();
        if (threadIdx.x < 128 || op.row[h] >= m) continue;
        const float2 own = x_norms[op.row[h]];
        op.norm[h] = own.x;
        op.unscale[h] = -2 * own.y;
        const double reach = FAR * sqrt((double)own.x + *spread) * scale;
        op.shift[h] = reach > 0 ? max(0, ilogb(reach) + 1 - BITS) : 0;
        const double factor = ldexp(scale, -op.shift[h]), largest = ldexp(1.0, BITS) / factor;
        op.factor[h] = (float)factor;
        op.beyond[h] = (float)(0.999 * largest * largest);
    }
    sweep_tiles<3>(x_tiles, y_tiles, chunks, blockIdx.x, begin, end, op);
}
