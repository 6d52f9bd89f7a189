// One iteration of affinity propagation on this rank's neighbour lists: what they are, and why this is exact, is in
// listed.py, the maths in messages.py.
//
//   begin_listed             A of each column wherever R <= 0; the largest of those that are no active columns
//   pass_listed_rows         LANES lanes a row: A of recent columns and own elements; the elements behind them that could
//                            change the two largest of A + S; u, E, R(k,k); the sums, and which elements are own ones
//                            from now on
//   pass_listed_columns      c, A(k,k) and the exemplars; and begin_listed of the next iteration
//
// All do nothing behind an iteration that has undecided rows. Sums are of integers, by atomics: any order gives the
// same bits. A row is a chain of dependent steps (its list, c of its columns, their maximum, and what follows), so what
// counts is how many rows are under way. A row has a recent column and some ten own elements at most times, too few for
// the 32 lanes of a warp: these pass several rows, and go through their steps together.
//
// One file because it is one pass: each step needs what the steps before have found of the row.
#include "pairs/pairs.cuh"
#include "affinity_propagation/messages.cuh"
#include "affinity_propagation/sparse_forms/recent_argmax.cuh"

#ifndef LANES
#define LANES 8         // of a row
#endif
#ifndef ACTIVE
#define ACTIVE 1        // 0: there are no active columns
#endif
#define THREADS 256     // of a block that passes columns
#ifndef ROW_THREADS
#define ROW_THREADS 64  // of one that passes rows: few, since a block keeps its place until its longest row is done
#endif
#define ROWS (32 / LANES)   // of a warp
#define EACH 4          // elements of a list that a lane reads together
#define CHUNK (LANES * EACH)
#define SPARE 8         // elements that a row reads too many, at least, before it reads fewer
#define FAR 64          // elements behind the own ones: active columns are looked at first where more were read
#define BY_ACTIVE -1    // read: active columns decided
#define LIST_TOO_SHORT -2   // active columns decided, behind a list that did not
// Of pass_listed_rows, on a multiprocessor.
#define BLOCKS ((sizeof(real) == 4 ? ACTIVE ? 768 : 1024 : 512) / ROW_THREADS)

struct alignas(16) Reals { real v[EACH]; };
struct alignas(16) Ints { int v[EACH]; };

struct Lists {
    const int64 *begin, *length;
    int64* own;
    const real* floor;
    const int* column;
    const real* s;
    real* a;
    real* a_column;
    const int* active;
    const real *active_s, *active_a;
    double* u;
    int *recent_argmax, *recent_place;
    real *recent_s, *recent_e, *recent_a;
    int* recent_most;
    real* c;
    double *r_diagonal, *a_diagonal;
    const double* preference;
    uint64* sums;
    real *wanted, *slack;
    int64* read;
    unsigned char* undecided;
    int n, first_row, places, n_active;
};

struct Numbers { double sigma, next_sigma, damping, next_damping, scale, negligible; };

// The lanes of a row, which are neighbours in their warp. All lanes of the warp call these together.
struct Lanes {
    int first, own;     // of the row in its warp; this one among the row's
    __device__ __forceinline__ Lanes() : first((threadIdx.x & 31) / LANES * LANES), own(threadIdx.x % LANES) {}
    __device__ __forceinline__ unsigned votes(bool vote) const {
        return (__ballot_sync(FULL, vote) >> first) & (FULL >> (32 - LANES));
    }
    template <class T> __device__ __forceinline__ T from(T v, int lane) const {
        return __shfl_sync(FULL, v, first + lane);
    }
    // The lanes have different columns.
    __device__ __forceinline__ Top over(Top t) const {
        for (int step = LANES / 2; step; step >>= 1) {
            Top other;
            other.m1 = __shfl_xor_sync(FULL, t.m1, step);
            other.m2 = __shfl_xor_sync(FULL, t.m2, step);
            other.j = __shfl_xor_sync(FULL, t.j, step);
            take(t, other);
        }
        return Top{positive_zero(t.m1), positive_zero(t.m2), t.j};
    }
};

// A part of an array, by where it begins: several of one row share that, which takes fewer registers than pointers.
template <class T> struct Part {
    T* array;
    int64 begin;
    __device__ __forceinline__ T& operator[](int at) const { return array[begin + at]; }
};

// The recent columns of a row: they fill its first places. Each lane has one of the first.
struct RecentPlaces {
    Part<int> column;
    int filled, mine;
    unsigned most;      // of all rows of the warp
    __device__ __forceinline__ RecentPlaces(Part<int> column, int filled, int lane)
        : column(column), filled(filled), mine(lane < filled ? column[lane] : -1) {
        most = __reduce_max_sync(FULL, (unsigned)filled);
    }
    // The place of a column, each lane its own, or -1; of those lanes that ask.
    __device__ __forceinline__ int place_of(int k, bool asks, const Lanes& lanes) const {
        int place = -1;
        for (int p = 0; p < min((int)most, LANES); ++p) {
            const int there = lanes.from(mine, p);
            if (asks && there == k) place = p;
        }
        if (asks)
            for (int p = LANES; p < filled; ++p)
                if (column[p] == k) place = p;
        return place;
    }
};

// Where k is among numbers in ascending order, or -1.
__device__ __forceinline__ int place_in(const int* sorted, int count, int k) {
    if (sorted[count - 1] < k) return -1;
    int low = 0;
    while (count > 0) {
        const int half = count / 2;
        if (sorted[low + half] < k) {
            low += half + 1;
            count -= half + 1;
        } else count = half;
    }
    return sorted[low] == k ? low : -1;
}

// A of a column wherever R <= 0, by a thread each of the block; that of an active one also beside those of the others.
__device__ __forceinline__ void finish_column(int k, int n, const real* c, real* a_column, const int* active,
                                              int n_active, real* active_a, ubits* outside, double damping_) {
    __shared__ ubits most;
    const real damping = (real)damping_;
    if (!ACTIVE) n_active = 0;
    if (n_active) {
        __syncthreads();
        if (threadIdx.x == 0) most = 0;
        __syncthreads();
    }
    if (k < n) {
        const real a = finished(a_column[k], c[k], 0, damping, (real)1 - damping);
        a_column[k] = a;
        if (n_active) {
            const int place = place_in(active, n_active, k);
            if (place >= 0) active_a[place] = a;
            else atomicMax(&most, ordered(a));
        }
    }
    if (n_active) {
        __syncthreads();
        if (threadIdx.x == 0 && most) atomicMax(outside, most);
    }
}

// Elements that could change the two largest, unless their columns are recent: whether any did.
__device__ __forceinline__ bool take_all(Found& found, bool candidate, real v, int k, real s, const RecentPlaces& recent,
                                         const Lanes& lanes) {
    if (!__any_sync(FULL, candidate)) return false;
    candidate &= recent.place_of(k, candidate, lanes) < 0;
    if (candidate) take(found, v, k, -1, s);
    return __any_sync(FULL, candidate);
}

// Passes a row, by LANES lanes, and those of the warp's other lanes. `valid`: there is one. `outside` is the largest
// a(k) of columns that are not active.
__device__ __forceinline__ void pass_row(const Lists& m, const Numbers& x, int64 i, bool valid, const ubits* outside) {
    const Lanes lanes;
    const int lane = lanes.own, n = m.n, n_active = ACTIVE ? m.n_active : 0;
    if (!valid) i = 0;
    const int g = m.first_row + (int)i, stop = valid ? (int)m.length[i] : 0;
    int own = valid ? (int)m.own[i] : 0;
    const Part<const int> column{m.column, m.begin[i]};
    const Part<const real> s{m.s, m.begin[i]};
    const Part<real> a{m.a, m.begin[i]};
    const int64 recent_at = i * m.places, before = m.read[i];
    const Part<int> recent_argmax{m.recent_argmax, recent_at}, recent_place{m.recent_place, recent_at};
    const Part<real> recent_s{m.recent_s, recent_at}, recent_e{m.recent_e, recent_at}, recent_a{m.recent_a, recent_at};
    const real sigma = (real)x.sigma, next_sigma = (real)x.next_sigma, damping = (real)x.damping;
    const real rest = (real)1 - damping, old_u = (real)m.u[i], floor = m.floor[i];

    Found found{nothing(), -1, 0};
    if (lane == 0) take(found.top, (real)(m.a_diagonal[g] + m.preference[g]), g);
    int filled = 0;
    bool full = valid;
    for (int p = lane; __any_sync(FULL, full); p += LANES) {
        const int k = full && p < m.places ? recent_argmax[p] : -1;
        if (k >= 0) {
            const real v = recent_s[p];
            const real availability = finished(recent_a[p], m.c[k], fma(sigma, v, -old_u) - recent_e[p], damping, rest);
            recent_a[p] = availability;
            take(found, availability + v, k, -1, v);
        }
        const int here = __popc(lanes.votes(k >= 0));
        filled += here;
        full = here == LANES;
    }
    const RecentPlaces recent(recent_argmax, filled, lane);

    // Own elements; and, unless active columns may take their place, as many behind them as the last pass read, since
    // those will nearly always be looked at.
    const int limit = n_active ? own : stop;
    const int expected = n_active ? own : min(stop, own + max((int)before, 1));
    for (int q = EACH * lane; __any_sync(FULL, q < expected); q += CHUNK) {
        const bool reads = q < expected;
        Ints k;
        Reals near, availability, from;
        if (reads) {
            k = *reinterpret_cast<const Ints*>(&column[q]);
            near = *reinterpret_cast<const Reals*>(&s[q]);
            if (q < own) availability = *reinterpret_cast<const Reals*>(&a[q]);
        }
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            from.v[e] = 0;
            if (reads && q + e < limit) from.v[e] = (q + e < own ? m.c : m.a_column)[k.v[e]];
        }
        unsigned asks = 0;
        real value[EACH];
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            value[e] = -infinity();
            if (!reads || q + e >= limit) continue;
            const bool is_own = q + e < own;
            if (is_own)
                from.v[e] = availability.v[e] =
                    finished(availability.v[e], from.v[e], fma(sigma, near.v[e], -old_u), damping, rest);
            value[e] = from.v[e] + near.v[e];
            if (!(value[e] >= found.top.m2 && value[e] > -infinity())) value[e] = -infinity();
            else if (is_own) take(found, value[e], k.v[e], q + e, near.v[e]);
            else asks |= 1u << e;
        }
        if (reads && q < own) *reinterpret_cast<Reals*>(&a[q]) = availability;
        if (__any_sync(FULL, asks)) {
            for (int p = 0; p < min((int)recent.most, LANES); ++p) {
                const int there = lanes.from(recent.mine, p);
#pragma unroll
                for (int e = 0; e < EACH; ++e)
                    if (asks >> e & 1 && k.v[e] == there) asks &= ~(1u << e);
            }
#pragma unroll
            for (int e = 0; e < EACH; ++e) {
                if (!(asks >> e & 1)) continue;
                bool is_recent = false;
                for (int p = LANES; p < filled; ++p) is_recent |= recent_argmax[p] == k.v[e];
                if (!is_recent) take(found, value[e], k.v[e], -1, near.v[e]);
            }
        }
    }
    Top top = lanes.over(found.top);

    // The rest of the list; or the active columns where it would be read far, or does not decide.
    const real nearest = own < stop ? s[own] : floor;   // no other element is more similar
    const bool by_active = n_active && (before == BY_ACTIVE || before > max(FAR, n_active / 2));
    bool decided = false;
    int looked = 0;
    real reached = top.m2;      // so far: the second largest is not below
    // What one turn has found another finds again, which changes nothing.
#pragma unroll 1
    for (int turn = 0; turn < (n_active ? 3 : 1); ++turn) {     // list, active columns, list
        bool on = valid && !decided && (turn == 0 ? !by_active : turn == 1 || by_active);
        if (!__any_sync(FULL, on)) continue;
        const bool tries = on;
        if (turn != 1) {
            int q = n_active ? own : (expected + EACH - 1) / EACH * EACH;
            while (true) {
                on = on && q < stop && s[q] >= top.m2;
                if (!__any_sync(FULL, on)) break;
                const int at = q / EACH * EACH + EACH * lane;
                const bool reads = on && at < stop;
                Ints k;
                Reals near;
                if (reads) {
                    k = *reinterpret_cast<const Ints*>(&column[at]);
                    near = *reinterpret_cast<const Reals*>(&s[at]);
                }
                bool any = false;
#pragma unroll
                for (int e = 0; e < EACH; ++e) {
                    const bool is = reads && at + e >= q && at + e < stop;
                    const real v = is ? m.a_column[k.v[e]] + near.v[e] : -infinity();
                    any |= take_all(found, is && v >= top.m2 && v > -infinity(), v, k.v[e], near.v[e], recent, lanes);
                }
                if (any) top = lanes.over(found.top);
                if (on) q = q / EACH * EACH + CHUNK;
            }
            if (tries) {
                looked = max(q - own, 0);
                if (looked > SPARE && own + looked - SPARE < stop && s[own + looked - SPARE] < top.m2) looked -= SPARE;
                decided = floor <= top.m2;
            }
        } else {
            const real last = own ? s[own - 1] : infinity();
            const int last_column = own ? column[own - 1] : -1;
            for (int p = 0; p < n_active; p += CHUNK) {
                const int at = p + EACH * lane;
                Reals availability;
                unsigned asks = 0;
                if (on && at < n_active) availability = *reinterpret_cast<const Reals*>(&m.active_a[at]);
#pragma unroll
                for (int e = 0; e < EACH; ++e)
                    if (on && at + e < n_active && availability.v[e] + nearest >= top.m2) asks |= 1u << e;
                if (!__any_sync(FULL, asks)) continue;
#pragma unroll
                for (int e = 0; e < EACH; ++e) {    // all four are under way before one is looked at
                    const real near = asks >> e & 1 ? m.active_s[i * n_active + at + e] : -infinity();
                    if (!(availability.v[e] + near >= top.m2 && near > -infinity())) asks &= ~(1u << e);
                }
                if (!__any_sync(FULL, asks)) continue;
                bool any = false;
#pragma unroll 1
                for (int e = 0; e < EACH; ++e) {
                    const bool is = asks >> e & 1;
                    const int k = is ? m.active[at + e] : -1;
                    const real near = is ? m.active_s[i * n_active + at + e] : -infinity();
                    const real v = is ? m.active_a[at + e] + near : -infinity();
                    const bool behind = near < last || (near == last && k > last_column);
                    any |= take_all(found, v >= top.m2 && v > -infinity() && behind, v, k, near, recent, lanes);
                }
                if (any) top = lanes.over(found.top);
            }
            if (tries) {
                decided = number_of(real(), *outside) + nearest < top.m2;
                looked = by_active ? BY_ACTIVE : LIST_TOO_SHORT;
            }
        }
        reached = fmax(reached, top.m2);
    }

    const double next_u = damped(m.u[i], top.m1, x.next_damping);
    const real u_new = (real)next_u;
    const bool positive_below = fma(next_sigma, floor, -u_new) > 0;
    const bool goes = valid && decided && !positive_below;
    __syncwarp();
    if (valid && lane == 0) {
        m.read[i] = looked;
        m.slack[i] = reached - nearest;
        m.undecided[i] = !decided ? 1 : positive_below ? 2 : 0;
        if (!goes) {
            const real reach = u_new / next_sigma;
            m.wanted[i] = decided ? reach : fmin(reached, reach);
            atomicAdd(m.sums + 2 * (int64)n, 1ull);
        }
    }

    // E <- damping E, and what is added at column j. The places that stay filled come first again.
    const bool is_other = top.j != g;
    const unsigned places = lanes.votes(recent.mine == top.j), owner = lanes.votes(found.top.j == top.j);
    int place = is_other && places ? __ffs(places) - 1 : -1;
    if (is_other && place < 0)
        for (int p = LANES; p < filled; ++p)
            if (recent_argmax[p] == top.j) place = p;
    const int from = owner ? __ffs(owner) - 1 : 0;
    const int own_place = lanes.from(found.place, from);
    const real own_s = lanes.from(found.s, from);
    const bool fresh = goes && is_other && place < 0;
    if (fresh) place = filled;
    const int used = filled + fresh;
    const real boost = boost_of(top, x.next_damping);
    int kept = 0;
    for (int p = lane; __any_sync(FULL, goes && p - lane < used); p += LANES) {
        bool keeps = goes && p < used;
        const bool enters = keeps && fresh && p == place;
        int k = -1, back = -1;
        real near = 0, e = 0, availability = 0;
        if (enters) {
            k = top.j;
            back = own_place;
            near = own_s;
            availability = back >= 0 ? a[back] : m.a_column[k];
            if (back >= 0) a[back] = -infinity();
        } else if (keeps) {
            k = recent_argmax[p];
            back = recent_place[p];
            near = recent_s[p];
            e = recent_e[p];
            availability = recent_a[p];
        }
        e = (real)x.next_damping * e;
        if (p == place) e += boost;
        else if (keeps && !counts(e, near, next_u, x.negligible)) {
            // Without E the column is as any other: it goes where it belongs, or, with an A that differs from a(k) and
            // no place for that, stays with E = 0, which is the same.
            keeps = back < 0 && availability != m.a_column[k];
            if (!keeps && back >= 0) a[back] = availability;
            e = 0;
        }
        const unsigned all = lanes.votes(keeps);
        const int to = kept + __popc(all & ((1u << lane) - 1));
        if (keeps) {    // all lanes have read their places: they have voted
            if (enters || to != p) {
                recent_argmax[to] = k;
                recent_place[to] = back;
                recent_s[to] = near;
                recent_a[to] = availability;
            }
            recent_e[to] = e;
            add_positive(m.sums, k, fma(next_sigma, near, -u_new) - e, x.scale);
        }
        kept += __popc(all);
        __syncwarp();
    }
    if (goes) {
        for (int p = kept + lane; p < filled; p += LANES) recent_argmax[p] = -1;
        if (lane == 0) {
            const double others = is_other ? top.m1 : top.m2;
            const double r_new = damped(m.r_diagonal[g], m.preference[g] - others, x.next_damping);
            m.sums[n + g] = (uint64)__double_as_longlong(r_new);
            m.u[i] = next_u;
            if (kept > *m.recent_most) atomicMax(m.recent_most, kept);
        }
    }
    __syncwarp();

    // R > 0 holds for a prefix: its elements have an A of their own from now on.
    const RecentPlaces now(recent_argmax, goes ? kept : 0, lane);
    int positive = 0;
    bool on = goes;
    for (int q = EACH * lane; __any_sync(FULL, on); q += CHUNK) {
        const bool reads = on && q < stop;
        Ints k;
        Reals near, availability;
        if (reads) {
            k = *reinterpret_cast<const Ints*>(&column[q]);
            near = *reinterpret_cast<const Reals*>(&s[q]);
            if (q < own) availability = *reinterpret_cast<const Reals*>(&a[q]);
        }
        int count = 0;
        bool enters = false;
#pragma unroll
        for (int e = 0; e < EACH; ++e) {
            if (!reads || q + e >= stop) continue;
            const real r = fma(next_sigma, near.v[e], -u_new);
            if (!(r > 0)) continue;
            ++count;
            if (q + e >= own) enters = true;
            else if (availability.v[e] > -infinity()) add_positive(m.sums, k.v[e], r, x.scale);
        }
        if (__any_sync(FULL, enters)) {
#pragma unroll 1
            for (int e = 0; e < EACH; ++e) {
                const int at = q + e;
                const bool asks = e < count && at >= own;
                if (!__any_sync(FULL, asks)) continue;
                const int there = asks ? column[at] : -1, elsewhere = now.place_of(there, asks, lanes);
                if (!asks) continue;
                a[at] = elsewhere < 0 ? m.a_column[there] : -infinity();
                if (elsewhere < 0) add_positive(m.sums, there, fma(next_sigma, s[at], -u_new), x.scale);
                else recent_place[elsewhere] = at;
            }
        }
        const unsigned whole = lanes.votes(count == EACH);
        const int ends = __popc(whole), more = lanes.from(count, min(ends, LANES - 1));
        positive += EACH * ends + (ends < LANES ? more : 0);
        on = on && ends == LANES;
    }
    __syncwarp();
    // Behind it, those whose A has become a(k) are as any other.
    own = max(own, positive);
    on = goes && own > positive;
    while (__any_sync(FULL, on)) {
        const int at = own - 1 - lane;
        const bool is = on && at >= positive;
        const int k = is ? column[at] : -1;
        const real availability = is ? a[at] : 0;
        const bool kept_elsewhere = is && availability == -infinity();
        int elsewhere = -1;
        if (__any_sync(FULL, kept_elsewhere)) elsewhere = now.place_of(k, kept_elsewhere, lanes);
        const bool plain = is && (kept_elsewhere ? elsewhere >= 0 : availability == m.a_column[k]);
        const unsigned stays = ~lanes.votes(plain) & (FULL >> (32 - LANES));
        const int count = stays ? __ffs(stays) - 1 : LANES;
        if (is && lane < count) {
            if (kept_elsewhere) recent_place[elsewhere] = -1;
            a[at] = -infinity();
        }
        if (on) own -= count;
        on = on && count == LANES && own > positive;
    }
    if (goes && lane == 0) m.own[i] = own;
    __syncwarp();
}

extern "C" __global__ void __launch_bounds__(THREADS)
begin_listed(int n, const real* __restrict__ c, real* a_column, const int* __restrict__ active, int n_active,
             real* active_a, ubits* outside, const int64* progress, bool again, double damping) {
    if (progress[0] && !again) return;
    finish_column(blockIdx.x * THREADS + threadIdx.x, n, c, a_column, active, n_active, active_a, outside, damping);
}

// `outside` has two numbers, used by turns: that of this iteration, and one that the next begins with.
// `rows` are passed from their end, where those with most elements are: these begin first, and those of a warp, which go
// through their steps together, have about as many.
extern "C" __global__ void __launch_bounds__(ROW_THREADS, BLOCKS)
pass_listed_rows(const int64* rows, int m, int n, int first_row, int places, const int64* __restrict__ begin,
                 const int64* __restrict__ length, int64* __restrict__ own, const real* __restrict__ floor,
                 const int* __restrict__ column, const real* __restrict__ s, real* __restrict__ a,
                 real* __restrict__ a_column, const int* __restrict__ active, const real* __restrict__ active_s,
                 int n_active, const real* __restrict__ active_a, ubits* outside, int turn, double* __restrict__ u, int* __restrict__ recent_argmax,
                 int* __restrict__ recent_place, real* __restrict__ recent_s, real* __restrict__ recent_e,
                 real* __restrict__ recent_a, int* recent_most, real* __restrict__ c, double* __restrict__ r_diagonal,
                 double* __restrict__ a_diagonal, const double* __restrict__ preference, uint64* __restrict__ sums,
                 const int64* progress, bool again, real* wanted, real* slack, int64* read, unsigned char* undecided,
                 double sigma, double next_sigma, double damping, double next_damping, double scale,
                 double negligible) {
    if (progress[0] && !again) return;
    const Lists lists{begin, length, own, floor, column, s, a, a_column, active, active_s, active_a, u, recent_argmax, recent_place,
                      recent_s, recent_e, recent_a, recent_most, c, r_diagonal, a_diagonal, preference, sums, wanted, slack, read,
                      undecided, n, first_row, places, n_active};
    const Numbers numbers{sigma, next_sigma, damping, next_damping, scale, negligible};
    const int t = (blockIdx.x * ROW_THREADS + threadIdx.x) / LANES;
    const bool valid = t < m;
    if (blockIdx.x == 0 && threadIdx.x == 0) outside[1 - turn] = 0;
    pass_row(lists, numbers, valid ? rows[m - 1 - t] : 0, valid, outside + turn);
}

// What pass_columns of messages.cu does for the columns; and, if there is `more`, what begin_listed does for the next
// iteration, whose turn it is then: its number of `outside` is 0 so far.
extern "C" __global__ void __launch_bounds__(THREADS)
pass_listed_columns(int n, const uint64* totals, uint64* sums, int64* progress, real* c, double* r_diagonal,
                    double* a_diagonal, unsigned char* exemplars, unsigned char* last, uint64* counts, real* a_column,
                    const int* __restrict__ active, int n_active, real* active_a, ubits* outside, int slot, int turn,
                    bool more,
                    double damping, double scale) {
    const int k = blockIdx.x * THREADS + threadIdx.x;
    if (totals[2 * (int64)n]) {     // a rank has undecided rows: this iteration is not finished yet
        if (k == 0) progress[0] = 1;
        return;
    }
    if (k == 0) progress[1] += 1;
    bool exemplar = false, differs = false;
    if (k < n)
        finish_exemplar(k, n, totals, sums, c, r_diagonal, a_diagonal, exemplars + (int64)slot * n, last, damping,
                        scale, exemplar, differs);
    count_exemplars(exemplar, differs, counts + 2 * slot);
    if (more) finish_column(k, n, c, a_column, active, n_active, active_a, outside + turn, damping);
}
