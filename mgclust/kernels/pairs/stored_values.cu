// The histogram of a matrix that is stored: own rows, `stride` columns of which the first n count; -inf is no value.
#include "pairs/pairs.cuh"

#define THREADS 256
#define BINS 2048       // in shared memory: a call has no more

// Integers in the order of the values, also of negative ones.
__device__ __forceinline__ sbits key_of(real v) {
    const sbits b = Bits<real>::of(v == 0 ? (real)0 : v);
    return b >= 0 ? b : b ^ (sbits)((ubits)-1 >> 1);
}

extern "C" __global__ void __launch_bounds__(THREADS)
value_histogram(const real* __restrict__ values, int m, int n, int64 stride, sbits low, int shift, int bins,
                uint64* out) {
    __shared__ unsigned int count[BINS + 1];
    for (int b = threadIdx.x; b <= BINS; b += THREADS) count[b] = 0;
    __syncthreads();
    for (int i = blockIdx.y; i < m; i += gridDim.y)
        for (int k = blockIdx.x * THREADS + threadIdx.x; k < n; k += gridDim.x * THREADS) {
            const real v = values[i * stride + k];
            if (!(v > -infinity())) continue;
            const sbits key = key_of(v);
            if (key < low) atomicAdd(count, 1u);
            else {
                const ubits b = ((ubits)key - (ubits)low) >> shift;
                if (b < (ubits)bins) atomicAdd(count + 1 + b, 1u);
            }
        }
    __syncthreads();
    for (int b = threadIdx.x; b <= bins; b += THREADS)
        if (count[b]) atomicAdd(out + b, (uint64)count[b]);
}
