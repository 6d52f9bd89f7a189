// What is known of a row while it is passed, on lists (listed.cu) and on some columns (columns.cu).
#pragma once

struct Found {      // the two largest of A + S; of the largest, its place among the own elements (-1: none) and S
    Top top;
    int place;
    real s;
};

__device__ __forceinline__ void take(Found& found, real v, int k, int place, real s) {
    const int before = found.top.j;
    take(found.top, v, k);
    if (found.top.j != before) {
        found.place = place;
        found.s = s;
    }
}

// The recent columns of a row that a warp passes: a lane's own of the first 32 places, and where all are.
struct Recent {
    const int* column;
    int places, mine, lane;
    __device__ __forceinline__ Recent(const int* column, int places, int lane)
        : column(column), places(places), mine(column[lane]), lane(lane) {}
    // The place of a column that all lanes ask for, or -1.
    __device__ __forceinline__ int place_of(int k) const {
        const unsigned here = __ballot_sync(FULL, mine == k);
        if (here) return __ffs(here) - 1;
        for (int p = 32; p < places; p += 32) {
            const unsigned there = __ballot_sync(FULL, column[p + lane] == k);
            if (there) return p + __ffs(there) - 1;
        }
        return -1;
    }
};
