// Searches in a BoxTree (box_tree.py): one warp per row or per leaf, one lane per child of a node.
//
// The tree's panels are 32 wide, so a warp tests a row against 32 boxes or 32 rows with one coalesced read per
// coordinate. What is left open at each level is a 32-bit mask; the path down is a short stack. Bounds are chains of
// the same roundings as the distances (see box_tree.py), so the answers have the bits of the all-pairs kernels.
//
// Compiled with -DDIM=1|2|3 and NORM_L2.
#include "pairs/pairs.cuh"

#define WIDTH 32
#define LEVELS 8
#define FULL 0xffffffffu
#define WARPS 4
#define NO_ROW 0x7fffffff

__device__ __forceinline__ int lane_id() { return threadIdx.x & 31; }

// Least value over the warp; bits of values that are not negative sort like the values.
__device__ __forceinline__ float warp_least(float v) {
    return __uint_as_float(__reduce_min_sync(FULL, __float_as_uint(v)));
}
__device__ __forceinline__ double warp_least(double v) {
    for (int step = 16; step; step >>= 1) v = fmin(v, __shfl_xor_sync(FULL, v, step));
    return v;
}

// Lower and upper bounds of the reduced distances between the box [a_low, a_high] and this lane's child of a panel.
__device__ __forceinline__ void box_bounds(const real (&a_low)[DIM], const real (&a_high)[DIM], const real* low,
                                           const real* high, int panel, real& near, real& far) {
    near = far = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = ((int64)panel * DIM + f) * WIDTH + lane_id();
        const real b_low = low[at], b_high = high[at];
        const real gap = fmax(fmax(b_low - a_high[f], a_low[f] - b_high), (real)0);
        const real span = fmax(b_high - a_low[f], a_high[f] - b_low);
        near = fma(gap, gap, near);
        far = fma(span, span, far);
    }
}

// Reduced distance of a row to this lane's row of a leaf.
__device__ __forceinline__ real to_leaf(const real (&own)[DIM], const real* panels, int leaf) {
    real s = 0;
#pragma unroll
    for (int f = 0; f < DIM; ++f) s = accumulate(own[f], panels[((int64)leaf * DIM + f) * WIDTH + lane_id()], s);
    return s;
}

// Rows below this lane's node of a panel; every node is full but the last one of all.
__device__ __forceinline__ int64 node_rows(int64 panel, int level, int64 n) {
    const int64 size = (int64)WIDTH << (5 * level);
    const int64 left = n - (panel * WIDTH + lane_id()) * size;
    return left < 0 ? 0 : left < size ? left : size;
}

struct Nearest {
    real near = infinity();
    int found = NO_ROW;
};

// The lexicographic minimum of (s, row number) so far, over the denser rows of a leaf.
__device__ __forceinline__ void scan(const real (&own)[DIM], int own_order, const real* panels, int leaf, const int* order,
                                     const int* index, Nearest& best) {
    real s = to_leaf(own, panels, leaf);
    if (order[leaf * WIDTH + lane_id()] >= own_order || s > best.near) s = infinity();
    const real least = warp_least(s);
    if (least == infinity()) return;
    const int number = (int)__reduce_min_sync(FULL, s == least ? (unsigned int)index[leaf * WIDTH + lane_id()] : NO_ROW);
    if (least < best.near || number < best.found) best = Nearest{least, number};
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
tree_nearest(const real* rows, const real* panels, const real* low, const real* high, const int* starts, int levels,
             const int* order, const int* least_order, const int* index, const int* least_index, int start, int stop,
             real* best, int64* best_index) {
    const int row = start + blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= stop) return;
    const int lane = lane_id(), own_order = order[row];
    real own[DIM], bounds[LEVELS], unused;
#pragma unroll
    for (int f = 0; f < DIM; ++f) own[f] = rows[(int64)row * DIM + f];
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    Nearest nearest;
    scan(own, own_order, panels, row / WIDTH, order, index, nearest);  // most rows find theirs in their own leaf

    int level = levels - 1;
    bool enter = true;
    panel[level] = starts[level];
    while (level < levels) {
        if (enter) {
            enter = false;
            box_bounds(own, own, low, high, panel[level], bounds[level], unused);
            pending[level] = __ballot_sync(
                FULL, bounds[level] <= nearest.near && least_order[(int64)panel[level] * WIDTH + lane] < own_order);
        }
        const real bound = warp_least(pending[level] >> lane & 1 ? bounds[level] : infinity());
        if (!pending[level] || bound > nearest.near) { ++level; continue; }
        const int chosen = __ffs(__ballot_sync(FULL, (pending[level] >> lane & 1) && bounds[level] == bound)) - 1;
        pending[level] &= ~(1u << chosen);
        const int node = panel[level] * WIDTH + chosen;
        if (bound == nearest.near && least_index[node] >= nearest.found) continue;
        const int child = node - starts[level] * WIDTH;
        if (level == 0) {
            scan(own, own_order, panels, child, order, index, nearest);
        } else {
            --level;
            panel[level] = starts[level] + child;
            enter = true;
        }
    }
    if (lane == 0) {
        best[row - start] = nearest.near;
        best_index[row - start] = nearest.found == NO_ROW ? -1 : nearest.found;
    }
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
tree_count(const real* rows, const real* panels, const real* low, const real* high, const int* starts, int levels, int n,
           real threshold, int start, int stop, int64* out) {
    const int row = start + blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= stop) return;
    real own[DIM], near, far;
#pragma unroll
    for (int f = 0; f < DIM; ++f) own[f] = rows[(int64)row * DIM + f];
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int64 within = 0;  // of this lane
    int level = levels - 1;
    bool enter = true;
    panel[level] = 0;
    while (level < levels) {
        if (enter) {
            enter = false;
            box_bounds(own, own, low, high, starts[level] + panel[level], near, far);
            const int64 held = node_rows(panel[level], level, n);
            const bool inside = held && far < threshold;
            if (inside) within += held;
            pending[level] = __ballot_sync(FULL, held && !inside && near < threshold);
        }
        if (!pending[level]) { ++level; continue; }
        const int chosen = __ffs(pending[level]) - 1;
        pending[level] &= pending[level] - 1;
        const int child = panel[level] * WIDTH + chosen;
        if (level == 0) {
            within += to_leaf(own, panels, child) < threshold;
        } else {
            --level;
            panel[level] = child;
            enter = true;
        }
    }
    for (int step = 16; step; step >>= 1) within += __shfl_xor_sync(FULL, within, step);
    if (lane_id() == 0) out[row - start] += within;
}

extern "C" __global__ void __launch_bounds__(WARPS * 32)
tree_border(const real* rows, const real* panels, const real* low, const real* high, const int* starts, int levels,
            const int* labels, const int* least, const int* minus_most, real threshold, int start, int stop,
            unsigned char* out) {
    const int row = start + blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (row >= stop) return;
    const int lane = lane_id(), label = labels[row];
    real own[DIM], near, far;
#pragma unroll
    for (int f = 0; f < DIM; ++f) own[f] = rows[(int64)row * DIM + f];
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    int level = levels - 1;
    bool enter = true;
    panel[level] = 0;
    while (level < levels) {
        if (enter) {
            enter = false;
            const int at = starts[level] + panel[level];
            box_bounds(own, own, low, high, at, near, far);
            const int64 node = (int64)at * WIDTH + lane;
            const bool mixed = least[node] != label || minus_most[node] != -label;
            pending[level] = __ballot_sync(FULL, mixed && near < threshold);
        }
        if (!pending[level]) { ++level; continue; }
        const int chosen = __ffs(pending[level]) - 1;
        pending[level] &= pending[level] - 1;
        const int child = panel[level] * WIDTH + chosen;
        if (level == 0) {
            const bool other = labels[(int64)child * WIDTH + lane] != label;
            if (__any_sync(FULL, other && to_leaf(own, panels, child) < threshold)) {
                if (lane == 0) out[row - start] = 1;
                return;
            }
        } else {
            --level;
            panel[level] = child;
            enter = true;
        }
    }
}

// One warp pairs its leaf with itself and every later leaf.
extern "C" __global__ void __launch_bounds__(WARPS * 32)
tree_histogram(const real* panels, const real* low, const real* high, const int* starts, int levels, int n, int part,
               int parts, int leaves, sbits first, ubits width, int shift, uint64* out) {
    const int leaf = part + (blockIdx.x * WARPS + (threadIdx.x >> 5)) * parts;
    if (leaf >= leaves) return;
    const int lane = lane_id();
    const int64 rows = min(WIDTH, n - leaf * WIDTH);
    real a_low[DIM], a_high[DIM], own[DIM], near, far;
#pragma unroll
    for (int f = 0; f < DIM; ++f) {
        const int64 at = ((int64)(leaf / WIDTH) * DIM + f) * WIDTH + leaf % WIDTH;
        a_low[f] = low[at];
        a_high[f] = high[at];
        own[f] = panels[((int64)leaf * DIM + f) * WIDTH + lane];  // infinity after the last row
    }
    unsigned int pending[LEVELS];
    int panel[LEVELS];
    uint64 below = 0;  // of this lane
    int level = levels - 1;
    bool enter = true;
    panel[level] = 0;
    while (level < levels) {
        if (enter) {
            enter = false;
            box_bounds(a_low, a_high, low, high, starts[level] + panel[level], near, far);
            const int64 held = node_rows(panel[level], level, n);
            const int ancestor = (leaf >> (5 * level)) - panel[level] * WIDTH;  // negative: the panel lies behind
            const sbits from = Bits<real>::of(near) - first, to = Bits<real>::of(far) - first;
            bool open = held && lane > ancestor;
            if (open && to < 0) {
                below += held * rows;
                open = false;
            }
            open = open && (from < 0 || (ubits)from < width);
            if (open && from >= 0 && from >> shift == to >> shift) {  // all its pairs fall into one bin
                atomicAdd(out + 1 + (from >> shift), (uint64)(held * rows));
                open = false;
            }
            pending[level] = __ballot_sync(FULL, open || lane == ancestor);
        }
        if (!pending[level]) { ++level; continue; }
        const int chosen = __ffs(pending[level]) - 1;
        pending[level] &= pending[level] - 1;
        const int child = panel[level] * WIDTH + chosen;
        if (level) {
            --level;
            panel[level] = child;
            enter = true;
            continue;
        }
        real theirs[DIM];
#pragma unroll
        for (int f = 0; f < DIM; ++f) theirs[f] = panels[((int64)child * DIM + f) * WIDTH + lane];
        const int columns = min(WIDTH, n - child * WIDTH);
        unsigned int undecided = __ballot_sync(FULL, lane < rows);
        if (child != leaf) {  // the bracket's ends pass between most rows and the whole leaf
            real gaps = 0, spans = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) {
                const int64 at = ((int64)(child / WIDTH) * DIM + f) * WIDTH + child % WIDTH;
                const real b_low = low[at], b_high = high[at];
                const real gap = fmax(fmax(b_low - own[f], own[f] - b_high), (real)0);
                const real span = fmax(b_high - own[f], own[f] - b_low);
                gaps = fma(gap, gap, gaps);
                spans = fma(span, span, spans);
            }
            const sbits from = Bits<real>::of(gaps) - first;
            const bool inside = lane < rows && Bits<real>::of(spans) - first < 0;
            if (inside) below += columns;
            undecided = __ballot_sync(FULL, lane < rows && !inside && (from < 0 || (ubits)from < width));
        }
        for (; undecided; undecided &= undecided - 1) {
            const int row = __ffs(undecided) - 1;
            real s = 0;
#pragma unroll
            for (int f = 0; f < DIM; ++f) s = accumulate(__shfl_sync(FULL, own[f], row), theirs[f], s);
            const sbits u = Bits<real>::of(s) - first;
            if (lane < columns && (child != leaf || lane > row)) {
                below += u < 0;
                if (u >= 0 && (ubits)u < width) atomicAdd(out + 1 + ((ubits)u >> shift), 1ull);
            }
        }
    }
    add_warp_total(below, out);
}
