// Adjacency rows from edges, and coarser graphs from groups of nodes: equal columns of a row are summed in hash tables.
//
// WEIGHT  0: all weights are 1; 32, 64: int32, int64
// OUT     32, 64: type of the sums
//
// A row of the result has the entries of all members of a group. Its columns are counted first; a second kernel, which
// knows where each row starts, writes them. Their order is any: no result of later kernels depends on it.

typedef long long i64;
typedef unsigned long long u64;

#if WEIGHT == 64
typedef i64 Weight;
#else
typedef int Weight;
#endif
#if OUT == 64
typedef i64 Sum;
#else
typedef int Sum;
#endif

constexpr unsigned ALL = 0xffffffffu;
constexpr int SHORT = 256, SHORT_SLOTS = 512;  // entries that a warp sums, and slots of its table
constexpr int WARPS = 8;
constexpr int FEW = 8;        // up to so many entries of a member are read by one thread
constexpr int MANY = 1024;    // more entries of a member are read by the whole block
constexpr int LISTED = 512;   // members of so many entries that a block remembers
constexpr int PROBES = 512;   // a table is called full after so many steps
constexpr int AT_ONCE = 4;

struct Source {
    const i64* starts;
    const int* columns;
    const Weight* weights;
    const int* members;  // rows of each group, or null: group g has row g alone
    const i64* begins;   // first member of each group
    const int* ids;      // group of each column, or null: columns stay

    __device__ i64 first(i64 group) const { return members ? begins[group] : group; }
    __device__ i64 last(i64 group) const { return members ? begins[group + 1] : group + 1; }
    __device__ i64 row(i64 at) const { return members ? members[at] : at; }
};

struct Table {
    int* keys;
    Sum* sums;  // null while columns are counted
    int slots, shift;

    __device__ void clear(int lane, int size) const {
        for (int slot = lane; slot < slots; slot += size) {
            keys[slot] = -1;
            if (sums) sums[slot] = 0;
        }
    }
    // 1: a new key, 0: a known one, -1: the table is full
    __device__ int put(int key, Sum value, int probes) const {
        unsigned slot = ((unsigned)key * 0x9E3779B1u) >> shift;
        for (int step = 0; step < probes; step++) {
            int before = keys[slot];
            if (before == -1) before = atomicCAS(&keys[slot], -1, key);
            if (before == -1 || before == key) {
#if OUT == 64
                if (sums) atomicAdd((u64*)&sums[slot], (u64)value);
#else
                if (sums) atomicAdd(&sums[slot], value);
#endif
                return before == -1;
            }
            slot = (slot + 1) & (slots - 1);
        }
        return -1;
    }
};

constexpr int FULL = -1;  // instead of a number of new keys

__device__ inline int plus(int fresh, int more) { return fresh < 0 || more < 0 ? FULL : fresh + more; }

// Puts the entries of one row, from lo + lane in steps of `size`; returns the number of new keys, or FULL.
__device__ inline int put_row(const Source& source, const Table& table, int own, i64 lo, i64 hi, int lane, int size,
                              int probes) {
    int fresh = 0;
    for (i64 base = lo + lane; base < hi; base += AT_ONCE * size) {  // several groups are read at once
        int key[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            i64 entry = base + (i64)i * size;
            key[i] = own;
            if (entry < hi) key[i] = source.ids ? source.ids[source.columns[entry]] : source.columns[entry];
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (key[i] == own) continue;
            Sum value = 1;
#if WEIGHT
            if (table.sums) value = source.weights[base + (i64)i * size];
#endif
            int found = table.put(key[i], value, probes);
            if (found < 0) return FULL;
            fresh += found;
        }
    }
    return fresh;
}

// Puts the rows of `tile` members from begin, begin + step, ... on, except those that `is_long` keeps for later. A
// thread puts a row of few entries, the warp another.
template <class Long>
__device__ int put_members(const Source& source, const Table& table, int own, i64 begin, i64 end, i64 step, int tile,
                           int lane, int probes, Long is_long) {
    int fresh = 0;
    for (i64 base = begin; base < end; base += step) {
        i64 lo = 0, hi = 0;
        if (lane < tile && base + lane < end) {
            i64 row = source.row(base + lane);
            lo = source.starts[row];
            hi = source.starts[row + 1];
        }
        bool later = hi - lo > FEW && !is_long(base + lane, hi - lo);
        if (hi - lo <= FEW) fresh = plus(fresh, put_row(source, table, own, lo, hi, 0, 1, probes));
        for (unsigned left = __ballot_sync(ALL, later); left; left &= left - 1) {
            int from = __ffs(left) - 1;
            i64 start = __shfl_sync(ALL, lo, from), stop = __shfl_sync(ALL, hi, from);
            fresh = plus(fresh, put_row(source, table, own, start, stop, lane, 32, probes));
        }
        if (__any_sync(ALL, fresh < 0)) return FULL;
    }
    return fresh;
}

struct Never {
    __device__ bool operator()(i64, i64) const { return false; }
};

__device__ inline int warp_sum(int value) {
    for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(ALL, value, step);
    return value;
}

#define SOURCE                                                                                                  \
    const i64 *starts, const int *columns, const Weight *weights, const int *members, const i64 *begins,        \
        const int *ids
#define THE_SOURCE \
    Source { starts, columns, weights, members, begins, ids }

// Groups of at most SHORT entries, by warps: 32 groups at a time. `entries`: number of entries of each group.
// First the `lengths` of the rows are counted; then `out` and `out_sums` are written from `places`, the rows' starts.
template <bool WRITE>
__device__ void by_warps(const Source& source, int groups, const i64* entries, int first, i64* lengths,
                         const i64* places, int* out, Sum* out_sums, int* keys, Sum* sums) {
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32;
    keys += warp * SHORT_SLOTS;
    if (WRITE) sums += warp * SHORT_SLOTS;
    i64 warps = (i64)gridDim.x * WARPS;
    for (i64 base = 32 * ((i64)blockIdx.x * WARPS + warp); base < groups; base += 32 * warps) {
        i64 mine = base + lane < groups ? entries[base + lane] : 0;
        for (unsigned left = __ballot_sync(ALL, mine > 0 && mine <= SHORT); left; left &= left - 1) {
            int from = __ffs(left) - 1, size = (int)__shfl_sync(ALL, mine, from);
            i64 group = base + from;
            int bits = 32 - __clz(size + size / 2);
            bits = bits < 5 ? 5 : bits > 9 ? 9 : bits;
            Table table{keys, WRITE && out_sums ? sums : nullptr, 1 << bits, 32 - bits};
            table.clear(lane, 32);
            __syncwarp();
            int fresh = put_members(source, table, first + (int)group, source.first(group), source.last(group), 32,
                                    32, lane, SHORT_SLOTS, Never());
            __syncwarp();
            if (!WRITE) {
                fresh = warp_sum(fresh);
                if (!lane) lengths[group] = fresh;
                continue;
            }
            i64 to = places[group];
            for (int slot = lane; slot < table.slots; slot += 32) {
                int key = table.keys[slot];
                unsigned there = __ballot_sync(ALL, key >= 0);
                if (key >= 0) {
                    i64 at = to + __popc(there & ((1u << lane) - 1));
                    out[at] = key;
                    if (out_sums) out_sums[at] = sums[slot];
                }
                to += __popc(there);
            }
            __syncwarp();
        }
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    count_short(SOURCE, int groups, const i64* entries, int first, i64* lengths) {
    __shared__ int keys[WARPS * SHORT_SLOTS];
    by_warps<false>(THE_SOURCE, groups, entries, first, lengths, nullptr, nullptr, nullptr, keys, nullptr);
}

extern "C" __global__ void __launch_bounds__(32 * WARPS)
    write_short(SOURCE, int groups, const i64* entries, int first, const i64* places, int* out, Sum* out_sums) {
    __shared__ int keys[WARPS * SHORT_SLOTS];
    __shared__ Sum sums[WARPS * SHORT_SLOTS];
    by_warps<true>(THE_SOURCE, groups, entries, first, nullptr, places, out, out_sums, keys, sums);
}

// Listed groups, by blocks, with a table of 1 << bits slots in shared memory. A row that does not fit gets length -1.
template <bool WRITE>
__device__ void by_blocks(const Source& source, const i64* list, int listed, const i64* entries, int first, int most,
                          i64* lengths, const i64* places, int* out, Sum* out_sums) {
    extern __shared__ i64 room[];
    __shared__ i64 longs[LISTED];
    __shared__ int long_count, total, full;
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    Sum* sums = (Sum*)room;
    int* keys = WRITE && out_sums ? (int*)(sums + (1 << most)) : (int*)room;
    for (int at = blockIdx.x; at < listed; at += gridDim.x) {
        i64 group = list[at], begin = source.first(group), end = source.last(group);
        i64 size = WRITE ? places[group + 1] - places[group] : entries[group];
        if (!size) continue;
        int bits = min(most, 64 - __clzll(size + size / 2)), slots = 1 << bits;
        Table table{keys, WRITE && out_sums ? sums : nullptr, slots, 32 - bits};
        int probes = WRITE ? slots : PROBES;  // what was counted fits
        table.clear(threadIdx.x, blockDim.x);
        if (!threadIdx.x) long_count = total = full = 0;
        __syncthreads();
        int tile = (int)min((i64)32, (end - begin + warps - 1) / warps);  // every warp gets members
        int fresh = put_members(source, table, first + (int)group, begin + tile * warp, end, tile * warps, tile, lane,
                                probes,
                                [&](i64 member, i64 size) {
                                    if (size <= MANY) return false;
                                    int place = atomicAdd(&long_count, 1);
                                    if (place < LISTED) longs[place] = source.row(member);
                                    return place < LISTED;
                                });
        __syncthreads();
        for (int i = 0; i < min(long_count, LISTED); i++) {
            i64 row = longs[i];
            fresh = plus(fresh, put_row(source, table, first + (int)group, source.starts[row], source.starts[row + 1],
                                        threadIdx.x, blockDim.x, probes));
        }
        if (!WRITE) {
            if (fresh < 0) atomicExch(&full, 1);
            fresh = warp_sum(max(fresh, 0));
            if (!lane) atomicAdd(&total, fresh);
            __syncthreads();
            if (!threadIdx.x) lengths[group] = full ? -1 : total;
            __syncthreads();
            continue;
        }
        __syncthreads();
        i64 place = places[group];
        for (int slot = threadIdx.x; slot - lane < slots; slot += blockDim.x) {
            int key = slot < slots ? keys[slot] : -1;
            unsigned there = __ballot_sync(ALL, key >= 0);
            int base = 0;
            if (!lane && there) base = atomicAdd(&total, __popc(there));
            base = __shfl_sync(ALL, base, 0);
            if (key >= 0) {
                i64 to = place + base + __popc(there & ((1u << lane) - 1));
                out[to] = key;
                if (out_sums) out_sums[to] = sums[slot];
            }
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(1024)
    count_long(SOURCE, const i64* list, int listed, const i64* entries, int first, int most, i64* lengths) {
    by_blocks<false>(THE_SOURCE, list, listed, entries, first, most, lengths, nullptr, nullptr, nullptr);
}

extern "C" __global__ void __launch_bounds__(1024)
    write_long(SOURCE, const i64* list, int listed, const i64* entries, int first, int most, const i64* places, int* out,
               Sum* out_sums) {
    by_blocks<true>(THE_SOURCE, list, listed, entries, first, most, nullptr, places, out, out_sums);
}

// The entries of the other groups, as keys (row, column, weight) to be sorted by a library. `ends`: number of entries
// of all members up to each, in the order of `members`, of which `before` come before the group's; `offsets`: where the
// group's keys begin, -1: the group is not asked for.
constexpr i64 DROPPED = 0x7fffffffffffffffLL;

extern "C" __global__ void __launch_bounds__(256)
    keys_of_groups(SOURCE, i64 rows, const int* group_of, const i64* ends, const i64* offsets, const i64* before,
                   i64 groups, int first, int bits, bool by_block, i64* keys, Weight* beside) {
    int lane = by_block ? threadIdx.x : threadIdx.x & 31, size = by_block ? blockDim.x : 32;
    i64 workers = by_block ? gridDim.x : (i64)gridDim.x * (blockDim.x / 32);
    i64 at = by_block ? blockIdx.x : (i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    for (; at < rows; at += workers) {
        i64 group = group_of ? group_of[at] : at, offset = offsets[group];
        if (offset < 0) continue;
        i64 row = members ? members[at] : at, lo = starts[row], hi = starts[row + 1];
        if ((hi - lo > MANY) != by_block) continue;
        i64 to = offset + ends[at] - (hi - lo) - before[group] - lo;
        for (i64 entry = lo + lane; entry < hi; entry += size) {
            i64 other = ids ? ids[columns[entry]] : columns[entry];
            i64 packed = 0;
#if WEIGHT
            packed = bits ? (i64)weights[entry] : 0;
            if (beside) beside[to + entry] = weights[entry];
#endif
            keys[to + entry] = first + group == other ? DROPPED : ((group * groups + other) << bits) | packed;
        }
    }
}

// ---- rows of pairs in any order

// Calls work(row, at) for the pairs whose row is in low .. high - 1.
template <class Work>
__device__ void over_pairs(i64 pairs, const int* row, int low, int high, Work work) {
    i64 step = (i64)gridDim.x * blockDim.x;
    for (i64 base = (i64)blockIdx.x * blockDim.x + threadIdx.x; base < pairs; base += AT_ONCE * step) {
        int found[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) found[i] = base + i * step < pairs ? row[base + i * step] : -1;
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            if (found[i] >= low && found[i] < high) work(found[i], base + i * step);
    }
}

// counts: number of pairs of each row
extern "C" __global__ void count_rows(i64 pairs, const int* row, int low, int high, int* counts) {
    over_pairs(pairs, row, low, high, [&](int own, i64) { atomicAdd(&counts[own], 1); });
}

// cursor: where the next pair of each row goes
extern "C" __global__ void place_pairs(i64 pairs, const int* row, const int* column, const Weight* weight, int low,
                                       int high, u64* cursor, int* columns, Weight* weights) {
    over_pairs(pairs, row, low, high, [&](int own, i64 at) {
        u64 to = atomicAdd(&cursor[own], 1ULL);
        columns[to] = column[at];
#if WEIGHT
        weights[to] = weight[at];
#endif
    });
}

// ---- rows that are sent to other ranks, and rows that arrive from them

// Copies the entries of listed rows, or of all rows if `list` is null. Entries whose number is the row's own number are
// left out; the number of an entry is its column or, if `ids` is not null, the group of its column. Listed row `at`
// goes to `cursor[at % targets]`, and its own number is `own[at % targets]`. If `out` is null, the cursors only count.
extern "C" __global__ void __launch_bounds__(256)
    copy_rows(const i64* starts, const int* columns, const Weight* weights, i64 listed, const int* list,
              const int* own, const int* ids, i64 targets, bool by_block, u64* cursor, int* out, Weight* out_weights) {
    int lane = threadIdx.x & 31, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    i64 workers = by_block ? gridDim.x : (i64)gridDim.x * warps;
    int shift = by_block ? 32 * warp : 0, size = by_block ? blockDim.x : 32;
    for (i64 at = by_block ? blockIdx.x : (i64)blockIdx.x * warps + warp; at < listed; at += workers) {
        i64 row = list ? list[at] : at, lo = starts[row], hi = starts[row + 1], target = at % targets;
        if ((hi - lo > MANY) != by_block) continue;
        for (i64 base = lo + shift; base < hi; base += size) {
            i64 entry = base + lane;
            int column = entry < hi ? columns[entry] : 0;
            bool kept = entry < hi && (ids ? ids[column] : column) != own[target];
            unsigned there = __ballot_sync(ALL, kept);
            u64 to = 0;
            if (!lane && there) to = atomicAdd(&cursor[target], (u64)__popc(there));
            to = __shfl_sync(ALL, to, 0) + __popc(there & ((1u << lane) - 1));
            if (!kept || !out) continue;
            out[to] = column;
            if (weights) out_weights[to] = weights[entry];
        }
    }
}
