// splitmix64 (Steele, Lea and Flood, OOPSLA 2014), as in mgclust/base/hashing.py.
#pragma once

__device__ inline unsigned long long splitmix64(unsigned long long x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9ULL;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebULL;
    return x ^ (x >> 31);
}
