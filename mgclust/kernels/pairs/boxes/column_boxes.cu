// Searches among columns in boxes (column_boxes.py): one warp a row, or a panel of rows; one lane a box, or a column.
//
// A panel is 32 wide, so that a warp tests a row against 32 boxes or 32 columns with one coalesced read a feature. What
// is open at each level is a 32-bit mask, the path down a short stack of them. Rows come in an order in which
// neighbours are near each other: the warps of a block read the same panels, from the nearest cache. Bounds are chains of the same roundings as the distances, so the
// answers have the bits of the all-pairs kernels.
//
// Compiled with -DREAL, -DNORM and -DDIM. One file because all searches descend by the same two templates.
#include "pairs/pairs.cuh"

#define WIDTH 32
#define LEVELS 7  // 32^7 columns and more do not exist
#define FULL 0xffffffffu
#define WARPS 4
#define NO_COLUMN (1ll << 62)
#define NONE 0x7fffffff  // above every number of a column in one call

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

// Place of this lane's end of a feature's interval, in `low` and `high`, and of its column in `panels`.
__device__ __forceinline__ int64 place_of(int panel, int f) { return ((int64)panel * DIM + f) * WIDTH + lane_id(); }

// Lower bound of the reduced distances between the box from a to b and this lane's box of a panel; infinity where there
// is no box.
__device__ __forceinline__ real nearest_of(const real (&a)[DIM], const real (&b)[DIM], const Boxes& boxes, int panel) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = place_of(panel, f);
        const real below = boxes.low[at] - b[f], above = a[f] - boxes.high[at];
        const real gap = below > above ? below : above;
        s = accumulate(gap > 0 ? gap : (real)0, (real)0, s);
    }
    return s;
}

__device__ __forceinline__ real to_box(const real (&own)[DIM], const Boxes& boxes, int panel) {
    return nearest_of(own, own, boxes, panel);
}

// Upper bound, likewise.
__device__ __forceinline__ real farthest_of(const real (&a)[DIM], const real (&b)[DIM], const Boxes& boxes, int panel) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = place_of(panel, f);
        s = accumulate(fmax(boxes.high[at] - a[f], b[f] - boxes.low[at]), (real)0, s);
    }
    return s;
}

// Columns below this lane's box of a panel, of so many; every box is full but the last one of all.
__device__ __forceinline__ int64 columns_of(int64 panel, int level, int64 columns) {
    const int64 size = (int64)WIDTH << (5 * level);
    const int64 left = columns - (panel * WIDTH + lane_id()) * size;
    return left < 0 ? 0 : left < size ? left : size;
}

// Reduced distance of a row to this lane's column of a panel; infinity where there is no column.
__device__ __forceinline__ real to_column(const real (&own)[DIM], const Boxes& boxes, int panel) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) s = accumulate(own[f], boxes.panels[place_of(panel, f)], s);
    return s;
}

// Goes down from the top. Calls open(level, at) for panel `at` of the boxes of a level: whether this lane's is opened;
// and visit(panel) for panels of columns, until it returns true. Returns how many panels it called them for.
template <class Open, class Visit>
__device__ __forceinline__ int descend(const Boxes& boxes, Open open, Visit visit) {
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int level = boxes.levels - 1, at = 0, seen = 0;
    while (true) {
        unsigned int opened = __ballot_sync(FULL, open(level, at));
        ++seen;
        if (level == 0) {
            for (; opened; opened &= opened - 1) {
                ++seen;
                if (visit(at * WIDTH + __ffs(opened) - 1)) return seen;
            }
            level = 1;
        } else {
            pending[level] = opened;
            panel[level] = at;
        }
        while (level < boxes.levels && !pending[level]) ++level;
        if (level >= boxes.levels) return seen;
        at = panel[level] * WIDTH + __ffs(pending[level]) - 1;
        pending[level] &= pending[level] - 1;
        --level;
    }
}

// Calls visit(panel, s) for every panel of columns whose bound is below the limit, s being this lane's reduced distance.
template <class Visit>
__device__ __forceinline__ void search(const real (&own)[DIM], const Boxes& boxes, real limit, Visit visit) {
    descend(
        boxes, [&](int level, int at) { return to_box(own, boxes, boxes.starts[level] + at) < limit; },
        [&](int panel) {
            visit(panel, to_column(own, boxes, panel));
            return false;
        });
}

__device__ __forceinline__ int64 warp_sum(int64 v) {
    for (int step = 16; step; step >>= 1) v += __shfl_xor_sync(FULL, v, step);
    return v;
}

// Boxes that lie within the threshold are not opened; `visited` counts their panels as looked at.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_count(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
          const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
          int columns, real threshold, int64* out, uint64* visited) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    const Boxes boxes{panels, low, high, starts, levels};
    real own[DIM];
    read_row(x, row, own);
    int64 inside = 0, within = 0;  // of this lane
    const auto open = [&](int level, int at) {
        const int panel = starts[level] + at;
        const bool near = to_box(own, boxes, panel) < threshold;
        if (!near || farthest_of(own, own, boxes, panel) >= threshold) return near;
        inside += columns_of(at, level, columns);
        return false;
    };
    const int seen = descend(boxes, open, [&](int panel) {
        within += to_column(own, boxes, panel) < threshold;
        return false;
    });
    within = warp_sum(within + inside);
    if (lane_id() == 0) out[row] += within;
    if (!visited) return;
    inside = warp_sum(inside);
    if (lane_id() == 0) atomicAdd(visited, (uint64)(seen + inside / WIDTH));
}

// labels: by position; least, minus_most: the least label, and the least of their negatives, below each box.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_border(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
           const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
           real threshold, const int* __restrict__ own_labels, const int* __restrict__ labels,
           const int* __restrict__ least, const int* __restrict__ minus_most, unsigned char* out) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    const Boxes boxes{panels, low, high, starts, levels};
    real own[DIM];
    read_row(x, row, own);
    const int label = own_labels[row];
    const auto open = [&](int level, int at) {
        const int panel = starts[level] + at;
        const int64 box = (int64)panel * WIDTH + lane_id();
        return (least[box] != label || minus_most[box] != -label) && to_box(own, boxes, panel) < threshold;
    };
    descend(boxes, open, [&](int panel) {
        const bool other = labels[(int64)panel * WIDTH + lane_id()] != label;
        const bool found = __any_sync(FULL, other && to_column(own, boxes, panel) < threshold);
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
    });
    sort_list(list, count);
}

// Least value over the warp; bits of values that are not negative sort like the values.
__device__ __forceinline__ float warp_least(float v) {
    return __uint_as_float(__reduce_min_sync(FULL, __float_as_uint(v)));
}
__device__ __forceinline__ double warp_least(double v) {
    for (int step = 16; step; step >>= 1) v = fmin(v, __shfl_xor_sync(FULL, v, step));
    return v;
}

// Calls visit(panel, s) for panels of columns, nearest boxes first, s being this lane's reduced distance, while there are
// boxes of which open(bound, place) says that they are worth a look; admit(place) is asked once, before. `place` is that
// of the box among all. Returns how many panels, of boxes and of columns, were looked at.
template <class Admit, class Open, class Visit>
__device__ __forceinline__ int nearest_first(const real (&own)[DIM], const Boxes& boxes, Admit admit, Open open,
                                             Visit visit) {
    const int lane = lane_id();
    real bounds[LEVELS];  // of this lane
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int level = boxes.levels - 1, seen = 0;
    panel[level] = 0;
    bool enter = true;
    while (level < boxes.levels) {
        const int at = boxes.starts[level] + panel[level];
        const int64 place = (int64)at * WIDTH + lane;
        if (enter) {
            ++seen;
            bounds[level] = to_box(own, boxes, at);
        }
        const bool is_open = (enter ? admit(place) : pending[level] >> lane & 1) && open(bounds[level], place);
        enter = false;
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

// The nearest column of a row so far, and its number in this call.
struct Nearest {
    real s;
    int found;

    // Whether a box may hold a nearer column, or as near a one of a lower number.
    __device__ __forceinline__ bool open(real bound, int64 place, const int64* least) const {
        return bound < s || (bound == s && found != NONE && least[place] < found);
    }

    // Takes the columns of a panel, of which this lane has one.
    __device__ __forceinline__ void compare(real own, int panel, const int64* index) {
        if (!__any_sync(FULL, own < s || (own == s && found != NONE))) return;
        const real least = warp_least(own);
        const unsigned int number =
            __reduce_min_sync(FULL, own == least ? (unsigned int)index[(int64)panel * WIDTH + lane_id()] : 0xffffffffu);
        if (least < s || (int)number < found) *this = Nearest{least, (int)number};
    }
};

// The lexicographic minimum of (s, number) of the columns, nearest boxes first, where it is less than the row's best so
// far; that of an equal s has a lower number. `least` has the lowest number below each box.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_nearest(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
            const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts, int levels,
            const int64* __restrict__ index, const int64* __restrict__ least, int64 y_start, real* best,
            int64* best_index, uint64* visited) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    Nearest nearest{best[row], NONE};
    real own[DIM];
    read_row(x, row, own);
    const Boxes boxes{panels, low, high, starts, levels};
    // Of what is as near as the best, a column counts if it has a lower number than one of this call.
    const int seen = nearest_first(
        own, boxes, [](int64) { return true; },
        [&](real bound, int64 place) { return nearest.open(bound, place, least); },
        [&](int panel, real s) { nearest.compare(s, panel, index); });
    if (lane_id()) return;
    if (nearest.found != NONE) {
        best[row] = nearest.s;
        best_index[row] = y_start + nearest.found;
    }
    if (visited) atomicAdd(visited, (uint64)seen);
}

// The same among columns of lower rank than the row's; rows are columns themselves, from the position `first` on. ranks:
// by position; least_ranks: the least below each box.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_nearest_higher(const real* __restrict__ x, const int64* __restrict__ order, int m, const real* __restrict__ panels,
                   const real* __restrict__ low, const real* __restrict__ high, const int* __restrict__ starts,
                   int levels, const int64* __restrict__ index, const int64* __restrict__ least,
                   const int* __restrict__ ranks, const int* __restrict__ least_ranks, int first, real* best,
                   int64* best_index) {
    const int row = warp_row(order, m);
    if (row < 0) return;
    Nearest nearest{infinity(), NONE};
    real own[DIM];
    read_row(x, row, own);
    const Boxes boxes{panels, low, high, starts, levels};
    const int rank = ranks[first + row];
    const auto compare = [&](int panel, real s) {
        nearest.compare(ranks[(int64)panel * WIDTH + lane_id()] < rank ? s : infinity(), panel, index);
    };
    const int near_by = (first + row) / WIDTH;  // most rows find theirs there
    compare(near_by, to_column(own, boxes, near_by));
    nearest_first(
        own, boxes, [&](int64 place) { return least_ranks[place] < rank; },
        [&](real bound, int64 place) { return nearest.open(bound, place, least); }, compare);
    if (lane_id()) return;
    best[row] = nearest.s;
    best_index[row] = nearest.found == NONE ? -1 : nearest.found;
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
    const auto all = [](int64) { return true; };
    const int seen = nearest_first(own, boxes, all, open, [&](int child, real s) {
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

// Pairs i < j of the columns by the bits of s: a warp takes one of `parts` panels, from `part` on, with what comes after it.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
box_histogram(const real* __restrict__ panels, const real* __restrict__ low, const real* __restrict__ high,
              const int* __restrict__ starts, int levels, int columns, int part, int parts, sbits first, ubits width,
              int shift, uint64* out) {
    const int own_panel = part + (blockIdx.x * WARPS + (threadIdx.x >> 5)) * parts;
    if (own_panel >= (columns + WIDTH - 1) / WIDTH) return;
    const Boxes boxes{panels, low, high, starts, levels};
    const int lane = lane_id();
    const int64 rows = min(WIDTH, columns - own_panel * WIDTH);
    real a[DIM], b[DIM], own[DIM];
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = ((int64)(own_panel / WIDTH) * DIM + f) * WIDTH + own_panel % WIDTH;
        a[f] = low[at];
        b[f] = high[at];
        own[f] = panels[place_of(own_panel, f)];  // infinity after the last column
    }
    uint64 below = 0;  // of this lane
    const auto open = [&](int level, int at) {
        const int panel = starts[level] + at;
        const int64 held = columns_of(at, level, columns);
        const int ancestor = (own_panel >> (5 * level)) - at * WIDTH;  // negative: all boxes come later
        const sbits from = Bits<real>::of(nearest_of(a, b, boxes, panel)) - first;
        const sbits to = Bits<real>::of(farthest_of(a, b, boxes, panel)) - first;
        bool opened = held && lane > ancestor;
        if (opened && to < 0) {
            below += held * rows;
            opened = false;
        }
        opened = opened && (from < 0 || (ubits)from < width);
        if (opened && from >= 0 && from >> shift == to >> shift) {  // all its pairs fall into one bin
            atomicAdd(out + 1 + (from >> shift), (uint64)(held * rows));
            opened = false;
        }
        return opened || lane == ancestor;
    };
    descend(boxes, open, [&](int panel) {
        real theirs[DIM];
#pragma unroll
        for (int f = 0; f < DIM; ++f) theirs[f] = panels[place_of(panel, f)];
        const int valid = min(WIDTH, columns - panel * WIDTH);
        unsigned int undecided = __ballot_sync(FULL, lane < rows);
        if (panel != own_panel) {  // the bracket's ends pass between most rows and the whole panel
            real gaps = 0, spans = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) {
                const int64 at = ((int64)(panel / WIDTH) * DIM + f) * WIDTH + panel % WIDTH;
                const real c = low[at], e = high[at];
                const real gap = fmax(fmax(c - own[f], own[f] - e), (real)0);
                gaps = accumulate(gap, (real)0, gaps);
                spans = accumulate(fmax(e - own[f], own[f] - c), (real)0, spans);
            }
            const sbits from = Bits<real>::of(gaps) - first;
            const bool inside = lane < rows && Bits<real>::of(spans) - first < 0;
            if (inside) below += valid;
            undecided = __ballot_sync(FULL, lane < rows && !inside && (from < 0 || (ubits)from < width));
        }
        for (; undecided; undecided &= undecided - 1) {
            const int row = __ffs(undecided) - 1;
            real s = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) s = accumulate(__shfl_sync(FULL, own[f], row), theirs[f], s);
            const sbits u = Bits<real>::of(s) - first;
            if (lane < valid && (panel != own_panel || lane > row)) {
                below += u < 0;
                if (u >= 0 && (ubits)u < width) atomicAdd(out + 1 + ((ubits)u >> shift), 1ull);
            }
        }
        return false;
    });
    add_warp_total(below, out);
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
