// One iteration of affinity propagation on this rank's neighbour lists: what they are, and why this is exact, is in
// listed.py, the maths in messages.py.
//
//   begin_listed        A of each column wherever R <= 0; the largest of those that are no active columns
//   pass_listed_rows    a warp a row: A of hot columns and own elements; the elements behind them that could change the
//                       two largest of A + S; u, E, R(k,k); the sums, and which elements are own ones from now on
//
// Both do nothing behind an iteration that has undecided rows. Sums are of integers, by atomics: any order gives the
// same bits. One H200, 48,751 voxels: about 30 own elements and 100 bytes of hot columns a row are read and written.
#include "pairs/pairs.cuh"
#include "affinity_propagation/messages.cuh"
#include "affinity_propagation/hot_columns.cuh"

#define WARPS 8         // rows of a block
#define THREADS (32 * WARPS)
#define FAR 64          // elements behind the own ones: active columns are looked at first where more were read
#define BY_ACTIVE -1    // read: active columns decided
#define LIST_TOO_SHORT -2   // active columns decided, behind a list that did not

__device__ __forceinline__ bool is_in(const int* sorted, int count, int k) {
    int low = 0;
    while (count > 0) {
        const int half = count / 2;
        if (sorted[low + half] < k) {
            low += half + 1;
            count -= half + 1;
        } else count = half;
    }
    return sorted[low] == k;
}

extern "C" __global__ void __launch_bounds__(THREADS)
begin_listed(int n, const real* __restrict__ c, real* a_column, const int* __restrict__ active, int n_active,
             ubits* outside, const int64* progress, bool again, double damping_) {
    __shared__ ubits most;
    const int k = blockIdx.x * THREADS + threadIdx.x;
    if (progress[0] && !again) return;
    if (threadIdx.x == 0) most = 0;
    __syncthreads();
    const real damping = (real)damping_;
    if (k < n) {
        const real a = finished(a_column[k], c[k], 0, damping, (real)1 - damping);
        a_column[k] = a;
        if (n_active && !(active[n_active - 1] >= k && is_in(active, n_active, k))) atomicMax(&most, ordered(a));
    }
    __syncthreads();
    if (threadIdx.x == 0 && most) atomicMax(outside, most);
}

// Elements that could change the two largest, a lane each, unless their columns are hot: whether any did.
__device__ __forceinline__ bool take_all(Found& found, bool candidate, real v, int k, real s, const Hot& hot) {
    if (!__any_sync(FULL, candidate)) return false;
    candidate &= hot.places_of(k, candidate) < 0;
    if (candidate) take(found, v, k, -1, s);
    return __any_sync(FULL, candidate);
}

extern "C" __global__ void __launch_bounds__(THREADS)
pass_listed_rows(const int64* rows, int m, int n, int first_row, int places, const int64* begin, const int64* length,
                 int64* own_of, const real* floor_of, const int* column_, const real* s_, real* a_,
                 const real* __restrict__ a_column, const int* __restrict__ active, const real* active_s, int n_active,
                 const ubits* outside, double* u, int* hot_column_, int* hot_place_, real* hot_s_, real* hot_e_,
                 real* hot_a_, int* hot_most, const real* __restrict__ c, const double* __restrict__ r_diagonal,
                 const double* __restrict__ a_diagonal, const double* __restrict__ preference, uint64* sums,
                 const int64* progress, bool again, real* wanted, real* slack, int64* read, unsigned char* undecided,
                 double sigma_, double next_sigma_, double damping_, double next_damping, double scale,
                 double negligible) {
    const int lane = threadIdx.x & 31, t = blockIdx.x * WARPS + (threadIdx.x >> 5);
    if (t >= m || (progress[0] && !again)) return;
    const int64 i = again ? rows[t] : t;
    const int g = first_row + (int)i, stop = (int)length[i];
    int own = (int)own_of[i];
    const int* column = column_ + begin[i];
    const real* s = s_ + begin[i];
    real* a = a_ + begin[i];
    int *hot_column = hot_column_ + i * places, *hot_place = hot_place_ + i * places;
    real *hot_s = hot_s_ + i * places, *hot_e = hot_e_ + i * places, *hot_a = hot_a_ + i * places;
    const real sigma = (real)sigma_, next_sigma = (real)next_sigma_, damping = (real)damping_;
    const real rest = (real)1 - damping, old_u = (real)u[i], floor = floor_of[i];

    // The first elements behind the own ones are nearly always looked at: their reads hide behind the others.
    const int first = own + lane, first_k = first < stop ? column[first] : -1;
    const real first_s = first < stop ? s[first] : -infinity();
    const real first_v = first < stop ? a_column[first_k] + first_s : -infinity();

    Found found{nothing(), -1, 0};
    if (lane == 0) take(found.top, (real)(a_diagonal[g] + preference[g]), g);
    for (int p = lane; p < places; p += 32) {
        const int k = hot_column[p];
        if (k < 0) continue;
        const real v = hot_s[p];
        const real availability = finished(hot_a[p], c[k], fma(sigma, v, -old_u) - hot_e[p], damping, rest);
        hot_a[p] = availability;
        take(found, availability + v, k, -1, v);
    }
    for (int q = lane; q < own; q += 32) {
        const int k = column[q];
        const real near = s[q], availability = finished(a[q], c[k], fma(sigma, near, -old_u), damping, rest);
        a[q] = availability;
        const real v = availability + near;
        if (v >= found.top.m2 && v > -infinity()) take(found, v, k, q, near);
    }
    Top top = over_warp(found.top);
    const Hot hot(hot_column, places, lane);

    // Behind the own elements: the list, or the active columns where it would be read far, or does not decide.
    const real nearest = own < stop ? s[own] : floor;   // no other element is more similar
    const real last = own ? s[own - 1] : infinity();
    const int last_column = own ? column[own - 1] : -1;
    const int64 before = read[i];
    const bool by_active = n_active && (before == BY_ACTIVE || before > max(FAR, n_active / 2));
    bool decided = false;
    int64 looked = 0;
    real reached = top.m2;      // so far: the second largest is not below
    for (int way = by_active ? 0 : 1; way < (n_active && !by_active ? 3 : 2) && !decided; ++way) {
        const Found was = found;
        const Top top_was = top;
        if (way == 1) {
            int q = own;
            int k = first_k;
            real near = first_s, v = first_v;
            while (q < stop && s[q] >= top.m2) {
                if (take_all(found, v >= top.m2 && v > -infinity(), v, k, near, hot)) top = over_warp(found.top);
                q += 32;
                const int at = q + lane;
                k = at < stop ? column[at] : -1;
                near = at < stop ? s[at] : -infinity();
                v = at < stop ? a_column[k] + near : -infinity();
            }
            looked = q - own;
            decided = floor <= top.m2;
        } else {
            for (int p = 0; p < n_active; p += 32) {
                const int at = p + lane, k = at < n_active ? active[at] : -1;
                real v = -infinity(), near = -infinity();
                if (k >= 0 && a_column[k] + nearest >= top.m2) {
                    near = active_s[i * n_active + at];
                    v = a_column[k] + near;
                }
                const bool behind = near < last || (near == last && k > last_column);
                const bool candidate = v >= top.m2 && v > -infinity() && behind;
                if (take_all(found, candidate, v, k, near, hot)) top = over_warp(found.top);
            }
            decided = number_of(real(), *outside) + nearest < top.m2;
            looked = way ? LIST_TOO_SHORT : BY_ACTIVE;
        }
        reached = fmax(reached, top.m2);
        if (!decided) {     // what was found so far would be found again
            found = was;
            top = top_was;
        }
    }

    const double next_u = damped(u[i], top.m1, next_damping);
    const real u_new = (real)next_u;
    const bool positive_below = fma(next_sigma, floor, -u_new) > 0;
    if (lane == 0) {
        read[i] = looked;
        slack[i] = reached - nearest;
        undecided[i] = !decided ? 1 : positive_below ? 2 : 0;
        if (!decided || positive_below) {
            const real reach = u_new / next_sigma;
            wanted[i] = decided ? reach : fmin(reached, reach);
            atomicAdd(sums + 2 * (int64)n, 1ull);
        }
    }
    if (!decided || positive_below) return;

    // E <- damping E, and what is added at column j.
    int place = hot.place_of(top.j), free_place = hot.place_of(-1);
    const unsigned owner = __ballot_sync(FULL, found.top.j == top.j);
    const int from = owner ? __ffs(owner) - 1 : 0;
    const int own_place = __shfl_sync(FULL, found.place, from);
    const real own_s = __shfl_sync(FULL, found.s, from);
    const bool fresh = top.j != g && place < 0;
    if (fresh) place = free_place;
    if (fresh && lane == 0) {
        hot_column[place] = top.j;
        hot_place[place] = own_place;
        hot_s[place] = own_s;
        hot_e[place] = 0;
        hot_a[place] = own_place >= 0 ? a[own_place] : a_column[top.j];
        if (own_place >= 0) a[own_place] = -infinity();
    }
    __syncwarp();
    const real boost = boost_of(top, next_damping);
    int filled = 0;
    for (int p = lane; p < places; p += 32) {
        const int k = hot_column[p];
        if (k < 0) continue;
        real e = (real)next_damping * hot_e[p];
        if (p == place) e += boost;
        else if (!counts(e, hot_s[p], next_u, negligible)) {
            // Without E the column is as any other: it goes where it belongs, or, with an A that differs from a(k) and
            // no place for that, stays with E = 0, which is the same.
            const int back = hot_place[p];
            if (back >= 0 || hot_a[p] == a_column[k]) {
                if (back >= 0) a[back] = hot_a[p];
                hot_column[p] = -1;
                continue;
            }
            e = 0;
        }
        hot_e[p] = e;
        ++filled;
        add_positive(sums, k, fma(next_sigma, hot_s[p], -u_new) - e, scale);
    }
    for (int step = 16; step; step >>= 1) filled += __shfl_xor_sync(FULL, filled, step);
    if (lane == 0) {
        const double others = top.j != g ? top.m1 : top.m2;
        const double r_new = damped(r_diagonal[g], preference[g] - others, next_damping);
        sums[n + g] = (uint64)__double_as_longlong(r_new);
        u[i] = next_u;
        if (filled > *hot_most) atomicMax(hot_most, filled);
    }
    __syncwarp();

    // R > 0 holds for a prefix: its elements have an A of their own from now on.
    const Hot now(hot_column, places, lane);
    int q = 0, more = 32;
    while (more == 32 && q < stop) {
        const int at = q + lane, k = at < stop ? column[at] : -1;
        const real r = fma(next_sigma, at < stop ? s[at] : -infinity(), -u_new);
        const bool positive = at < stop && r > 0;
        more = __popc(__ballot_sync(FULL, positive));
        bool adds = positive && at < own && a[at] > -infinity();
        const bool enters = positive && at >= own;
        if (__any_sync(FULL, enters)) {
            const int elsewhere = now.places_of(k, enters);
            if (enters) {
                adds = elsewhere < 0;
                a[at] = adds ? a_column[k] : -infinity();
                if (!adds) hot_place[elsewhere] = at;
            }
        }
        if (adds) add_positive(sums, k, r, scale);
        q += more;
    }
    // Behind it, those whose A has become a(k) are as any other.
    own = max(own, q);
    while (own > q) {
        const int at = own - 1 - lane;
        const bool valid = at >= q;
        const int k = valid ? column[at] : -1;
        const real availability = valid ? a[at] : 0;
        const bool kept_elsewhere = valid && availability == -infinity();
        int elsewhere = -1;
        if (__any_sync(FULL, kept_elsewhere)) elsewhere = now.places_of(k, kept_elsewhere);
        const bool plain = valid && (kept_elsewhere ? elsewhere >= 0 : availability == a_column[k]);
        const unsigned stays = ~__ballot_sync(FULL, plain);
        const int count = stays ? __ffs(stays) - 1 : 32;
        if (lane < count) {
            if (kept_elsewhere) hot_place[elsewhere] = -1;
            a[at] = -infinity();
        }
        own -= count;
        if (count < 32) break;
    }
    if (lane == 0) own_of[i] = own;
}
