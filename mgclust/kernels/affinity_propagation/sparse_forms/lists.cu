// The neighbour lists of message passing: making, moving, and looking something up. Their form: listed.py.
#include "pairs/pairs.cuh"
#include "toolkit/tie_noise.cuh"

#define THREADS 256     // a block a row
#define SORTED ((int)(16384 / sizeof(real)))    // elements that are sorted in shared memory
#define FULL 0xffffffffu

__device__ __forceinline__ int64 padded(int64 length) { return (length + 31) / 32 * 32; }

extern "C" __global__ void __launch_bounds__(THREADS)
count_similar(const real* s_, int64 stride, const real* low_of, int64* out) {
    __shared__ int total;
    const real* s = s_ + blockIdx.x * stride;
    const real low = low_of[blockIdx.x];
    if (threadIdx.x == 0) total = 0;
    __syncthreads();
    int count = 0;
    for (int64 k = threadIdx.x; k < stride; k += THREADS) count += s[k] >= low;
    count = __reduce_add_sync(FULL, count);
    if ((threadIdx.x & 31) == 0) atomicAdd(&total, count);
    __syncthreads();
    if (threadIdx.x == 0) out[blockIdx.x] = total;
}

// A list in order: the most similar first, of equals the lowest column.
struct List {
    real* s;
    int* column;
    __device__ __forceinline__ void order(int first, int second) const {
        if (s[second] < s[first] || (s[second] == s[first] && column[second] > column[first])) return;
        swap(s[first], s[second]);
        swap(column[first], column[second]);
    }
    template <typename T>
    static __device__ __forceinline__ void swap(T& a, T& b) {
        const T kept = a;
        a = b;
        b = kept;
    }
};

struct ListWithA : List {
    real* a;
    __device__ __forceinline__ void order(int first, int second) const {
        if (s[second] < s[first] || (s[second] == s[first] && column[second] > column[first])) return;
        swap(s[first], s[second]);
        swap(column[first], column[second]);
        swap(a[first], a[second]);
    }
};

// Of each two compared the better comes to the lower place, so what would lie behind the end need not exist.
template <class L>
__device__ __forceinline__ void sort(const L& list, int count) {
    for (int size = 2; size < 2 * count; size *= 2)
        for (int step = size; step > 1; step /= 2) {
            for (int t = threadIdx.x; t < (count + size) / 2; t += THREADS) {
                const int half = step / 2, within = t % half, first = t / half * step + within;
                const int second = step == size ? t / half * step + step - 1 - within : first + half;
                if (second < count) list.order(first, second);
            }
            __syncthreads();
        }
}

extern "C" __global__ void __launch_bounds__(THREADS)
list_similar(const real* s_, int64 stride, const real* low_of, const int64* begin, int* column_, real* out_) {
    __shared__ int found;
    __shared__ real near_s[SORTED];
    __shared__ int near_column[SORTED];
    const int lane = threadIdx.x & 31;
    const real* s = s_ + blockIdx.x * stride;
    const real low = low_of[blockIdx.x];
    int* column = column_ + begin[blockIdx.x];
    real* out = out_ + begin[blockIdx.x];
    if (threadIdx.x == 0) found = 0;
    __syncthreads();
    for (int64 first = threadIdx.x - lane; first < stride; first += THREADS) {
        const real v = s[first + lane];
        const unsigned near = __ballot_sync(FULL, v >= low);
        if (!near) continue;
        int at = 0;
        if (lane == 0) at = atomicAdd(&found, __popc(near));
        at = __shfl_sync(FULL, at, 0) + __popc(near & ((1u << lane) - 1));
        if (v >= low) {
            out[at] = v;
            column[at] = (int)first + lane;
        }
    }
    __syncthreads();
    const int count = found;
    for (int q = count + threadIdx.x; q < padded(count); q += THREADS) {
        out[q] = -infinity();
        column[q] = 0;
    }
    if (count > SORTED) {
        sort(List{out, column}, count);
        return;
    }
    for (int q = threadIdx.x; q < count; q += THREADS) {
        near_s[q] = out[q];
        near_column[q] = column[q];
    }
    __syncthreads();
    sort(List{near_s, near_column}, count);
    for (int q = threadIdx.x; q < count; q += THREADS) {
        out[q] = near_s[q];
        column[q] = near_column[q];
    }
}

template <typename T>
__device__ __forceinline__ void move_row(const int64* begin, const int64* length, const T* values, const int64* to,
                                         T* out, T behind) {
    const int64 i = blockIdx.x, from = begin[i], at = to[i], count = length[i];
    for (int64 q = threadIdx.x; q < padded(count); q += THREADS) out[at + q] = q < count ? values[from + q] : behind;
}

extern "C" __global__ void __launch_bounds__(THREADS)
move_columns(const int64* begin, const int64* length, const int* column, const int64* to, int* out) {
    move_row(begin, length, column, to, out, 0);
}

extern "C" __global__ void __launch_bounds__(THREADS)
move_lists(const int64* begin, const int64* length, const real* values, const int64* to, real* out) {
    move_row(begin, length, values, to, out, (real)-infinity());
}

extern "C" __global__ void __launch_bounds__(THREADS)
move_own(const int64* rows, const int64* begin, const int64* to, const int64* length, const int64* own, real* a) {
    const int64 t = blockIdx.x, count = own[rows[t]];
    for (int64 q = threadIdx.x; q < padded(length[t]); q += THREADS)
        a[to[t] + q] = q < count ? a[begin[t] + q] : -infinity();
}

extern "C" __global__ void __launch_bounds__(THREADS)
gather_own(const int64* rows, const int64* begin, const int64* counts, const int64* to, const int* column, const real* a,
           int* columns, real* values) {
    const int64 t = blockIdx.x, from = begin[rows[t]];
    for (int64 q = threadIdx.x; q < counts[t]; q += THREADS) {
        columns[to[t] + q] = column[from + q];
        values[to[t] + q] = a[from + q];
    }
}

// Place of k among `count` ascending columns, or -1.
__device__ __forceinline__ int64 place_of(const int* columns, int64 count, int k) {
    int64 low = 0, left = count;
    while (left > 0) {
        const int64 half = left / 2;
        if (columns[low + half] < k) {
            low += half + 1;
            left -= half + 1;
        } else left = half;
    }
    return low < count && columns[low] == k ? low : -1;
}

// The columns of each row ascend.
extern "C" __global__ void __launch_bounds__(THREADS)
place_own(const int64* rows, const int64* counts, const int64* from, const int* columns, const real* values,
          const int64* begin, const int64* length, int64* own, const int* column_, real* a_, const real* a_column,
          const int* recent_argmax, int* recent_place, int places) {
    __shared__ int last;
    const int64 t = blockIdx.x, i = rows[t], count = counts[t];
    const int* column = column_ + begin[i];
    real* a = a_ + begin[i];
    if (threadIdx.x == 0) last = 0;
    __syncthreads();
    int mine = 0;
    if (count)
        for (int64 q = threadIdx.x; q < length[i]; q += THREADS)
            if (place_of(columns + from[t], count, column[q]) >= 0) mine = (int)q + 1;
    atomicMax(&last, mine);
    __syncthreads();
    const int stop = last;
    for (int q = threadIdx.x; q < stop; q += THREADS) {
        const int64 given = place_of(columns + from[t], count, column[q]);
        a[q] = given < 0 ? a_column[column[q]] : values[from[t] + given];
    }
    if (threadIdx.x == 0) own[i] = stop;
    __syncthreads();
    for (int h = 0; h < places; ++h) {
        const int k = recent_argmax[i * places + h];
        if (k < 0) continue;
        __syncthreads();
        if (threadIdx.x == 0) recent_place[i * places + h] = -1;
        __syncthreads();
        for (int q = threadIdx.x; q < stop; q += THREADS)
            if (column[q] == k) {
                recent_place[i * places + h] = q;
                a[q] = -infinity();
            }
    }
}

// Noise on the similarities of a row's list and recent columns; the list is put in order, A of own elements with it.
extern "C" __global__ void __launch_bounds__(THREADS)
redraw_lists(const int64* numbers, const int64* begin, const int64* length, int64* own, int* column_, real* s_, real* a_,
             const real* a_column, const int* recent_argmax_, int* recent_place_, real* recent_s_, int places, uint64 seed,
             unsigned int draw, real tiny) {
    const int half = SORTED / 2;
    __shared__ real near_s[half], near_a[half];
    __shared__ int near_column[half], last;
    const int64 i = blockIdx.x;
    const int number = (int)numbers[i], count = (int)length[i];
    const int* recent_argmax = recent_argmax_ + i * places;
    int* recent_place = recent_place_ + i * places;
    real* recent_s = recent_s_ + i * places;
    const bool fits = count <= half;
    int* column = column_ + begin[i];
    real *s = s_ + begin[i], *a = a_ + begin[i];
    const Noise noise{seed, draw, tiny};
    const auto noisy = [&](real v, int k) {
        return noise.add(v, word_of(noise.words(number, k & ~15), k / 4 & 3) >> (8 * (k & 3)));
    };
    if (threadIdx.x == 0) last = 0;
    for (int h = threadIdx.x; h < places; h += THREADS) {
        if (recent_argmax[h] < 0) continue;
        recent_s[h] = noisy(recent_s[h], recent_argmax[h]);
        if (recent_place[h] >= 0) a[recent_place[h]] = infinity();    // an own element, too: no A is that large
        recent_place[h] = -1;
    }
    __syncthreads();
    for (int q = threadIdx.x; q < count; q += THREADS) {
        const real v = noisy(s[q], column[q]);
        (fits ? near_s : s)[q] = v;
        if (fits) {
            near_column[q] = column[q];
            near_a[q] = a[q];
        }
    }
    __syncthreads();
    ListWithA list;
    list.s = fits ? near_s : s;
    list.column = fits ? near_column : column;
    list.a = fits ? near_a : a;
    sort(list, count);
    for (int q = threadIdx.x; q < count; q += THREADS)
        if (list.a[q] > -infinity()) atomicMax(&last, q + 1);
    __syncthreads();
    const int stop = last;
    for (int q = threadIdx.x; q < count; q += THREADS) {
        const int k = list.column[q];
        real availability = list.a[q];
        if (q < stop && fabs(availability) == infinity()) {
            availability = a_column[k];
            for (int h = 0; h < places; ++h)
                if (recent_argmax[h] == k) {
                    recent_place[h] = q;
                    availability = -infinity();
                }
        }
        a[q] = availability;
        if (fits) {
            s[q] = near_s[q];
            column[q] = k;
        }
    }
    if (threadIdx.x == 0) own[i] = stop;
}

// A warp a row: the first of its list whose column is flagged.
extern "C" __global__ void __launch_bounds__(THREADS)
nearest_flagged(int m, const int64* begin, const int64* length, const int* column, const real* s,
                const unsigned char* flags, int64* out, real* out_s) {
    const int i = blockIdx.x * (THREADS / 32) + (threadIdx.x >> 5), lane = threadIdx.x & 31;
    if (i >= m) return;
    if (lane == 0) out[i] = -1;
    for (int64 q = 0; q < length[i]; q += 32) {
        const int64 at = begin[i] + q + lane;
        const unsigned hits = __ballot_sync(FULL, q + lane < length[i] && flags[column[at]]);
        if (!hits) continue;
        if (lane == __ffs(hits) - 1) {
            out[i] = column[at];
            out_s[i] = s[at];
        }
        break;
    }
}
