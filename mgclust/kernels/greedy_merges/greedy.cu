// Exact greedy modularity merging, by one block that stays on the device for many merges.
//
// Compiled with -DINTEGER=1 (int64 weights and gains) or 0 (float64), and -DTHREADS for the block of `merge`.
//
// A community is a slot: a row of entries (a neighbour's slot, the weight, where the neighbour's entry for us lies) in
// a pool, and an id, the smallest of its nodes'. Merging folds the shorter row ("source") into the longer ("target"),
// which takes the smaller id; so of the neighbours' rows only the entries for the source change, and their twins say
// where those are.
//
// Each connected pair is OWNED by one of its two rows. A row's best is the best of the pairs it owns, and a merge gives
// all pairs of the merged row to it and looks at each of them. Hence a best is exact unless its partner has merged
// since, and then it is still an upper bound: the row is looked at again when it comes to the top, seldom more than
// once a merge. A tree of 32 children a node holds the best of all rows; pairs are compared by gain, then smaller first
// id, then second.
//
// One block: what it waits for is latency, four barriers and a dozen loads a merge, so nothing passes between blocks,
// and every warp works out for itself which pair is next.
//
// One file because all kernels work on one structure of rows, links and keys.
typedef long long int64;
typedef unsigned long long uint64;
typedef unsigned int uint;
#if INTEGER
typedef int64 number;
#else
typedef double number;
#endif

#define FULL 0xffffffffu
#define MAX_LEVELS 8       // 32^7 > 2^31
#define SHARED_NODES 1900   // of the tree's upper levels: 45,600 bytes
#define AHEAD (THREADS > 512 ? 1 : 4)  // entries a thread reads at a time, as far as registers allow
#define CYCLES 150000000    // after which the host gets a look: about a tenth of a second
#define OWNED 0x80000000u   // in an entry's link: the pair is this row's to look at
#define FREE -1             // column of an entry that is no more, id of a slot that is no more, a mark that is not set
#define TAKEN -2            // a mark whose entry has been added to the target's
#define NEVER 0x7fffffff

enum Status { RUNNING, DONE, NO_ROOM };

struct __align__(16) Entry {
    int column;
    uint link;  // position of the neighbour's entry for this row; OWNED
    number weight;
};
struct __align__(16) Community {
    number strength;
    int id;
    int mark;  // while a source is folded: where its entry for this community lies
};
struct __align__(16) Row {
    int start, used, capacity, live;
};
// {0, 0, 0} is no pair: every gain's image is larger.
struct __align__(16) Key {
    uint64 gain;
    uint first, second;  // ids, first < second
};
struct Best {
    Key key;
    int2 slots;  // the owner of the pair, and the other
};
struct State {
    int merges, end, status;
};

// Order-preserving images of gains.
__device__ __forceinline__ uint64 to_key(number gain) {
#if INTEGER
    return (uint64)gain ^ 1ull << 63;
#else
    const uint64 bits = __double_as_longlong(gain);
    return bits >> 63 ? ~bits : bits | 1ull << 63;
#endif
}
__device__ __forceinline__ number to_gain(uint64 key) {
#if INTEGER
    return (int64)(key ^ 1ull << 63);
#else
    return __longlong_as_double(key >> 63 ? key ^ 1ull << 63 : ~key);
#endif
}

// As the CPU rounds: no contraction.
__device__ __forceinline__ number gain_of(number two_m, number weight, number a, number b, double resolution) {
#if INTEGER
    return two_m * weight - a * b;
#else
    return __dsub_rn(__dmul_rn(two_m, weight), __dmul_rn(resolution, __dmul_rn(a, b)));
#endif
}

__device__ __forceinline__ Best nothing() { return {{0, 0, 0}, {FREE, FREE}}; }

__device__ __forceinline__ void consider(Best& best, number gain, int own, int other, int2 slots) {
    const Key key = {to_key(gain), (uint)min(own, other), (uint)max(own, other)};
    const Key& old = best.key;
    if (key.gain > old.gain ||
        (key.gain == old.gain && (key.first < old.first || (key.first == old.first && key.second < old.second))))
        best = {key, slots};
}

// The best of a warp's, in every lane. All 32 lanes call it.
__device__ __forceinline__ Best best_of_warp(Best best) {
    const uint high = best.key.gain >> 32, low = (uint)best.key.gain;
    bool top = high == __reduce_max_sync(FULL, high);
    top = low == __reduce_max_sync(FULL, top ? low : 0u) && top;
    uint lanes = __ballot_sync(FULL, top);
    if (__popc(lanes) > 1) {
        top = best.key.first == __reduce_min_sync(FULL, top ? best.key.first : ~0u) && top;
        top = best.key.second == __reduce_min_sync(FULL, top ? best.key.second : ~0u) && top;
        lanes = __ballot_sync(FULL, top);
    }
    const int lane = __ffs(lanes) - 1;
    best.key.gain = __shfl_sync(FULL, best.key.gain, lane);
    best.key.first = __shfl_sync(FULL, best.key.first, lane);
    best.key.second = __shfl_sync(FULL, best.key.second, lane);
    best.slots.x = __shfl_sync(FULL, best.slots.x, lane);
    best.slots.y = __shfl_sync(FULL, best.slots.y, lane);
    return best;
}

// ---------------------------------------------------------------------------------------------- before the first merge

// A warp a row: its entries, each with its twin (columns ascend, so a search finds it), and the best pair it owns: at
// first the lower of two nodes does.
extern "C" __global__ void prepare(const int64* __restrict__ starts, const int* __restrict__ columns,
                                   const number* __restrict__ weights, const number* __restrict__ strength, int n,
                                   number two_m, double resolution, Entry* entries, Community* communities, Row* rows,
                                   int2* times, Key* keys, int2* pairs) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= n) return;
    const int start = (int)starts[row], stop = (int)starts[row + 1];
    const number own = strength[row];
    Best best = nothing();
    for (int e = start + lane; e < stop; e += 32) {
        const int column = columns[e];
        int low = (int)starts[column], high = (int)starts[column + 1] - 1;
        while (low < high) {
            const int middle = low + (high - low) / 2;
            if (columns[middle] < row) low = middle + 1;
            else high = middle;
        }
        const bool owned = row < column;
        entries[e] = {column, (uint)low | (owned ? OWNED : 0u), weights[e]};
        if (owned)
            consider(best, gain_of(two_m, weights[e], own, strength[column], resolution), row, column, {row, column});
    }
    best = best_of_warp(best);
    if (lane) return;
    communities[row] = {own, row, FREE};
    rows[row] = {start, stop - start, stop - start, stop - start};
    times[row] = {0, 0};
    keys[row] = best.key;
    pairs[row] = best.slots;
}

// A warp a node of one level of the tree: the best of its children.
extern "C" __global__ void best_of_children(Key* keys, int2* pairs, int children, int n_children, int parents,
                                            int n_parents) {
    const int node = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (node >= n_parents) return;
    const int child = node * 32 + lane;
    Best best = nothing();
    if (child < n_children) best = {keys[children + child], pairs[children + child]};
    best = best_of_warp(best);
    if (lane) return;
    keys[parents + node] = best.key;
    pairs[parents + node] = best.slots;
}

// ------------------------------------------------------------------------------------------------------------ the tree

struct Tree {
    Key* keys;  // of all levels, leaves (one a slot) first
    int2* pairs;
    Key* shared_keys;  // of the nodes from `shared_from` on: the upper levels, for as long as the kernel runs
    int2* shared_pairs;
    const int* offsets;  // of each level; the last but one entry is the root's, the last the number of nodes
    int root_level, shared_from;

    __device__ __forceinline__ Best get(int node) const {
        if (node >= shared_from) return {shared_keys[node - shared_from], shared_pairs[node - shared_from]};
        return {keys[node], pairs[node]};
    }
    __device__ __forceinline__ void set(int node, const Best& best) const {
        if (node >= shared_from) {
            shared_keys[node - shared_from] = best.key;
            shared_pairs[node - shared_from] = best.slots;
        } else {
            keys[node] = best.key;
            pairs[node] = best.slots;
        }
    }

    // The best of the 32 nodes of a level around node a, in which a's and b's values are new. Writes a's down.
    __device__ __forceinline__ Best group(int level, int a, const Best& new_a, int b, const Best& new_b) const {
        const int lane = threadIdx.x & 31, node = (a & ~31) + lane;
        const int offset = offsets[level];
        Best best = nothing();
        if (node == a) {
            best = new_a;
            set(offset + node, best);
        } else if (node == b) best = new_b;
        else if (node < offsets[level + 1] - offset) best = get(offset + node);
        return best_of_warp(best);
    }

    // Two leaves' values, and all that follows from them up to the root. One warp, whole. a == b: one leaf's.
    __device__ __forceinline__ void update(int a, Best new_a, int b, Best new_b) const {
        for (int level = 0; level < root_level; ++level) {
            const Best above = group(level, a, new_a, b, new_b);
            if (a != b) {
                const Best other = group(level, b, new_b, a, new_a);
                new_b = other;
            }
            new_a = above;
            a >>= 5;
            b >>= 5;
        }
        if ((threadIdx.x & 31) == 0) set(offsets[root_level], new_a);
    }
};

// ---------------------------------------------------------------------------------------------------------- the merges

extern "C" __global__ void __launch_bounds__(THREADS, 1)
merge(Entry* entries, int pool, Community* communities, Row* rows,
      int2* times,  // x: merges done when the row's best was found; y: when it was merged, NEVER once it is no more
      Key* keys, int2* pairs, const int* __restrict__ level_offsets, int root_level, int shared_from, number two_m,
      double resolution, int2* merges, number* gains, State* state) {
    __shared__ Key shared_keys[SHARED_NODES];
    __shared__ int2 shared_pairs[SHARED_NODES];
    __shared__ Key partial_keys[32];
    __shared__ int2 partial_pairs[32];
    __shared__ int offsets[MAX_LEVELS + 1];
    __shared__ int matched, appended, moved, late;

    const int thread = threadIdx.x, lane = thread & 31, warp = thread / 32;
    const int64 began = clock64();
    if (thread < root_level + 2) offsets[thread] = level_offsets[thread];
    if (thread < 32) {
        partial_keys[thread] = {0, 0, 0};
        partial_pairs[thread] = {FREE, FREE};
    }
    if (thread == 0) late = 0;
    const int nodes = level_offsets[root_level + 1];
    for (int node = shared_from + thread; node < nodes; node += THREADS) {
        shared_keys[node - shared_from] = keys[node];
        shared_pairs[node - shared_from] = pairs[node];
    }
    const Tree tree = {keys, pairs, shared_keys, shared_pairs, offsets, root_level, shared_from};
    int done = state->merges, end = state->end, status = RUNNING;
    __syncthreads();

    // The best of what a warp's threads found, for warp 0 to choose from after a barrier; not `busy`: nothing.
    const auto leave_partial = [&](const Best& mine, bool busy) {
        const Best best = busy ? best_of_warp(mine) : nothing();
        if (lane == 0) {
            partial_keys[warp] = best.key;
            partial_pairs[warp] = best.slots;
        }
    };
    const auto best_of_partials = [&] { return best_of_warp({partial_keys[lane], partial_pairs[lane]}); };

    // `late` is written between barriers, so all threads agree on it, as on every value below that decides a branch.
    while (!late) {
        const Best top = tree.get(offsets[root_level]);
        if (!top.key.gain) {
            status = DONE;
            break;
        }
        const int owner = top.slots.x, partner = top.slots.y;
        const Row owner_row = rows[owner], partner_row = rows[partner];
        const number owner_strength = communities[owner].strength, partner_strength = communities[partner].strength;
        if (times[partner].y > times[owner].x) {  // the partner has merged since, and the pair, if any, is now its own
            const int id = communities[owner].id;
            Best best = nothing();
            for (int e = thread; e < owner_row.used; e += THREADS) {
                const Entry entry = entries[owner_row.start + e];
                if (entry.column < 0 || !(entry.link & OWNED)) continue;
                const Community other = communities[entry.column];
                const number gain = gain_of(two_m, entry.weight, owner_strength, other.strength, resolution);
                consider(best, gain, id, other.id, {owner, entry.column});
            }
            leave_partial(best, warp * 32 < owner_row.used);
            __syncthreads();
            if (warp == 0) {
                best = best_of_partials();
                tree.update(owner, best, owner, best);
                if (lane == 0) {
                    times[owner].x = done;
                    late = clock64() - began > CYCLES;
                }
            }
            __syncthreads();
            continue;
        }

        const bool owner_shorter = owner_row.live < partner_row.live;
        const int source = owner_shorter ? owner : partner, target = owner_shorter ? partner : owner;
        const Row from = owner_shorter ? owner_row : partner_row, to = owner_shorter ? partner_row : owner_row;
        const number strength = owner_strength + partner_strength;
        const int id = (int)top.key.first;
        const bool room = from.live + to.live <= pool - end;  // enough for the merged row, wherever it goes
        if (!room && from.live - 1 > to.capacity - to.used) {
            status = NO_ROOM;
            break;
        }

        // 1. The source's neighbours are marked.
        if (thread == 0) matched = appended = moved = 0;
        for (int e = from.start + thread; e < from.start + from.used; e += THREADS) {
            const int column = entries[e].column;
            if (column >= 0 && column != target) communities[column].mark = e;
        }
        __syncthreads();

        // 2. The target's: weights of common neighbours are added up, all pairs become its own and are looked at.
        Best best = nothing();
        int common = 0;
        for (int first = thread; first < to.used; first += AHEAD * THREADS) {
            // A target may have tens of thousands of entries: several a thread are on their way at a time.
            Entry ahead[AHEAD];
            Community others[AHEAD];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                ahead[k].column = FREE;
                if (first + k * THREADS < to.used) ahead[k] = entries[to.start + first + k * THREADS];
            }
#pragma unroll
            for (int k = 0; k < AHEAD; ++k)
                if (ahead[k].column >= 0) others[k] = communities[ahead[k].column];
#pragma unroll
            for (int k = 0; k < AHEAD; ++k) {
                Entry& entry = ahead[k];
                const Community& other = others[k];
                if (entry.column < 0) continue;
                const int e = to.start + first + k * THREADS;
                if (entry.column == source) {
                    entries[e].column = FREE;
                    continue;
                }
                const uint twin = entry.link & ~OWNED;
                if (!(entry.link & OWNED)) {
                    entries[e].link = twin | OWNED;
                    entries[twin].link = (uint)e;
                }
                if (other.mark >= 0) {
                    const Entry added = entries[other.mark];
                    entry.weight += added.weight;
                    entries[e].weight = entry.weight;
                    entries[twin].weight = entry.weight;
                    entries[added.link & ~OWNED].column = FREE;
                    rows[entry.column].live -= 1;
                    communities[entry.column].mark = TAKEN;
                    ++common;
                }
                const number gain = gain_of(two_m, entry.weight, strength, other.strength, resolution);
                consider(best, gain, id, other.id, {target, entry.column});
            }
        }
        if (warp * 32 < to.used) {
            common = __reduce_add_sync(FULL, common);
            if (lane == 0 && common) atomicAdd(&matched, common);
        }
        __syncthreads();

        // 3. The source's other neighbours become the target's, whose row moves to the pool's end if it has too little
        // room, or much more than it needs.
        const int kept = to.live - 1, live = kept + from.live - 1 - matched;
        const bool moves = room && (live - kept > to.capacity - to.used || to.used > 2 * live + 64);
        Row merged = {to.start, to.used + live - kept, to.capacity, live};
        if (moves) {
            merged = {end, live, min(live + live / 2 + 4, pool - end), live};
            for (int first = warp * 32; first < to.used; first += THREADS) {
                Entry entry = {FREE, 0, 0};
                if (first + lane < to.used) entry = entries[to.start + first + lane];
                const bool stays = entry.column >= 0;
                const uint lanes = __ballot_sync(FULL, stays);
                int place = 0;
                if (lane == 0) place = atomicAdd(&moved, __popc(lanes));
                place = end + __shfl_sync(FULL, place, 0) + __popc(lanes & ((1u << lane) - 1));
                if (stays) {
                    entries[place] = entry;
                    entries[entry.link & ~OWNED].link = (uint)place;
                }
            }
        }
        const int behind = moves ? end + kept : to.start + to.used;
        for (int first = warp * 32; first < from.used; first += THREADS) {
            Entry entry = {FREE, 0, 0};
            if (first + lane < from.used) entry = entries[from.start + first + lane];
            bool joins = false;
            Community other;
            if (entry.column >= 0 && entry.column != target) {
                other = communities[entry.column];
                joins = other.mark != TAKEN;
                communities[entry.column].mark = FREE;
            }
            const uint lanes = __ballot_sync(FULL, joins);
            int place = 0;
            if (lane == 0 && lanes) place = atomicAdd(&appended, __popc(lanes));
            place = behind + __shfl_sync(FULL, place, 0) + __popc(lanes & ((1u << lane) - 1));
            if (joins) {
                const uint twin = entry.link & ~OWNED;
                entries[place] = {entry.column, twin | OWNED, entry.weight};
                entries[twin].column = target;
                entries[twin].link = (uint)place;
                const number gain = gain_of(two_m, entry.weight, strength, other.strength, resolution);
                consider(best, gain, id, other.id, {target, entry.column});
            }
        }
        leave_partial(best, warp * 32 < max(to.used, from.used));
        if (moves) end += merged.capacity;
        __syncthreads();

        // 4. What is now true of the two.
        if (warp == 0) {
            best = best_of_partials();
            if (lane == 0) {
                merges[done] = {id, (int)top.key.second};
                gains[done] = to_gain(top.key.gain);
                communities[target] = {strength, id, FREE};
                communities[source] = {0, FREE, FREE};
                rows[target] = merged;
                rows[source] = {0, 0, 0, 0};
                times[target] = {done + 1, done + 1};
                times[source] = {done + 1, NEVER};
                late = clock64() - began > CYCLES;
            }
            tree.update(target, best, source, nothing());
        }
        ++done;
        __syncthreads();
    }

    __syncthreads();
    for (int node = shared_from + thread; node < nodes; node += THREADS) {
        keys[node] = shared_keys[node - shared_from];
        pairs[node] = shared_pairs[node - shared_from];
    }
    if (thread == 0) *state = {done, end, status};
}

// -------------------------------------------------------------------------------------- when the pool has no room left

// A warp a row: its entries without gaps to another pool, and where each went.
extern "C" __global__ void gather(const Entry* __restrict__ entries, Row* rows, const int64* __restrict__ new_starts,
                                  int n, Entry* out, int* places) {
    const int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32, lane = threadIdx.x & 31;
    if (row >= n) return;
    const Row old = rows[row];
    int place = (int)new_starts[row];
    for (int first = 0; first < old.used; first += 32) {
        Entry entry = {FREE, 0, 0};
        if (first + lane < old.used) entry = entries[old.start + first + lane];
        const bool stays = entry.column >= 0;
        const uint lanes = __ballot_sync(FULL, stays);
        if (stays) {
            const int own = place + __popc(lanes & ((1u << lane) - 1));
            out[own] = entry;
            places[old.start + first + lane] = own;
        }
        place += __popc(lanes);
    }
    __syncwarp();  // all have read the row
    if (lane == 0) rows[row] = {(int)new_starts[row], old.live, old.live, old.live};
}

// Twins where they now are. One thread an entry.
extern "C" __global__ void relink(Entry* entries, const int* __restrict__ places, int count) {
    const int e = blockIdx.x * blockDim.x + threadIdx.x;
    if (e >= count) return;
    const uint link = entries[e].link;
    entries[e].link = (uint)places[link & ~OWNED] | (link & OWNED);
}
