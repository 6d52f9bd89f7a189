// Runs kernels of .cu files on the CPU, the threads of a block by turns.
//
// Each thread is a coroutine, which runs one block after another. It runs until it asks its warp or its block for
// something; when all that are asked have come there, they get their answers and the turns go on. What races on a GPU is
// in one order here. A coroutine gets its stack by ucontext; then turns are jumps, as swapcontext calls the system.
#pragma once
#include <setjmp.h>
#include <signal.h>
#include <ucontext.h>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __global__
#define __shared__ static
#define __device__
#define __forceinline__ inline
#define __restrict__
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))
#define asm(...)  // kernels with instructions of a GPU compile, and cannot be run

struct Place { unsigned int x, y, z; };
static Place threadIdx, blockIdx, blockDim, gridDim;

namespace block {
enum Kind { RUNNING, BALLOT, SHUFFLE, LEAST, MOST, SUM, WARP, BLOCK, COUNT, ENDED };
struct Thread {
    ucontext_t context;
    jmp_buf turn;
    bool begun = false;
    std::vector<char> stack = std::vector<char>(1 << 15);
    Kind kind;
    uint64_t value, answer;
    int from;
};
static std::vector<Thread> threads;
static jmp_buf scheduler;
static int current;
static std::function<void()> body;

inline uint64_t ask(Kind kind, uint64_t value = 0, int from = 0) {
    Thread& own = threads[current];
    own.kind = kind;
    own.value = value;
    own.from = from;
    if (!_setjmp(own.turn)) _longjmp(scheduler, 1);
    return threads[current].answer;
}

inline void thread_main() {
    while (true) {
        body();
        ask(ENDED);  // until the next block
    }
}

inline void give_turn(Thread& thread) {
    if (_setjmp(scheduler)) return;
    if (thread.begun) _longjmp(thread.turn, 1);
    thread.begun = true;
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    thread.context.uc_link = nullptr;
    makecontext(&thread.context, thread_main, 0);
    setcontext(&thread.context);
}

// Answers a warp whose threads have all asked the same.
inline bool answer_warp(Thread* lanes) {
    const Kind kind = lanes[0].kind;
    if (kind == RUNNING || kind == BLOCK || kind == COUNT || kind == ENDED) return false;
    uint64_t ballot = 0, least = ~0ull, most = 0, sum = 0, values[32];
    for (int l = 0; l < 32; ++l) {
        if (lanes[l].kind != kind) {
            fprintf(stderr, "the threads of a warp do not meet at the same intrinsic\n");
            abort();
        }
        ballot |= (uint64_t)(lanes[l].value != 0) << l;
        least = std::min(least, lanes[l].value);
        most = std::max(most, lanes[l].value);
        sum += lanes[l].value;
        values[l] = lanes[l].value;
    }
    for (int l = 0; l < 32; ++l) {
        lanes[l].answer = kind == BALLOT    ? ballot
                          : kind == LEAST   ? least
                          : kind == MOST    ? most
                          : kind == SUM     ? sum
                          : kind == SHUFFLE ? values[lanes[l].from]
                                            : 0;
        lanes[l].kind = RUNNING;
    }
    return true;
}

inline void run(int count, const std::function<void()>& what) {
    body = what;
    if ((int)threads.size() != count) threads = std::vector<Thread>(count);
    for (Thread& thread : threads) thread.kind = RUNNING;
    while (true) {
        for (current = 0; current < count; ++current)
            if (threads[current].kind == RUNNING) {
                threadIdx = Place{(unsigned int)current, 0, 0};
                give_turn(threads[current]);
            }
        bool answered = false;
        for (int first = 0; first < count; first += 32) answered |= answer_warp(&threads[first]);
        if (answered) continue;
        bool waiting = false;
        uint64_t votes = 0;
        for (Thread& thread : threads) votes += thread.kind == COUNT && thread.value;
        for (Thread& thread : threads)
            if (thread.kind == BLOCK || thread.kind == COUNT) {
                thread.answer = votes;
                thread.kind = RUNNING;
                waiting = true;
            }
        if (!waiting) return;
    }
}

static sigjmp_buf outside;
static void on_fault(int) { siglongjmp(outside, 1); }

// Returns whether the kernel reads or writes beyond the end of an array, where `guarded` has put a page without rights.
template <class... P, class... A> bool launch(void (*kernel)(P...), int across, int down, int count, A... arguments) {
    blockDim = Place{(unsigned int)count, 1, 1};
    gridDim = Place{(unsigned int)across, (unsigned int)down, 1};
    struct sigaction ours = {}, before;
    ours.sa_handler = on_fault;
    sigaction(SIGSEGV, &ours, &before);
    const bool faulty = sigsetjmp(outside, 1);
    if (faulty) threads.clear();  // each is where it was
    for (int y = 0; y < down && !faulty; ++y)
        for (int x = 0; x < across; ++x) {
            blockIdx = Place{(unsigned int)x, (unsigned int)y, 0};
            run(count, [&] { kernel(arguments...); });
        }
    sigaction(SIGSEGV, &before, nullptr);
    return faulty;
}
}  // namespace block

inline unsigned int __ballot_sync(unsigned int, bool vote) { return (unsigned int)block::ask(block::BALLOT, vote); }
inline bool __any_sync(unsigned int, bool vote) { return block::ask(block::BALLOT, vote) != 0; }
inline unsigned int __reduce_min_sync(unsigned int, unsigned int v) { return (unsigned int)block::ask(block::LEAST, v); }
inline unsigned int __reduce_max_sync(unsigned int, unsigned int v) { return (unsigned int)block::ask(block::MOST, v); }
inline int __reduce_add_sync(unsigned int, int v) { return (int)block::ask(block::SUM, (uint64_t)(int64_t)v); }
inline void __syncthreads() { block::ask(block::BLOCK); }
inline int __syncthreads_count(bool vote) { return (int)block::ask(block::COUNT, vote); }
inline void __syncwarp() { block::ask(block::WARP); }
template <class T> inline T __shfl_sync(unsigned int, T v, int from) {
    uint64_t bits = 0;
    memcpy(&bits, &v, sizeof(T));
    bits = block::ask(block::SHUFFLE, bits, from & 31);
    memcpy(&v, &bits, sizeof(T));
    return v;
}
template <class T> inline T __shfl_xor_sync(unsigned int mask, T v, int step) {
    return __shfl_sync(mask, v, (int)(threadIdx.x & 31) ^ step);
}
inline int __ffs(unsigned int v) { return __builtin_ffs((int)v); }
inline int __ffsll(long long v) { return __builtin_ffsll(v); }
inline int __popc(unsigned int v) { return __builtin_popcount(v); }
inline float __int_as_float(int v) { float f; memcpy(&f, &v, 4); return f; }
inline int __float_as_int(float f) { int v; memcpy(&v, &f, 4); return v; }
inline long long __double_as_longlong(double f) { long long v; memcpy(&v, &f, 8); return v; }
inline float __uint_as_float(unsigned int v) { float f; memcpy(&f, &v, 4); return f; }
inline double __longlong_as_double(long long v) { double f; memcpy(&f, &v, 8); return f; }
inline long long __double2ll_rn(double v) { return llrint(v); }
inline unsigned int __float_as_uint(float f) { unsigned int v; memcpy(&v, &f, 4); return v; }
struct int2 { int x, y; };
struct uint2 { unsigned int x, y; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }
inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)((uint64_t)a * b >> 32); }
struct alignas(16) float4 { float x, y, z, w; };
template <class T> inline T __ldcs(const T* at) { return *at; }
template <class T> inline void __stcs(T* at, T v) { *at = v; }
inline int atomicAdd(int* at, int v) { const auto old = *at; *at += v; return old; }
inline int atomicMax(int* at, int v) { const auto old = *at; *at = std::max(old, v); return old; }
inline unsigned int atomicMax(unsigned int* at, unsigned int v) { const auto old = *at; *at = std::max(old, v); return old; }
inline unsigned long long atomicMax(unsigned long long* at, unsigned long long v) { const auto old = *at; *at = std::max(old, v); return old; }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long v) { const auto old = *at; *at += v; return old; }
inline unsigned long long atomicOr(unsigned long long* at, unsigned long long v) { const auto old = *at; *at |= v; return old; }
inline unsigned long long atomicMin(unsigned long long* at, unsigned long long v) { const auto old = *at; *at = std::min(old, v); return old; }
inline int min(int a, int b) { return std::min(a, b); }
inline int max(int a, int b) { return std::max(a, b); }
using std::fabs;
using std::fma;
using std::fmax;
using std::fmin;
