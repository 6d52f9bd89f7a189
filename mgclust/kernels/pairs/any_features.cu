// The pieces that go with either all-pairs file: adding up groups, merging minima, distances of a few rows.
#include "pairs/pairs.cuh"

// out[i] += groups[0][i] + groups[1][i] + ..., strictly one after the other: the order that makes bits repeat.
extern "C" __global__ void add_groups(const double* groups, int count, int m, double* out) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    double total = out[row];
    for (int g = 0; g < count; ++g) total += groups[(int64)g * m + row];
    out[row] = total;
}

// The runs of columns ascend, so a strict comparison keeps the lower index of equal distances.
extern "C" __global__ void merge_nearest(const real* part_best, const int* part_index, int count, int m, int64 y_start,
                                         real* best, int64* best_index) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= m) return;
    real s = best[row];
    int64 at = best_index[row];
    for (int g = 0; g < count; ++g) {
        const int index = part_index[(int64)g * m + row];
        if (index >= 0 && part_best[(int64)g * m + row] < s) { s = part_best[(int64)g * m + row]; at = y_start + index; }
    }
    best[row] = s;
    best_index[row] = at;
}

extern "C" __global__ void distances(const real* x, int m, const real* y, int k, int d, real* out) {
    const int64 pair = (int64)blockIdx.x * blockDim.x + threadIdx.x;
    if (pair >= (int64)m * k) return;
    out[pair] = direct(x + pair / k * d, y + pair % k * d, d);
}
