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

// The hot columns of a row that a warp passes: a lane's own of the first 32 places, where all are, and how many of the first 32.
struct Hot {
    const int* column;
    int places, mine, count, lane;
    __device__ __forceinline__ Hot(const int* column, int places, int lane)
        : column(column), places(places), mine(column[lane]), lane(lane) {
        count = __popc(__ballot_sync(FULL, mine >= 0));
    }
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
    // The place of each lane's column, or -1; of those lanes that ask. One by one: the columns, or what there is.
    __device__ __forceinline__ int places_of(int k, bool asks) const {
        int place = -1;
        unsigned left = __ballot_sync(FULL, asks);
        if (__popc(left) <= count || places > 32) {
            for (; left; left &= left - 1) {
                const int from = __ffs(left) - 1, found = place_of(__shfl_sync(FULL, k, from));
                if (lane == from) place = found;
            }
        } else {
            for (unsigned filled = __ballot_sync(FULL, mine >= 0); filled; filled &= filled - 1) {
                const int from = __ffs(filled) - 1;
                if (__shfl_sync(FULL, mine, from) == k) place = from;
            }
        }
        return place;
    }
};
