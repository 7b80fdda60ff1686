// Shared by all kernels: reductions of a fixed shape, list positions and searches.
//
// Sums are reduced by shuffles and shared memory, in an order that depends on the launch shape alone, and never by
// floating-point atomics: the same input gives the same bits.
#include "vertex.h"

using namespace vertex;

using int64 = long long;
using uint8 = unsigned char;
using uint64 = unsigned long long;

template <bool FIRST, typename First, typename Second> struct Either { using Type = First; };
template <typename First, typename Second> struct Either<false, First, Second> { using Type = Second; };

// liverank_gpu.operations.csr.Csr: row v has the entries starts[v] … starts[v] + lengths[v] - 1. weights: null without.
struct Lists {
    const int64* starts;
    const int* lengths;
    const int* indices;
    const float* weights;

    __device__ __forceinline__ double weight(int64 slot) const {
        if constexpr (WEIGHTED) return weights[slot];
        else return 1.0;
    }
};

constexpr int WARPS = BLOCK / WARP;
constexpr unsigned FULL = 0xffffffffu;

__device__ __forceinline__ int64 thread_of_grid() { return (int64)blockIdx.x * BLOCK + threadIdx.x; }
__device__ __forceinline__ int64 threads_of_grid() { return (int64)gridDim.x * BLOCK; }

// What a cooperative kernel tells the host. counts: zero before and after a launch. told: memory of the host.
struct Answer {
    int64* counts;
    int64* told;
};

// Ends such a kernel: the host gets its first `size` counts. Every thread of the grid takes part.
template <class Grid>
__device__ __forceinline__ void tell(const Grid& grid, const Answer& answer, int size) {
    grid.sync();
    if (blockIdx.x > 0 || threadIdx.x >= size) return;
    answer.told[threadIdx.x] = answer.counts[threadIdx.x];
    answer.counts[threadIdx.x] = 0;
}

// The sum of `value` over each group of LANES neighbouring threads, in all of them. LANES is a power of two up to 32, or
// BLOCK. Every thread of the block takes part.
template <int LANES>
__device__ __forceinline__ double group_sum(double value) {
    constexpr int WIDTH = LANES < WARP ? LANES : WARP;
#pragma unroll
    for (int step = WIDTH / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    if constexpr (LANES == BLOCK) {
        __shared__ double warps[WARPS];
        if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
        __syncthreads();
        value = 0.0;
#pragma unroll
        for (int warp = 0; warp < WARPS; ++warp) value += warps[warp];
        __syncthreads();
    }
    return value;
}

__device__ __forceinline__ double block_max(double value) {
    __shared__ double warps[WARPS];
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        value = fmax(value, __shfl_xor_sync(FULL, value, step));
    if (threadIdx.x % WARP == 0) warps[threadIdx.x / WARP] = value;
    __syncthreads();
    value = warps[0];
#pragma unroll
    for (int warp = 1; warp < WARPS; ++warp) value = fmax(value, warps[warp]);
    __syncthreads();
    return value;
}

__device__ __forceinline__ uint64 warp_sum(uint64 value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    return value;
}

// The inclusive sum over the lanes of a warp.
__device__ __forceinline__ int inclusive_sum(int value) {
    const int lane = threadIdx.x % WARP;
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        const int other = __shfl_up_sync(FULL, value, step);
        if (lane >= step) value += other;
    }
    return value;
}

// The first lane whose `end` is above `edge`; ends ascend over the lanes of the warp. Every lane takes part.
__device__ __forceinline__ int lane_of(int end, int edge) {
    int lane = 0;
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2)
        if (__shfl_sync(FULL, end, lane + step - 1) <= edge) lane += step;
    return lane;
}

// The next position of a list, for every thread that calls; the threads of a warp that call together add once.
__device__ __forceinline__ int64 append(uint64* count) {
    const unsigned callers = __activemask();
    const int lane = threadIdx.x % WARP, first = __ffs((int)callers) - 1;
    uint64 base = 0;
    if (lane == first) base = atomicAdd(count, (uint64)__popc(callers));
    base = __shfl_sync(callers, base, first);
    return (int64)base + __popc(callers & ((1u << lane) - 1));
}

// Lists the chunks of the row at each lane's position of a work-list: position << 32 | chunk. The warp lists those of a long
// row together. Every lane takes part.
__device__ __forceinline__ void list_chunks(int chunks, int64 position, int64* items, uint64* count) {
    const int lane = threadIdx.x % WARP, through = inclusive_sum(chunks);
    uint64 place = 0;
    if (lane == WARP - 1 && through > 0) place = atomicAdd(count, (uint64)through);
    place = __shfl_sync(FULL, place, WARP - 1) + through - chunks;
    if (chunks == 1) items[place] = position << 32;
    unsigned long_rows = __ballot_sync(FULL, chunks > 1);
    while (long_rows) {
        const int from = __ffs((int)long_rows) - 1;
        long_rows &= long_rows - 1;
        const int64 begin = __shfl_sync(FULL, (int64)place, from), row = __shfl_sync(FULL, position, from);
        const int some = __shfl_sync(FULL, chunks, from);
        for (int chunk = lane; chunk < some; chunk += WARP) items[begin + chunk] = row << 32 | chunk;
    }
}

// The first of `count` ascending ends that is above `position`; the last one is. So an item is found in concatenated lists.
__device__ __forceinline__ int64 first_above(const int64* ends, int64 count, int64 position) {
    int64 low = 0, high = count - 1;
    while (low < high) {
        const int64 middle = (low + high) / 2;
        if (ends[middle] > position) high = middle;
        else low = middle + 1;
    }
    return low;
}

// The first index in low … high-1 whose number is at least `value`, else `high`; the numbers ascend.
template <class Index>
__device__ __forceinline__ Index first_from(const int* numbers, Index low, Index high, int value) {
    while (low < high) {
        const Index middle = (low + high) / 2;
        if (numbers[middle] < value) low = middle + 1;
        else high = middle;
    }
    return low;
}

// What goes along the edge in a slot if an edge of weight 1 gets `amount`.
__device__ __forceinline__ double edge_amount(double amount, const float* __restrict__ weights, int64 slot) {
    if constexpr (WEIGHTED) return amount * weights[slot];
    else return amount;
}

// The nearest bfloat16, the upper half of a float32: 8 bits of precision, all of its range. Ties to even. If WEIGHTED, the
// largest one instead of infinity.
__device__ __forceinline__ unsigned round_to_bfloat16(float value) {
    constexpr float LARGEST = 0x1.fep127f;
    if constexpr (WEIGHTED) value = fminf(fmaxf(value, -LARGEST), LARGEST);
    const unsigned bits = __float_as_uint(value);
    return (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

// Ids that callers know become positions when they enter a key (liverank_gpu.graph.vertices). `positions` holds those of the
// ids below `permuted`; every other id is its own position.
template <class Id>
__device__ __forceinline__ int64 position_of(Id id, const int* __restrict__ positions, int64 permuted) {
    return id >= 0 && id < permuted ? positions[id] : (int64)id;
}

constexpr int FEW = 8;  // entries of a row that one thread looks at

// The slot of the first entry of each thread's row that is marked, or -1; `open`: whether the thread has a row. The warp looks
// together at what is behind FEW entries. Adds to `read` the entries that were read.
template <class Mark>
__device__ __forceinline__ int64 find_marked(bool open, int64 v, const Lists& lists, const Mark* marks, int64& read) {
    const int lane = threadIdx.x % WARP, count = open ? lists.lengths[v] : 0;
    const int64 begin = open ? lists.starts[v] : 0;
    int64 found = -1;
    for (int entry = 0; entry < count && entry < FEW && found < 0; ++entry, ++read)
        if (marks[lists.indices[begin + entry]]) found = begin + entry;
    unsigned waiting = __ballot_sync(FULL, count > FEW && found < 0);
    while (waiting) {
        const int row = __ffs((int)waiting) - 1;
        waiting &= waiting - 1;
        const int64 row_begin = __shfl_sync(FULL, begin, row);
        const int row_count = __shfl_sync(FULL, count, row);
        for (int base = FEW; base < row_count; base += WARP) {
            const bool inside = base + lane < row_count;
            read += inside;
            const unsigned hits = __ballot_sync(FULL, inside && marks[lists.indices[row_begin + base + lane]]);
            if (hits == 0) continue;
            if (lane == row) found = row_begin + base + __ffs((int)hits) - 1;
            break;
        }
    }
    return found;
}
