// Local moving, matching and contraction on a graph's adjacency rows; see the package for their meaning.
//
// WEIGHT  0: all weights are 1; 32, 64: int32, int64
// EXACT   1: gains are int64; 0: float64, each operation rounded (no multiply-add), as on the CPU
// DIRECTED  1: strengths with directions, see `Gain` in adjacency.py; 0: without
//
// Rows of up to LONG_ROW entries are taken by warps, 32 nodes at a time, longer ones by blocks. All sums are of
// integers, and every maximum has a stated tie rule, so that nothing depends on the order in which threads arrive.
//
// One file because all kernels go by the same rows, with the same constants: a kernel is compiled by itself.
#include "toolkit/hashing.cuh"

typedef long long i64;
typedef unsigned long long u64;

#if WEIGHT == 64
typedef i64 Weight;
#else
typedef int Weight;
#endif

#if EXACT
typedef i64 Score;
typedef int Sum;  // of weights: two_m < 2^31
#define LOWEST (-0x7fffffffffffffffLL - 1)
#else
typedef double Score;
typedef i64 Sum;
#define LOWEST (-1.7976931348623157e308)
#endif

constexpr double MAX_RISE = 2199023255552.0;  // 2^41: no move raises modularity by more than 2
constexpr int SHORT_ROW = 64, SHORT_SLOTS = 128;
constexpr int MEDIUM_SLOTS = 2048;  // LONG_ROW entries half fill it
constexpr int LONG_ROW = 1024;
constexpr int WARPS = 8;
constexpr unsigned ALL = 0xffffffffu;

struct Rows {
    int first, count;
    const i64* starts;
    const int* columns;
    const Weight* weights;
};

struct Gain {
    i64 two_m;
    double resolution;

    __device__ Score score(i64 w, i64 d, i64 total) const {
#if EXACT
        return two_m * w - product(d, total);
#else
        return __dsub_rn(__dmul_rn((double)two_m, (double)w), __dmul_rn(resolution, product(d, total)));
#endif
    }

    __device__ static Score product(i64 d, i64 total) {
#if DIRECTED
        return (Score)(2 * ((d >> 32) * (total & 0xffffffffLL) + (d & 0xffffffffLL) * (total >> 32)));
#elif EXACT
        return d * total;
#else
        return __dmul_rn((double)d, (double)total);
#endif
    }
};

__device__ inline double degree(i64 strength) {
#if DIRECTED
    return (double)((strength >> 32) + (strength & 0xffffffffLL));
#else
    return (double)strength;
#endif
}

__device__ inline i64 weight_of(const Rows& rows, i64 entry) {
#if WEIGHT
    return rows.weights[entry];
#else
    return 1;
#endif
}

__device__ inline void add(i64* sum, i64 value) { atomicAdd((u64*)sum, (u64)value); }

// The threads that work on a row together: a warp or a block. `sum` and `best` return the result to every thread.

struct Warp {
    int lane;
    static constexpr int SIZE = 32;
    __device__ void sync() const { __syncwarp(); }
    __device__ i64 sum(i64 value) const {
        for (int step = 16; step; step >>= 1) value += __shfl_xor_sync(ALL, value, step);
        return value;
    }
    template <class Best>
    __device__ Best best(Best own) const {
        for (int step = 16; step; step >>= 1) own.take(own.from_lane(step));
        return own;
    }
};

template <int THREADS>
struct BlockOf {
    int lane;
    static constexpr int SIZE = THREADS;
    __device__ void sync() const { __syncthreads(); }
    __device__ i64 sum(i64 value) const {
        __shared__ i64 parts[THREADS / 32];
        value = Warp{lane & 31}.sum(value);
        __syncthreads();
        if (!(lane & 31)) parts[lane / 32] = value;
        __syncthreads();
        value = 0;
        for (int part = 0; part < THREADS / 32; part++) value += parts[part];
        return value;
    }
    template <class Best>
    __device__ Best best(Best own) const {
        __shared__ char room[sizeof(Best) * (THREADS / 32)] __attribute__((aligned(16)));
        Best* parts = (Best*)room;
        own = Warp{lane & 31}.best(own);
        __syncthreads();
        if (!(lane & 31)) parts[lane / 32] = own;
        __syncthreads();
        own = parts[0];
        for (int part = 1; part < THREADS / 32; part++) own.take(parts[part]);
        return own;
    }
};
typedef BlockOf<512> Block;

// Calls work(warp, row, lo, hi) for own rows of at most `longest` entries that `wanted` says are needed.
template <class Wanted, class Work>
__device__ void by_warps(const Rows& rows, int longest, Wanted wanted, Work work) {
    Warp warp{(int)(threadIdx.x & 31)};
    i64 warps = (i64)gridDim.x * (blockDim.x / 32);
    for (i64 base = 32 * ((i64)blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32); base < rows.count;
         base += 32 * warps) {
        i64 row = base + warp.lane, lo = 0, hi = 0;
        bool asked = row < rows.count && wanted((int)row);
        if (asked) {
            lo = rows.starts[row];
            hi = rows.starts[row + 1];
            asked = hi > lo && hi - lo <= longest;
        }
        for (unsigned left = __ballot_sync(ALL, asked); left; left &= left - 1) {
            int source = __ffs(left) - 1;
            work(warp, (int)(base + source), __shfl_sync(ALL, lo, source), __shfl_sync(ALL, hi, source));
            __syncwarp();
        }
    }
}

// Calls work(block, row, lo, hi) for the listed rows that are wanted, of which each thread checks some.
template <class Group, class Wanted, class Work>
__device__ void by_blocks(const Rows& rows, const int* list, int listed, Wanted wanted, Work work) {
    __shared__ int chosen[Group::SIZE], count;
    Group block{(int)threadIdx.x};
    for (i64 base = blockIdx.x; base < listed; base += (i64)gridDim.x * Group::SIZE) {
        if (!block.lane) count = 0;
        __syncthreads();
        i64 at = base + (i64)gridDim.x * block.lane;
        if (at < listed && wanted(list[at])) chosen[atomicAdd(&count, 1)] = list[at];
        __syncthreads();
        for (int i = 0; i < count; i++) {
            int row = chosen[i];
            work(block, row, rows.starts[row], rows.starts[row + 1]);
            __syncthreads();
        }
        __syncthreads();
    }
}

struct Any {
    __device__ bool operator()(int) const { return true; }
};

// Calls work(group, row, lo, hi) for the rows that are wanted: listed ones, the long rows, by blocks, others by warps.
template <class Wanted, class Work>
__device__ void by_rows(const Rows& rows, const int* list, int listed, Wanted wanted, Work work) {
    by_blocks<Block>(rows, list, listed, wanted, work);
    by_warps(rows, LONG_ROW, wanted, work);
}

#define ROWS int first, int count, const i64 *starts, const int *columns, const Weight *weights
#define LISTED const int *list, int listed
#define OWN \
    Rows { first, count, starts, columns, weights }

// ---- local moving

struct Move {
    Score score;
    int label;
    __device__ void take(Move other) {
        if (other.label >= 0 && (label < 0 || other.score > score || (other.score == score && other.label < label)))
            *this = other;
    }
    __device__ Move from_lane(int step) const {
        return Move{__shfl_xor_sync(ALL, score, step), __shfl_xor_sync(ALL, label, step)};
    }
};

struct Movers {
    Gain gain;
    const i64 *strength, *totals;
    const int* labels;
    const unsigned char* active;
    unsigned classes, turn;
    u64 salt;
    int first;
    int* out;

    __device__ bool operator()(int row) const {
        u64 node = (u64)(first + row);
        return active[node] && (unsigned)(splitmix64(node * 0x9E3779B97F4A7C15ULL + salt) >> 33) % classes == turn;
    }
};

// Sums the weights to each neighbouring community in a hash table of `slots`, a power of two above the row's length.
// The weight to the node's own community is not in the table: most neighbours may belong to this community, and their
// threads would wait for each other.
template <class Group>
__device__ void propose(Group group, const Rows& rows, const Movers& movers, int row, i64 lo, i64 hi, int* keys,
                        Sum* sums, int slots, i64* tally) {
    constexpr int AT_ONCE = Group::SIZE == 32 ? 2 : 4;
    int node = rows.first + row, label = movers.labels[node];
    i64 strength = movers.strength[node], own = 0;
    for (int slot = group.lane; slot < slots; slot += Group::SIZE) {
        keys[slot] = -1;
        sums[slot] = 0;
    }
    group.sync();
    int shift = 32 - (31 - __clz(slots));
    // Several labels are on their way at once: a block waits for its reads most of the time.
    for (i64 base = lo + group.lane; base < hi; base += AT_ONCE * Group::SIZE) {
        int found[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            i64 entry = base + i * Group::SIZE;
            found[i] = entry < hi ? movers.labels[rows.columns[entry]] : -1;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int other = found[i];
            if (other < 0) continue;
            i64 weight = weight_of(rows, base + i * Group::SIZE);
            if (other == label) {
                own += weight;
                continue;
            }
            unsigned slot = ((unsigned)other * 0x9E3779B1u) >> shift;
            for (;;) {
                int before = keys[slot];
                if (before == -1) before = atomicCAS(&keys[slot], -1, other);
                if (before == -1 || before == other) break;
                slot = (slot + 1) & (slots - 1);
            }
#if EXACT
            atomicAdd(&sums[slot], (int)weight);
#else
            add(&sums[slot], weight);
#endif
        }
    }
    group.sync();
    Move best{LOWEST, -1};
    for (int base = group.lane; base < slots; base += AT_ONCE * Group::SIZE) {
        int key[AT_ONCE];
        i64 total[AT_ONCE];
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            int slot = base + i * Group::SIZE;
            key[i] = slot < slots ? keys[slot] : -1;
            total[i] = key[i] >= 0 ? movers.totals[key[i]] : 0;
        }
#pragma unroll
        for (int i = 0; i < AT_ONCE; i++) {
            if (key[i] >= 0)
                best.take(Move{movers.gain.score(sums[base + i * Group::SIZE], strength, total[i]), key[i]});
        }
    }
    own = group.sum(own);
    best = group.best(best);
    if (group.lane) return;
    Score stay = movers.gain.score(own, strength, movers.totals[label] - strength);
    int target = -1;
    Score reached = stay;
    if (best.label >= 0 && best.score > stay) {
        target = best.label;
        reached = best.score;
    }
    if (reached < 0 && movers.totals[node] == 0) {  // alone, under a label that no node has
        target = node;
        reached = 0;
    }
    if (target < 0) return;
    movers.out[node] = target;
#if EXACT
    double rise = (double)(reached - stay);
#else
    double rise = __dsub_rn(reached, stay);
#endif
    double two_m = (double)movers.gain.two_m;
    double fixed = __dmul_rn(__ddiv_rn(__dmul_rn(rise, 2.0), __dmul_rn(two_m, two_m)), 1099511627776.0);
    tally[0] += 1;
    tally[1] += (i64)fmin(rint(fixed), MAX_RISE);
}

#define MOVERS                                                                                              \
    const i64 *strength, const int *labels, const i64 *totals, const unsigned char *active, i64 two_m,      \
        double resolution, unsigned classes, unsigned turn, u64 salt, int *out, i64 *tally
#define OWN_MOVERS \
    Movers { Gain{two_m, resolution}, strength, totals, labels, active, classes, turn, salt, first, out }

__device__ inline void add_tally(i64* tally, const i64* own) {
    if (own[0]) {
        add(&tally[0], own[0]);
        add(&tally[1], own[1]);
    }
}

extern "C" __global__ void __launch_bounds__(32 * WARPS) propose_short(ROWS, MOVERS) {
    __shared__ int keys[WARPS][SHORT_SLOTS];
    __shared__ Sum sums[WARPS][SHORT_SLOTS];
    Rows rows = OWN;
    Movers movers = OWN_MOVERS;
    int warp = threadIdx.x / 32;
    i64 own[2] = {0, 0};
    by_warps(rows, SHORT_ROW, movers, [&](Warp group, int row, i64 lo, i64 hi) {
        int slots = hi - lo <= SHORT_ROW / 4 ? 32 : hi - lo <= SHORT_ROW / 2 ? 64 : SHORT_SLOTS;
        propose(group, rows, movers, row, lo, hi, keys[warp], sums[warp], slots, own);
    });
    add_tally(tally, own);
}

extern "C" __global__ void __launch_bounds__(128) propose_medium(ROWS, LISTED, MOVERS) {
    __shared__ int keys[MEDIUM_SLOTS];
    __shared__ Sum sums[MEDIUM_SLOTS];
    Rows rows = OWN;
    Movers movers = OWN_MOVERS;
    i64 own[2] = {0, 0};
    by_blocks<BlockOf<128>>(rows, list, listed, movers, [&](BlockOf<128> group, int row, i64 lo, i64 hi) {
        int slots = 1 << (33 - __clz((int)(hi - lo) - 1));  // two to four times the row
        propose(group, rows, movers, row, lo, hi, keys, sums, slots < MEDIUM_SLOTS ? slots : MEDIUM_SLOTS, own);
    });
    add_tally(tally, own);
}

// A table of `room` slots for each block, in shared memory, or in global memory for the longest rows. A hub may have a
// million neighbours, hence large blocks.
extern "C" __global__ void __launch_bounds__(1024) propose_long(ROWS, LISTED, MOVERS, int* keys, Sum* sums, int room) {
    extern __shared__ i64 shared[];
    Rows rows = OWN;
    Movers movers = OWN_MOVERS;
    i64 own[2] = {0, 0};
    if (keys) {
        keys += (i64)blockIdx.x * room;
        sums += (i64)blockIdx.x * room;
    } else {
        sums = (Sum*)shared;
        keys = (int*)(sums + room);
    }
    by_blocks<BlockOf<1024>>(rows, list, listed, movers, [&](BlockOf<1024> group, int row, i64 lo, i64 hi) {
        int slots = 1 << (33 - __clz((int)(hi - lo) - 1));
        propose(group, rows, movers, row, lo, hi, keys, sums, slots < room ? slots : room, own);
    });
    add_tally(tally, own);
}

extern "C" __global__ void apply_moves(i64 n, const int* proposal, const i64* strength, int* labels, i64* totals) {
    for (i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x; node < n; node += (i64)gridDim.x * blockDim.x) {
        int target = proposal[node];
        if (target < 0) continue;
        add(&totals[labels[node]], -strength[node]);
        add(&totals[target], strength[node]);
        labels[node] = target;
    }
}

struct Moved {
    const int* proposal;
    int first;
    __device__ bool operator()(int row) const { return proposal[first + row] >= 0; }
};

extern "C" __global__ void __launch_bounds__(512, 2)
    activate_neighbors(ROWS, LISTED, const int* proposal, const int* labels, unsigned char* active) {
    Rows rows = OWN;
    by_rows(rows, list, listed, Moved{proposal, first}, [&](auto group, int row, i64 lo, i64 hi) {
        int label = labels[rows.first + row];
        for (i64 entry = lo + group.lane; entry < hi; entry += group.SIZE) {
            int other = rows.columns[entry];
            if (!active[other] && labels[other] != label) active[other] = 1;
        }
    });
}

extern "C" __global__ void __launch_bounds__(512, 3) cross(ROWS, LISTED, const int* labels, i64* out) {
    Rows rows = OWN;
    i64 sum = 0;
    by_rows(rows, list, listed, Any(), [&](auto group, int row, i64 lo, i64 hi) {
        int label = labels[rows.first + row];
        for (i64 entry = lo + group.lane; entry < hi; entry += group.SIZE)
            if (labels[rows.columns[entry]] != label) sum += weight_of(rows, entry);
    });
    sum = Warp{0}.sum(sum);
    if (!(threadIdx.x & 31) && sum) add(out, sum);
}

// ---- matching

struct Partner {
    double score;
    u64 hash;
    int node;
    __device__ void take(Partner other) {
        if (other.node < 0) return;
        if (node < 0 || other.score > score ||
            (other.score == score && (other.hash > hash || (other.hash == hash && other.node < node))))
            *this = other;
    }
    __device__ Partner from_lane(int step) const {
        return Partner{__shfl_xor_sync(ALL, score, step), __shfl_xor_sync(ALL, hash, step),
                       __shfl_xor_sync(ALL, node, step)};
    }
};

template <class Group>
__device__ void choose(Group group, const Rows& rows, const i64* strength, const int* within, Gain gain,
                       bool any_sign, double noise, u64 salt, int* out, int row, i64 lo, i64 hi) {
    int node = rows.first + row, part = within ? within[node] : 0;
    i64 own = strength[node];
    Partner best{0.0, 0, -1};
    for (i64 entry = lo + group.lane; entry < hi; entry += Group::SIZE) {
        int other = rows.columns[entry];
        if (within && within[other] != part) continue;
        i64 its = strength[other];
        Score rise = gain.score(weight_of(rows, entry), own, its);
        if (rise <= 0 && !any_sign) continue;
        double score = __ddiv_rn((double)rise, __dsqrt_rn(__dmul_rn(degree(own), degree(its))));
        u64 low = node < other ? node : other, high = node < other ? other : node;
        u64 hash = splitmix64(low * 0x9E3779B97F4A7C15ULL + high * 0xC2B2AE3D27D4EB4FULL + salt);
        double part_of_one = __ddiv_rn((double)(hash >> 40), 16777216.0);
        score = __dmul_rn(score, __dsub_rn(1.0, __dmul_rn(noise, part_of_one)));
        best.take(Partner{score, hash, other});
    }
    best = group.best(best);
    if (!group.lane) out[node] = best.node;
}

#define CHOICE                                                                                             \
    const i64 *strength, const int *within, i64 two_m, double resolution, bool any_sign, double noise,     \
        u64 salt, int *out

extern "C" __global__ void __launch_bounds__(512, 2) partners(ROWS, LISTED, CHOICE) {
    Rows rows = OWN;
    Gain gain{two_m, resolution};
    by_rows(rows, list, listed, Any(), [&](auto group, int row, i64 lo, i64 hi) {
        choose(group, rows, strength, within, gain, any_sign, noise, salt, out, row, lo, hi);
    });
}

__device__ inline bool mutual(const int* partner, i64 node) {
    return partner[node] >= 0 && partner[partner[node]] == node;
}

// counts: how many have a partner, how many are their partner's partner
extern "C" __global__ void count_pairs(i64 n, const int* partner, int* counts) {
    int live = 0, paired = 0;
    for (i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x; node < n; node += (i64)gridDim.x * blockDim.x) {
        live += partner[node] >= 0;
        paired += mutual(partner, node);
    }
    live = (int)Warp{0}.sum(live);
    paired = (int)Warp{0}.sum(paired);
    if (!(threadIdx.x & 31) && live) {
        atomicAdd(&counts[0], live);
        atomicAdd(&counts[1], paired);
    }
}

extern "C" __global__ void match_mutual(i64 n, const int* partner, const int* counts, double share, int* out) {
    bool follow = 0.5 * counts[1] < share * counts[0];
    for (i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x; node < n; node += (i64)gridDim.x * blockDim.x) {
        int other = partner[node], own = (int)node;
        if (other >= 0) {
            if (partner[other] == node) {
                own = min(own, other);
            } else if (follow && mutual(partner, other)) {
                own = min(other, partner[other]);
            }
        }
        out[node] = own;
    }
}

extern "C" __global__ void find_heads(i64 n, const int* representative, int* heads) {
    for (i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x; node < n; node += (i64)gridDim.x * blockDim.x)
        heads[node] = representative[node] == node;
}

// `ranks` counts the heads up to each node, itself included.
extern "C" __global__ void number_groups(i64 n, const int* representative, const int* ranks, int* ids) {
    for (i64 node = (i64)blockIdx.x * blockDim.x + threadIdx.x; node < n; node += (i64)gridDim.x * blockDim.x)
        ids[node] = ranks[representative[node]] - 1;
}

extern "C" __global__ void sum_by_id(i64 n, const i64* values, const int* ids, i64* out) {
    int lane = threadIdx.x & 31;
    for (i64 base = (i64)blockIdx.x * blockDim.x + threadIdx.x - lane; base < n; base += (i64)gridDim.x * blockDim.x) {
        i64 node = base + lane, value = node < n ? values[node] : 0;
        int id = node < n ? ids[node] : -1;
        // Neighbouring nodes are often of one group: a warp that has only such adds once.
        bool alike = __all_sync(ALL, id == __shfl_sync(ALL, id, 0));
        if (alike) value = Warp{lane}.sum(value);
        if (id >= 0 && (!alike || !lane)) add(&out[id], value);
    }
}

// ---- keys: (row, column, weight) of an entry, packed; sorted by a library; equal pairs summed

constexpr i64 DROPPED = 0x7fffffffffffffffLL;

extern "C" __global__ void __launch_bounds__(512, 2)
    keys(ROWS, LISTED, const int* ids, i64 groups, int bits, i64* keys) {
    Rows rows = OWN;
    by_rows(rows, list, listed, Any(), [&](auto group, int row, i64 lo, i64 hi) {
        i64 id = ids[rows.first + row];
        for (i64 entry = lo + group.lane; entry < hi; entry += group.SIZE) {
            i64 other = ids[rows.columns[entry]];
            i64 packed = bits ? weight_of(rows, entry) : 0;
            keys[entry] = id == other ? DROPPED : ((id * groups + other) << bits) | packed;
        }
    });
}

// heads: 1 where a new pair begins. counts: entries that are not dropped, and heads.
extern "C" __global__ void pair_heads(i64 m, const i64* keys, int bits, int* heads, i64* counts) {
    i64 kept = 0, pairs = 0;
    for (i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x; at < m; at += (i64)gridDim.x * blockDim.x) {
        bool valid = keys[at] != DROPPED;
        bool head = valid && (!at || keys[at] >> bits != keys[at - 1] >> bits);
        kept += valid;
        pairs += head;
        heads[at] = head;
    }
    kept = Warp{0}.sum(kept);
    pairs = Warp{0}.sum(pairs);
    if (!(threadIdx.x & 31) && kept) {
        add(&counts[0], kept);
        add(&counts[1], pairs);
    }
}

// `slot` counts the heads up to each entry. Weights come packed in the keys (bits > 0), beside them in sorted order
// (order != null: weight[order[at]]), or are all 1.
extern "C" __global__ void pair_sums(i64 m, const i64* keys, int bits, const int* slot, const Weight* weight,
                                     const i64* order, i64 groups, int* row, int* column, Weight* sums) {
    int lane = threadIdx.x & 31;
    for (i64 base = (i64)blockIdx.x * blockDim.x + threadIdx.x - lane; base < m; base += (i64)gridDim.x * blockDim.x) {
        i64 at = base + lane, own = 0;
        int here = -1;
        if (at < m && keys[at] != DROPPED) {
            i64 key = keys[at], pair = key >> bits;
            here = slot[at] - 1;
            if (!at || keys[at - 1] >> bits != pair) {
                row[here] = (int)(pair / groups);
                column[here] = (int)(pair % groups);
            }
            own = bits ? key & ((1LL << bits) - 1) : order ? (i64)weight[order[at]] : 1;
        }
        if (!sums) continue;
        // Millions of entries may be of one pair: a warp that has only such adds once.
        bool alike = __all_sync(ALL, here == __shfl_sync(ALL, here, 0));
        if (alike) own = Warp{lane}.sum(own);
        if (here < 0 || (alike && lane)) continue;
#if WEIGHT == 64
        add(&sums[here], own);
#else
        atomicAdd(&sums[here], (int)own);
#endif
    }
}

// starts of the rows first, first + 1, ... among sorted row numbers
extern "C" __global__ void row_starts(i64 entries, const int* row, int first, int count, i64* starts) {
    for (i64 own = (i64)blockIdx.x * blockDim.x + threadIdx.x; own <= count; own += (i64)gridDim.x * blockDim.x) {
        i64 low = 0, high = entries;  // the first entry that is not below
        while (low < high) {
            i64 middle = (low + high) / 2;
            if (row[middle] - first < own)
                low = middle + 1;
            else
                high = middle;
        }
        starts[own] = low;
    }
}

// counts: medium rows, long rows, longest row, largest weight
extern "C" __global__ void bin_rows(ROWS, int* medium, int* longer, i64* counts) {
    i64 largest = 0, longest = 0;
    i64 stride = (i64)gridDim.x * blockDim.x;
    for (i64 row = (i64)blockIdx.x * blockDim.x + threadIdx.x; row < count; row += stride) {
        i64 length = starts[row + 1] - starts[row];
        longest = max(longest, length);
        if (length > LONG_ROW)
            longer[atomicAdd((u64*)&counts[1], 1ULL)] = (int)row;
        else if (length > SHORT_ROW)
            medium[atomicAdd((u64*)&counts[0], 1ULL)] = (int)row;
    }
#if WEIGHT
    for (i64 at = (i64)blockIdx.x * blockDim.x + threadIdx.x; at < starts[count]; at += stride)
        largest = max(largest, (i64)weights[at]);
#endif
    for (int step = 16; step; step >>= 1) {
        longest = max(longest, __shfl_xor_sync(ALL, longest, step));
        largest = max(largest, __shfl_xor_sync(ALL, largest, step));
    }
    if (!(threadIdx.x & 31)) {
        atomicMax(&counts[2], longest);
        atomicMax(&counts[3], largest);
    }
}

// ---- connected parts, and the order of merges

extern "C" __global__ void __launch_bounds__(512, 2) spread(ROWS, LISTED, const int* labels, int* roots) {
    Rows rows = OWN;
    by_rows(rows, list, listed, Any(), [&](auto group, int row, i64 lo, i64 hi) {
        int node = rows.first + row, label = labels[node];
        for (i64 entry = lo + group.lane; entry < hi; entry += group.SIZE) {
            int other = rows.columns[entry];
            if (labels[other] != label) continue;
            int mine = roots[node], its = roots[other];
            int low = min(mine, its), high = max(mine, its);
            if (low == high) continue;
            atomicMin(&roots[high], low);  // a root may be stale; what it was lowered to by others stays lower
            atomicMin(&roots[node], low);
            atomicMin(&roots[other], low);
        }
    });
}

extern "C" __global__ void __launch_bounds__(512, 3) before(ROWS, LISTED, const int* ids, const i64* order, i64* out) {
    Rows rows = OWN;
    by_rows(rows, list, listed, Any(), [&](auto group, int row, i64 lo, i64 hi) {
        int node = rows.first + row, id = ids[node];
        i64 sum = 0;
        for (i64 entry = lo + group.lane; entry < hi; entry += group.SIZE) {
            int other = rows.columns[entry];
            if (ids[other] == id && order[other] < order[node]) sum += weight_of(rows, entry);
        }
        sum = group.sum(sum);
        if (!group.lane) out[row] = sum;
    });
}
