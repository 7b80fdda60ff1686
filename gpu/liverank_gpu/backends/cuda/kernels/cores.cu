// Core numbers (liverank_gpu.operations.analysis), by peeling: for k = 0, 1, …, vertices of degree k leave until there are
// none, and lower the degrees of their neighbours.
//
// Launch: BLOCK threads a block, all blocks resident (cooperative), since they synchronise after each step.
// Traffic: per edge and direction 4 bytes of neighbour id, and a random atomic addition unless the neighbour has left; for
// each k twice the list of vertices that remain.
#include <cooperative_groups.h>
#include "common.cuh"

// Another thread may write it: never from a cache that is not coherent.
template <typename T> __device__ __forceinline__ T newest(const T* address) { return *(const volatile T*)address; }

__device__ __forceinline__ int warp_minimum(int value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        const int other = __shfl_xor_sync(FULL, value, step);
        value = other < value ? other : value;
    }
    return value;
}

#if !WEIGHTED
// degree: the row lengths, and the core numbers in the end. remaining, others: int[n], of which the first has all vertices.
// queue: int[n]. counts: zero, but for REMAINING.
__global__ void __launch_bounds__(BLOCK, 2) core_numbers(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries, int* degree,
    int* remaining, int* others, int* queue, int64* counts) {
    const cooperative_groups::grid_group grid = cooperative_groups::this_grid();
    const int64 thread = (int64)blockIdx.x * BLOCK + threadIdx.x, threads = (int64)gridDim.x * BLOCK;
    const int lane = threadIdx.x % WARP;
    volatile int64* const numbers = counts;
    uint64* const counters = reinterpret_cast<uint64*>(counts);
    int64 left = 0;  // vertices that have left, the first ones of the queue
    int k = 0;
    int64 step = 0;  // each kind of count has three places, used in turn
    for (int64 level = 0;; ++level) {
        const int64 count = numbers[CoreCount::REMAINING + level % 3];
        if (count == 0) return;
        if (thread == 0) {
            numbers[CoreCount::REMAINING + (level + 2) % 3] = 0;
            numbers[CoreCount::LEAST + (level + 1) % 3] = 0;
            numbers[CoreCount::QUEUED + (step + 2) % 3] = 0;
        }
        int least = 0x7fffffff;
        for (int64 at = thread; at < count; at += threads) {
            const int v = remaining[at], d = newest(degree + v);
            if (d < k) continue;  // it has left
            if (d == k) {
                queue[left + append(counters + CoreCount::QUEUED + (step + 1) % 3)] = v;
            } else {
                others[append(counters + CoreCount::REMAINING + (level + 1) % 3)] = v;
                least = d < least ? d : least;
            }
        }
        least = warp_minimum(least);
        // the largest distance from the top: the counts begin at 0
        if (lane == 0) atomicMax(counters + CoreCount::LEAST + level % 3, (uint64)(0x7fffffff - least));
        grid.sync();
        ++step;
        bool found = false;
        for (;;) {
            const int64 first = left, queued = numbers[CoreCount::QUEUED + step % 3];
            if (queued == 0) break;
            found = true;
            left += queued;
            if (thread == 0) numbers[CoreCount::QUEUED + (step + 2) % 3] = 0;
            for (int64 at = first + thread / WARP; at < left; at += threads / WARP) {
                const int v = newest(queue + at);
                const int64 begin = starts[v];
                for (int entry = lane; entry < lengths[v]; entry += WARP) {
                    const int u = entries[begin + entry];
                    if (newest(degree + u) <= k) continue;
                    const int before = atomicAdd(degree + u, -1);
                    if (before <= k) atomicAdd(degree + u, 1);  // others were faster
                    else if (before == k + 1) queue[left + append(counters + CoreCount::QUEUED + (step + 1) % 3)] = u;
                }
            }
            grid.sync();
            ++step;
        }
        k = found ? k + 1 : 0x7fffffff - (int)numbers[CoreCount::LEAST + level % 3];
        int* const swapped = remaining;
        remaining = others;
        others = swapped;
    }
}

// How many neighbours have at least this bound; the warp counts until there are `least` of them.
__device__ __forceinline__ int reaching(const int* row, int length, const int* bounds, int least) {
    int found = 0;
    for (int base = 0; base < length && found < least; base += WARP) {
        const int at = base + threadIdx.x % WARP;
        found += __popc(__ballot_sync(FULL, at < length && newest(bounds + row[at]) >= least));
    }
    return found;
}

// Lowers the bounds of some rows to the largest h of which h neighbours have bounds of at least h, a warp each.
// fallen: zero before; how many fell.
__global__ void __launch_bounds__(BLOCK) lower_cores(
    const int64* __restrict__ starts, const int* __restrict__ lengths, const int* __restrict__ entries,
    const int* __restrict__ order, int64 rows, int* bounds, int* __restrict__ blocks, int shift, int now,
    uint64* __restrict__ fallen) {
    const int lane = threadIdx.x % WARP;
    uint64 fell = 0;
    for (int64 at = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP; at < rows; at += (int64)gridDim.x * (BLOCK / WARP)) {
        const int v = order[at], length = lengths[v], bound = newest(bounds + v);
        const int* row = entries + starts[v];
        int low = reaching(row, length, bounds, bound), high = bound - 1;
        if (low >= bound) continue;
        while (low < high) {
            const int middle = (low + high + 1) / 2;
            if (reaching(row, length, bounds, middle) >= middle) low = middle;
            else high = middle - 1;
        }
        ++fell;
        if (lane == 0) {
            atomicExch(bounds + v, low);
            blocks[v >> shift] = now;
        }
    }
    if (lane == 0 && fell > 0) atomicAdd(fallen, fell);
}
#endif
