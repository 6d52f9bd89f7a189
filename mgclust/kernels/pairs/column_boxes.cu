// Searches among columns in boxes (column_boxes.py): one warp a row, one lane a box of a panel, or a column of one.
//
// A panel is 32 wide, so that a warp tests a row against 32 boxes or 32 columns with one coalesced read a feature. What
// is open at each level is a 32-bit mask. Rows come in an order in which neighbours are near each other: the warps of a
// block read the same panels, from the nearest cache. Bounds are chains of the same roundings as the distances, so the
// answers have the bits of the all-pairs kernels.
//
// Compiled with -DREAL, -DNORM and -DDIM.
#include "pairs/pairs.cuh"

#define WIDTH 32
#define LEVELS 7  // 32^7 columns and more do not exist
#define FULL 0xffffffffu
#define WARPS 4
#define NO_COLUMN (1ll << 62)

struct Boxes {
    const real *panels, *low, *high;
    const int* starts;  // first panel of boxes of each level
    int levels;
};

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// The row of this warp: q of `order`, or q itself where there is no order; -1: none.
__device__ __forceinline__ int warp_row(const int64* order, int m) {
    const int q = blockIdx.x * WARPS + (threadIdx.x >> 5);
    return q >= m ? -1 : order ? (int)order[q] : q;
}

__device__ __forceinline__ void read_row(const real* __restrict__ x, int row, real (&own)[DIM]) {
#pragma unroll
    for (int f = 0; f < DIM; ++f) own[f] = x[(int64)row * DIM + f];
}

// Lower bound of the reduced distances between a row and this lane's box of a panel; infinity where there is no box.
__device__ __forceinline__ real to_box(const real (&own)[DIM], const Boxes& boxes, int panel) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = ((int64)panel * DIM + f) * WIDTH + lane_id();
        const real below = boxes.low[at] - own[f], above = own[f] - boxes.high[at];
        const real gap = below > above ? below : above;
        s = accumulate(gap > 0 ? gap : (real)0, (real)0, s);
    }
    return s;
}

// Reduced distance of a row to this lane's column of a panel; infinity where there is no column.
__device__ __forceinline__ real to_column(const real (&own)[DIM], const Boxes& boxes, int panel) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f)
        s = accumulate(own[f], boxes.panels[((int64)panel * DIM + f) * WIDTH + lane_id()], s);
    return s;
}

// Calls visit(panel, s) for every panel of columns whose bound is below the limit, s being this lane's reduced distance,
// until it returns true. Returns how many panels, of boxes and of columns, were looked at.
template <class Visit>
__device__ __forceinline__ int search(const real (&own)[DIM], const Boxes& boxes, real limit, Visit visit) {
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int level = boxes.levels - 1, at = 0, seen = 0;
    while (true) {
        unsigned int open = __ballot_sync(FULL, to_box(own, boxes, boxes.starts[level] + at) < limit);
        ++seen;
        if (level == 0) {
            for (; open; open &= open - 1) {
                const int leaf = at * WIDTH + __ffs(open) - 1;
                ++seen;
                if (visit(leaf, to_column(own, boxes, leaf))) return seen;
            }
            level = 1;
        } else {
            pending[level] = open;
            panel[level] = at;
        }
        while (level < boxes.levels && !pending[level]) ++level;
        if (level >= boxes.levels) return seen;
        at = panel[level] * WIDTH + __ffs(pending[level]) - 1;
        pending[level] &= pending[level] - 1;
        --level;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_count(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
          const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
          real threshold, int64* out, uint64* visited) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    real own[DIM];
    read_row(x, row, own);
    int within = 0;
    const int seen = search(own, Boxes{panels, low, high, starts, levels}, threshold, [&](int, real s) {
        within += __popc(__ballot_sync(FULL, s < threshold));
        return false;
    });
    if (lane_id() == 0) {
        out[row] += within;
        if (visited) atomicAdd(visited, (uint64)seen);
    }
}

// labels: by position.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_border(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
           const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
           real threshold, const int* __restrict__ own_labels, const int* __restrict__ labels, unsigned char* out) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    real own[DIM];
    read_row(x, row, own);
    const int label = own_labels[row];
    search(own, Boxes{panels, low, high, starts, levels}, threshold, [&](int panel, real s) {
        const bool found = __any_sync(FULL, s < threshold && labels[(int64)panel * WIDTH + lane_id()] != label);
        if (found && lane_id() == 0) out[row] = 1;
        return found;
    });
}

// Marks the columns that are near a row, not the rows; every writer writes the same.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_mark(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
         const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
         real threshold, const int64* __restrict__ index, unsigned char* out) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    real own[DIM];
    read_row(x, row, own);
    search(own, Boxes{panels, low, high, starts, levels}, threshold, [&](int panel, real s) {
        if (s < threshold) out[index[(int64)panel * WIDTH + lane_id()]] = 1;
        return false;
    });
}

__device__ __forceinline__ void sort_two(int* list, int i, int j, int n) {
    if (j <= i || j >= n) return;
    const int a = list[i], b = list[j];
    if (a > b) { list[i] = b; list[j] = a; }
}

// Sorts n numbers by one warp: up to 32 in registers, more in place by a bitonic network whose comparisons all ascend, so
// that what lacks to a power of two may be thought at the end.
__device__ __forceinline__ void sort_list(int* list, int n) {
    const int lane = lane_id();
    __syncwarp();
    if (n <= WIDTH) {
        int own = lane < n ? list[lane] : 0x7fffffff;
        for (int size = 2; size <= WIDTH; size *= 2)
            for (int step = size / 2; step; step /= 2) {
                const int other = __shfl_xor_sync(FULL, own, step);
                const bool lower = ((lane & step) == 0) == ((lane & size) == 0);
                own = lower ? min(own, other) : max(own, other);
            }
        if (lane < n) list[lane] = own;
        return;
    }
    for (int64 size = 2; size < 2 * (int64)n; size *= 2) {
        for (int i = lane; i < n; i += WIDTH) sort_two(list, i, (int)(i ^ (size - 1)), n);
        __syncwarp();
        for (int64 step = size / 4; step; step /= 2) {
            for (int i = lane; i < n; i += WIDTH) sort_two(list, i, (int)(i ^ step), n);
            __syncwarp();
        }
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_write(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
          const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
          real threshold, const int64* __restrict__ index, const int64* __restrict__ firsts, int* out) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    real own[DIM];
    read_row(x, row, own);
    int* list = out + firsts[row];
    int count = 0;
    search(own, Boxes{panels, low, high, starts, levels}, threshold, [&](int panel, real s) {
        const unsigned int mask = __ballot_sync(FULL, s < threshold);
        if (s < threshold)
            list[count + __popc(mask & ((1u << lane_id()) - 1))] = (int)index[(int64)panel * WIDTH + lane_id()];
        count += __popc(mask);
        return false;
    });
    sort_list(list, count);
}

__device__ __forceinline__ real warp_least(real v) {
    for (int step = 16; step; step >>= 1) {
        const real other = __shfl_xor_sync(FULL, v, step);
        v = other < v ? other : v;
    }
    return v;
}

// Calls visit(panel, s) for panels of columns, nearest boxes first, s being this lane's reduced distance, while there are
// boxes of which open(bound, place) says that they are worth a look; `place` is that of the box among all. Returns how
// many panels, of boxes and of columns, were looked at.
template <class Open, class Visit>
__device__ __forceinline__ int nearest_first(const real (&own)[DIM], const Boxes& boxes, Open open, Visit visit) {
    const int lane = lane_id();
    real bounds[LEVELS];  // of this lane
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int level = boxes.levels - 1, seen = 0;
    panel[level] = 0;
    bool enter = true;
    while (level < boxes.levels) {
        const int at = boxes.starts[level] + panel[level];
        if (enter) {
            enter = false;
            ++seen;
            bounds[level] = to_box(own, boxes, at);
            pending[level] = FULL;
        }
        const bool is_open = (pending[level] >> lane & 1) && open(bounds[level], (int64)at * WIDTH + lane);
        pending[level] = __ballot_sync(FULL, is_open);
        if (!pending[level]) { ++level; continue; }
        const real least = warp_least(is_open ? bounds[level] : infinity());
        const int chosen = __ffs(__ballot_sync(FULL, is_open && bounds[level] == least)) - 1;
        pending[level] &= ~(1u << chosen);
        const int child = panel[level] * WIDTH + chosen;
        if (level) {
            --level;
            panel[level] = child;
            enter = true;
            continue;
        }
        ++seen;
        visit(child, to_column(own, boxes, child));
    }
    return seen;
}

// The lexicographic minimum of (s, number) of the columns, nearest boxes first, where it is less than the row's best so
// far; that of an equal s has a lower number.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_nearest(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
            const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
            const int64* __restrict__ index, int64 y_start, real* best, int64* best_index, uint64* visited) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    const Boxes boxes{panels, low, high, starts, levels};
    const int lane = lane_id();
    real own[DIM], near = best[row];
    read_row(x, row, own);
    int found = -1;
    // Of a box that is as near as the best, a column counts if it has a lower number than one of this call.
    const auto open = [&](real bound, int64) { return bound < near || (bound == near && found >= 0); };
    const int seen = nearest_first(own, boxes, open, [&](int child, real s) {
        if (!__any_sync(FULL, s < near || (s == near && found >= 0))) return;
        const real nearest = warp_least(s);
        const unsigned int number = __reduce_min_sync(
            FULL, s == nearest ? (unsigned int)index[(int64)child * WIDTH + lane] : 0xffffffffu);
        if (nearest < near || (int)number < found) {
            near = nearest;
            found = (int)number;
        }
    });
    if (lane) return;
    if (found >= 0) {
        best[row] = near;
        best_index[row] = y_start + found;
    }
    if (visited) atomicAdd(visited, (uint64)seen);
}

// Sorts a power of two of (value, number) by one warp, in shared memory.
__device__ __forceinline__ void sort_pairs(real* values, int64* numbers, int size) {
    for (int span = 2; span <= size; span <<= 1)
        for (int step = span >> 1; step; step >>= 1) {
            __syncwarp();
            for (int i = lane_id(); i < size / 2; i += WIDTH) {
                const int a = 2 * i - (i & (step - 1)), b = a + step;
                const real s = values[a], t = values[b];
                const int64 p = numbers[a], q = numbers[b];
                if ((t < s || (t == s && q < p)) == ((a & span) == 0)) {
                    values[a] = t; values[b] = s;
                    numbers[a] = q; numbers[b] = p;
                }
            }
        }
    __syncwarp();
}

// The k nearest by (s, number) of what is known and of the columns, nearest boxes first. `least` has the lowest number
// below each box: of boxes that are as near as the last of the list, those that hold no lower one are skipped. A warp has
// `room` pairs in shared memory, a power of two of at least k + 32: the list, and behind it the finds of a panel.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_neighbors(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
              const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
              const int64* __restrict__ index, const int64* __restrict__ least, int64 y_start, int k, int room,
              const int64* __restrict__ leaves_out, real* near, int64* near_index, uint64* visited) {
    extern __shared__ int64 shared[];
    const int row = warp_row(order, m), lane = lane_id(), warp = threadIdx.x >> 5;
    if (row < 0) return;
    const Boxes boxes{panels, low, high, starts, levels};
    int64* numbers = shared + warp * room;
    real* values = reinterpret_cast<real*>(shared + WARPS * room) + warp * room;
    for (int i = lane; i < k; i += WIDTH) {
        const int64 known = near_index[(int64)row * k + i];
        values[i] = known < 0 ? infinity() : near[(int64)row * k + i];
        numbers[i] = known < 0 ? NO_COLUMN : known;
    }
    __syncwarp();
    real own[DIM], limit = values[k - 1];
    read_row(x, row, own);
    int64 last = numbers[k - 1];
    const int64 left_out = leaves_out[row];
    const auto open = [&](real bound, int64 place) {
        return bound < limit || (bound == limit && y_start + least[place] < last);
    };
    const int seen = nearest_first(own, boxes, open, [&](int child, real s) {
        const int64 number = y_start + index[(int64)child * WIDTH + lane];
        const bool found = s < infinity() && number != left_out && (s < limit || (s == limit && number < last));
        const unsigned int mask = __ballot_sync(FULL, found);
        if (!mask) return;
        const int count = k + __popc(mask);
        if (found) {
            const int place = k + __popc(mask & ((1u << lane) - 1));
            values[place] = s;
            numbers[place] = number;
        }
        int size = WIDTH;
        while (size < count) size <<= 1;
        for (int i = count + lane; i < size; i += WIDTH) { values[i] = infinity(); numbers[i] = NO_COLUMN; }
        sort_pairs(values, numbers, size);
        limit = values[k - 1];
        last = numbers[k - 1];
    });
    for (int i = lane; i < k; i += WIDTH) {
        near[(int64)row * k + i] = values[i];
        near_index[(int64)row * k + i] = numbers[i] == NO_COLUMN ? -1 : numbers[i];
    }
    if (visited && lane == 0) atomicAdd(visited, (uint64)seen);
}

// codes[i]: the whole numbers (x - low) scale of row i, their bits interleaved. place: low and scale of each feature.
extern "C" __global__ void __launch_bounds__(256)
curve(const real* x, int64 n, int bits, const double* place, int64* codes) {
    const int64 i = (int64)blockIdx.x * 256 + threadIdx.x;
    if (i >= n) return;
    int64 code = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 step = (int64)(((double)x[i * DIM + f] - place[f]) * place[DIM + f]);
        for (int bit = 0; bit < bits; ++bit) code |= (step >> bit & 1) << (bit * DIM + f);
    }
    codes[i] = code;
}
