// Grid-wide exclusive sums in one pass with decoupled look-back (Merrill and Garland, "Single-pass parallel prefix scan with
// decoupled look-back", NVIDIA, 2016), and load balancing of rows over warps. CUB's DeviceScan is no replacement: here the
// values are computed, and their prefixes used, in the same kernel.
//
// A scan is uint64[1 + tiles], zero before the launch: a counter of tiles, then a tile state for each. Tiles are numbered as
// blocks begin, so a tile waits only for tiles that are running. A state holds a status (bits 62 and 63) and a sum (62 bits) in
// one word, so it needs no fence. Sums of integers do not depend on the order of the tiles.
#include "common.cuh"

constexpr int ITEMS = 4;                   // items of a thread, WARP apart: a warp reads and writes consecutive items
constexpr int TILE = BLOCK * ITEMS;        // items of a block
static_assert(TILE == SCAN_TILE, "liverank_gpu.operations.graph.SCAN_TILE");
constexpr uint64 AGGREGATE = 1ull << 62;   // the state holds the sum of the tile
constexpr uint64 INCLUSIVE = 1ull << 63;   // the state holds the inclusive prefix: the sum of this and all earlier tiles
constexpr uint64 SUM_BITS = AGGREGATE - 1;
constexpr int HALF = 31;                   // two counts in one sum: the second is shifted by HALF
constexpr uint64 LOW = (1ull << HALF) - 1;

__device__ __forceinline__ int64 next_tile(uint64* scan) {
    __shared__ int64 tile;
    __syncthreads();  // all threads are done with the tile before
    if (threadIdx.x == 0) tile = (int64)atomicAdd(scan, 1ull);
    __syncthreads();
    return tile;
}

// `body(tile)` for the tiles of a scan over `items`, as far as this block gets. Every thread of the block takes part.
template <class Body>
__device__ __forceinline__ void over_tiles(uint64* scan, int64 items, int64 block, Body body) {
    if (block * TILE >= items) return;
    if (items <= TILE) {  // which needs no number
        __syncthreads();  // all threads are done with the tile before
        body(0);
        return;
    }
    for (int64 tile = next_tile(scan); tile * TILE < items; tile = next_tile(scan)) body(tile);
}

// The first item of this thread; the others follow WARP apart.
__device__ __forceinline__ int64 first_item(int64 tile, int items) {
    return tile * BLOCK * items + threadIdx.x / WARP * WARP * items + threadIdx.x % WARP;
}

// The exclusive prefix of a tile, by one warp, which publishes the tile's state before and after. aggregate: its sum.
__device__ __forceinline__ uint64 tile_prefix(uint64* scan, int64 tile, uint64 aggregate) {
    const int lane = threadIdx.x % WARP;
    volatile uint64* states = scan + 1;
    uint64 prefix = 0;
    if (lane == 0) states[tile] = (tile == 0 ? INCLUSIVE : AGGREGATE) | aggregate;
    for (int64 end = tile; end > 0; end -= WARP) {  // look back over a window of WARP tiles
        const int64 at = end - WARP + lane;
        uint64 state = INCLUSIVE;
        if (at >= 0)
            do state = states[at];
            while (state < AGGREGATE);
        const unsigned inclusive = __ballot_sync(FULL, state >= INCLUSIVE);
        const int nearest = inclusive ? WARP - 1 - __clz((int)inclusive) : 0;
        prefix += warp_sum(lane >= nearest ? state & SUM_BITS : 0);
        if (inclusive) break;
    }
    if (lane == 0 && tile > 0) states[tile] = INCLUSIVE | (prefix + aggregate);
    return prefix;
}

// Replaces each of COUNT values of each item by the exclusive sum of that value over all items of the grid. Every thread of the
// block takes part. One warp looks back for each value.
template <int COUNT, int N>
__device__ __forceinline__ void exclusive_sums(uint64* const (&scans)[COUNT], int64 tile, uint64 (&values)[COUNT][N]) {
    __shared__ uint64 warp_sums[COUNT][WARPS];
    __shared__ uint64 tile_prefixes[COUNT];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int value = 0; value < COUNT; ++value) {
        uint64 running = 0;  // the sum of the warp's earlier items
#pragma unroll
        for (int item = 0; item < N; ++item) {
            uint64 inclusive = values[value][item];
#pragma unroll
            for (int step = 1; step < WARP; step *= 2) {
                const uint64 other = __shfl_up_sync(FULL, inclusive, step);
                if (lane >= step) inclusive += other;
            }
            values[value][item] = running + inclusive - values[value][item];
            running += __shfl_sync(FULL, inclusive, WARP - 1);
        }
        if (lane == 0) warp_sums[value][warp] = running;
    }
    __syncthreads();
    if (warp < COUNT) {
        uint64* const scan = COUNT == 1 || warp == 0 ? scans[0] : COUNT > 2 && warp == 1 ? scans[1] : scans[COUNT - 1];
        uint64 aggregate = 0;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) aggregate += warp_sums[warp][other];
        const uint64 prefix = tile_prefix(scan, tile, aggregate);
        if (lane == 0) tile_prefixes[warp] = prefix;
    }
    __syncthreads();
#pragma unroll
    for (int value = 0; value < COUNT; ++value) {
        uint64 prefix = tile_prefixes[value];
#pragma unroll
        for (int other = 0; other < WARPS; ++other)
            if (other < warp) prefix += warp_sums[value][other];
#pragma unroll
        for (int item = 0; item < N; ++item) values[value][item] += prefix;
    }
}

template <int N>
__device__ __forceinline__ void exclusive_sums(uint64* scan, int64 tile, uint64 (&values)[1][N]) {
    uint64* const scans[1] = {scan};
    exclusive_sums(scans, tile, values);
}

// Adds the values of all threads to a counter. Every thread of the block takes part.
__device__ __forceinline__ void count(int64* counter, int64 value) {
    const uint64 sum = warp_sum((uint64)value);
    if (threadIdx.x % WARP == 0 && sum != 0) atomicAdd((uint64*)counter, sum);
}

__device__ __forceinline__ void count_largest(int64* counter, int64 value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) {
        const int64 other = __shfl_xor_sync(FULL, value, step);
        if (other > value) value = other;
    }
    if (threadIdx.x % WARP == 0 && value > 0) atomicMax(counter, value);
}

// A thread reads four slots (a quad, 16 bytes) at once. A row is one unit of work plus one for each quad, and the units are
// divided evenly among warps: neither many empty rows nor one long row keeps a warp longer than others.
constexpr int QUAD = ALIGNMENT;
constexpr int LONG = 2 * WARP;  // units of one row from which the warp reads it as a whole

__device__ __forceinline__ int64 quads_of(int64 slots) { return (slots + QUAD - 1) / QUAD; }

// Calls `whole(row, first, last)` with all threads of a warp for a range of quads of a long row, and `one(row, quad)` with
// single threads for the quads of short rows, until all `units` of `rows` are done. `begins(row)` is the number of units before
// a row, for 0 … rows. The threads of a warp stay converged: if they diverged, their loads would wait for one another.
template <class Begins, class Whole, class One>
__device__ __forceinline__ void balance_rows(
    int64 units, int64 rows, Begins begins, Whole whole, One one, int64 block = blockIdx.x) {
    const int lane = threadIdx.x % WARP;
    const int64 warp = (block * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    const int64 each = (units + warps - 1) / warps;
    int64 at = warp * each;
    const int64 end = at + each < units ? at + each : units;
    if (at >= end) return;
    int64 row = 0, above = rows;  // the row of unit `at`, by a search with WARP + 1 parts a step
    while (above - row > 1) {
        const int64 step = (above - row + WARP - 1) / WARP, probe = row + (lane + 1) * step;
        const int passed = __popc(__ballot_sync(FULL, probe < above && begins(probe) <= at));
        row += passed * step;
        above = row + step < above ? row + step : above;
    }
    while (at < end) {
        const int64 unit = at + lane;
        const int64 following = row + 1 + lane < rows ? begins(row + 1 + lane) : units;
        const int64 row_begin = begins(row), row_end = __shfl_sync(FULL, following, 0);
        const int64 until = row_end < end ? row_end : end;
        if (until - at >= LONG) {
            // the first unit of a row is the row itself
            whole(row, at > row_begin ? at - row_begin - 1 : 0, until - row_begin - 1);
            at = until;
            row += 1;
            continue;
        }
        int later = 0;  // rows that begin after this one, at or before the thread's unit
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
            if (__shfl_sync(FULL, following, later + step - 1) <= unit) later += step;
        const int64 previous = __shfl_sync(FULL, following, later > 0 ? later - 1 : 0);
        const int64 begin = later > 0 ? previous : row_begin;
        if (unit < end && unit > begin) one(row + later, unit - begin - 1);
        at += WARP;
        const int last = __shfl_sync(FULL, later, WARP - 1);
        row += last + (__shfl_sync(FULL, following, last) <= at);
    }
}

// The longest row that goes to a degree bin; the last bin has no limit.
__device__ __forceinline__ int64 limit_of(int bin) {
    return bin == 0   ? BIN_LIMIT_0
           : bin == 1 ? BIN_LIMIT_1
           : bin == 2 ? BIN_LIMIT_2
           : bin == 3 ? BIN_LIMIT_3
           : bin == 4 ? BIN_LIMIT_4
                      : BIN_LIMIT_5;
}

// Slots of a row that outgrew its capacity: a quarter more than it needs, and at least 4.
__device__ __forceinline__ int64 roomy_slots(int64 length) { return quads_of(length + length / 4) * QUAD; }

// Keys of operations on edges: see liverank_gpu.operations.graph.GraphOperations.
constexpr int64 NO_KEY = 0x7fffffffffffffffll;

__device__ __forceinline__ int64 row_of_key(int64 key) { return key >> 32; }
__device__ __forceinline__ int64 neighbour_of_key(int64 key) { return key >> 1 & 0x7fffffff; }
__device__ __forceinline__ int64 key_of(int64 row, int64 neighbour, int64 operation) {
    return row << 32 | neighbour << 1 | operation;
}

// How many of a few keys come before that at `at`, counted by a warp; equal ones in their order. All keys stay in the L1
// caches: comparing 4096 of them takes as long as one launch.
__device__ __forceinline__ int keys_before(const int64* keys, int64 total, int64 at) {
    const int lane = threadIdx.x % WARP;
    const int64 key = at < total ? keys[at] : NO_KEY;
    int before = 0;
#pragma unroll 4
    for (int64 other = lane; other < total; other += WARP) {
        const int64 compared = keys[other];
        before += compared < key || (compared == key && other < at);
    }
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) before += __shfl_xor_sync(FULL, before, step);
    return before;
}
