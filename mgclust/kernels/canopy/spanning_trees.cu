// Minimum spanning trees of all pairs of rows in each group, one block a group (Prim).
//
// A step joins the row with the first edge to the tree, by (distance, lower row, other row), and compares it with all that
// have not joined: a group of m rows takes m steps, and m^2 / 2 distances.
//
// Compiled with -DREAL and -DNORM.
#include "pairs/pairs.cuh"

#define THREADS 256

struct Edge {
    real s;
    int64 low, high;  // the numbers of its rows
    int64 at;         // the row that would join; -1: none
};

__device__ __forceinline__ Edge edge_of(real s, int64 a, int64 b, int64 at) {
    return Edge{s, a < b ? a : b, a < b ? b : a, at};
}

__device__ __forceinline__ bool before(const Edge& a, const Edge& b) {
    if (a.at < 0 || b.at < 0) return a.at >= 0;
    if (a.s != b.s) return a.s < b.s;
    return a.low < b.low || (a.low == b.low && a.high < b.high);
}

extern "C" __global__ void __launch_bounds__(THREADS)
spanning_trees(const real* __restrict__ x, int d, const int64* __restrict__ numbers, const int64* __restrict__ starts,
               const int64* __restrict__ order, unsigned char* joined, real* best, int64* other) {
    __shared__ Edge edges[THREADS];
    const int64 group = order[blockIdx.x], first = starts[group], last = starts[group + 1];
    for (int64 i = first + threadIdx.x; i < last; i += THREADS) {
        best[i] = infinity();
        other[i] = numbers[first];
        joined[i] = i == first;
    }
    int64 added = first;
    for (int64 step = first + 1; step < last; ++step) {
        Edge least{infinity(), 0, 0, -1};
        for (int64 i = first + threadIdx.x; i < last; i += THREADS) {  // each thread has rows of its own
            if (i == added) joined[i] = 1;
            if (joined[i]) continue;
            const Edge found = edge_of(direct(x + i * d, x + added * d, d), numbers[i], numbers[added], i);
            Edge own = edge_of(best[i], numbers[i], other[i], i);
            if (before(found, own)) {
                own = found;
                best[i] = found.s;
                other[i] = numbers[added];
            }
            if (before(own, least)) least = own;
        }
        edges[threadIdx.x] = least;
        __syncthreads();
        for (int half = THREADS / 2; half; half /= 2) {
            if (threadIdx.x < half && before(edges[threadIdx.x + half], edges[threadIdx.x]))
                edges[threadIdx.x] = edges[threadIdx.x + half];
            __syncthreads();
        }
        added = edges[0].at;
        __syncthreads();
    }
}
