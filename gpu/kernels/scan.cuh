// Prefix sums over a whole grid in one pass ("decoupled look-back", Merrill and Garland, 2016), and work that is shared
// evenly among small groups of threads whatever the lengths of the rows.
//
// A scan is uint64[1 + tiles], zeroed before the launch: a ticket, then one word a tile. Tiles are taken by ticket, so a
// tile only ever waits for tiles that have begun. A word holds a state (bits 62, 63) and a sum (62 bits), written at once:
// no fence is needed. Sums of integers do not depend on the order in which tiles meet.

constexpr int ITEMS = 4;              // items of a thread, WARP apart: threads of a warp read and write side by side
constexpr int TILE = BLOCK * ITEMS;   // items of a block
constexpr uint64 OWN = 1ull << 62;    // the word holds the tile's own sum
constexpr uint64 ALL = 1ull << 63;    // the word holds the sum up to and with the tile
constexpr uint64 SUM = OWN - 1;
constexpr int HALF = 31;              // two counts share a sum: the second is shifted by HALF
constexpr uint64 LOW = (1ull << HALF) - 1;

__device__ __forceinline__ int64 take_tile(uint64* scan) {
    __shared__ int64 tile;
    if (threadIdx.x == 0) tile = (int64)atomicAdd(scan, 1ull);
    __syncthreads();
    return tile;
}

__device__ __forceinline__ uint64 warp_total(uint64 value) {
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) value += __shfl_xor_sync(FULL, value, step);
    return value;
}

// The first item of this thread; the others follow WARP apart.
__device__ __forceinline__ int64 first_item(int64 tile, int items) {
    return tile * BLOCK * items + threadIdx.x / WARP * WARP * items + threadIdx.x % WARP;
}

// Makes each of COUNT values of each item the sum of that value over all items before it. Every thread of the block takes
// part. One warp looks back for each value.
template <int COUNT, int N>
__device__ __forceinline__ void sums_before(uint64* const (&scans)[COUNT], int64 tile, uint64 (&values)[COUNT][N]) {
    __shared__ uint64 warps[COUNT][WARPS];
    __shared__ uint64 earlier_tiles[COUNT];
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
#pragma unroll
    for (int value = 0; value < COUNT; ++value) {
        uint64 earlier = 0;  // of the warp's earlier items
#pragma unroll
        for (int item = 0; item < N; ++item) {
            uint64 through = values[value][item];  // with the item's own
#pragma unroll
            for (int step = 1; step < WARP; step *= 2) {
                const uint64 other = __shfl_up_sync(FULL, through, step);
                if (lane >= step) through += other;
            }
            values[value][item] = earlier + through - values[value][item];
            earlier += __shfl_sync(FULL, through, WARP - 1);
        }
        if (lane == 0) warps[value][warp] = earlier;
    }
    __syncthreads();
    if (warp < COUNT) {
        uint64* const scan = COUNT == 1 || warp == 0 ? scans[0] : COUNT > 2 && warp == 1 ? scans[1] : scans[COUNT - 1];
        volatile uint64* words = scan + 1;
        uint64 block = 0, sum = 0;
#pragma unroll
        for (int other = 0; other < WARPS; ++other) block += warps[warp][other];
        if (lane == 0) words[tile] = (tile == 0 ? ALL : OWN) | block;
        for (int64 end = tile; end > 0; end -= WARP) {
            const int64 at = end - WARP + lane;
            uint64 word = ALL;
            if (at >= 0)
                do word = words[at];
                while (word < OWN);
            const unsigned complete = __ballot_sync(FULL, word >= ALL);
            const int nearest = complete ? WARP - 1 - __clz((int)complete) : 0;
            sum += warp_total(lane >= nearest ? word & SUM : 0);
            if (complete) break;
        }
        if (lane == 0) {
            if (tile > 0) words[tile] = ALL | (sum + block);
            earlier_tiles[warp] = sum;
        }
    }
    __syncthreads();
#pragma unroll
    for (int value = 0; value < COUNT; ++value) {
        uint64 earlier = earlier_tiles[value];
#pragma unroll
        for (int other = 0; other < WARPS; ++other)
            if (other < warp) earlier += warps[value][other];
#pragma unroll
        for (int item = 0; item < N; ++item) values[value][item] += earlier;
    }
}

template <int N>
__device__ __forceinline__ void sums_before(uint64* scan, int64 tile, uint64 (&values)[1][N]) {
    uint64* const scans[1] = {scan};
    sums_before(scans, tile, values);
}

// Adds the values of all threads of the block to a counter. Every thread of the block takes part.
__device__ __forceinline__ void count(int64* counter, int64 value) {
    const uint64 sum = warp_total((uint64)value);
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

// Rows are read four slots (a quad, 16 bytes) a thread. A row is worth one unit of work and one for each quad, and warps
// share the units evenly, so that neither many empty rows nor one long one keeps a warp longer than the others.
constexpr int QUAD = 4;
constexpr int LONG = 2 * WARP;  // units of one row from which a warp reads it as a whole

__device__ __forceinline__ int64 quads_of(int64 slots) { return (slots + QUAD - 1) / QUAD; }

// Calls `whole(row, first, last)` with all threads of a warp for a range of quads of a long row, and `one(row, quad)` with
// single threads for the quads of short ones, until all `units` of `rows` are done. `begins(row)` is the number of units
// before a row, for 0 … rows. Threads of a warp stay together: where they do not, they wait for memory one after the other.
template <class Begins, class Whole, class One>
__device__ __forceinline__ void share_rows(int64 units, int64 rows, Begins begins, Whole whole, One one) {
    const int lane = threadIdx.x % WARP;
    const int64 warp = ((int64)blockIdx.x * BLOCK + threadIdx.x) / WARP, warps = (int64)gridDim.x * WARPS;
    const int64 each = (units + warps - 1) / warps;
    int64 at = warp * each;
    const int64 end = at + each < units ? at + each : units;
    if (at >= end) return;
    int64 row = 0, above = rows;
    while (above - row > 1) {
        const int64 step = (above - row + WARP - 1) / WARP, probe = row + (lane + 1) * step;
        const int passed = __popc(__ballot_sync(FULL, probe < above && begins(probe) <= at));
        row += passed * step;
        above = row + step < above ? row + step : above;
    }
    while (at < end) {
        const int64 unit = at + lane;
        const int64 following = row + 1 + lane < rows ? begins(row + 1 + lane) : units;
        const int64 here = begins(row), after = __shfl_sync(FULL, following, 0);
        const int64 until = after < end ? after : end;
        if (until - at >= LONG) {
            // the first unit of a row stands for the row itself
            whole(row, at > here ? at - here - 1 : 0, until - here - 1);
            at = until;
            row += 1;
            continue;
        }
        int later = 0;  // rows that begin after this one and at or before the thread's unit
#pragma unroll
        for (int step = WARP / 2; step > 0; step /= 2)
            if (__shfl_sync(FULL, following, later + step - 1) <= unit) later += step;
        const int64 previous = __shfl_sync(FULL, following, later > 0 ? later - 1 : 0);
        const int64 begin = later > 0 ? previous : here;
        if (unit < end && unit > begin) one(row + later, unit - begin - 1);
        at += WARP;
        const int last = __shfl_sync(FULL, later, WARP - 1);
        row += last + (__shfl_sync(FULL, following, last) <= at);
    }
}

// The longest row of a class when rows are put into classes; not of the last class, which has no end.
__device__ __forceinline__ int64 longest_of(int row_class) {
    return row_class == 0   ? LONGEST_0
           : row_class == 1 ? LONGEST_1
           : row_class == 2 ? LONGEST_2
           : row_class == 3 ? LONGEST_3
           : row_class == 4 ? LONGEST_4
                            : LONGEST_5;
}

// Slots of a row of `length` that outgrew its place: a quarter more, at least 4.
__device__ __forceinline__ int64 roomy(int64 length) { return quads_of(length + length / 4) * QUAD; }
