// Prefix sums over a whole grid in one pass ("decoupled look-back", Merrill and Garland, 2016), and work that is shared
// evenly among small groups of threads whatever the lengths of the rows.
//
// A scan is uint64[1 + tiles], zeroed before the launch: a ticket, then one word a tile. Tiles are taken by ticket, so a
// tile only ever waits for tiles that have begun. A word holds a state (bits 62, 63) and a sum (62 bits), written at once:
// no fence is needed. Sums of integers do not depend on the order in which tiles meet.

using uint64 = unsigned long long;

constexpr int ITEMS = 4;              // consecutive items of a thread
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

// The sum of all `value`s of the threads, blocks and tiles before this thread. Every thread of the block takes part.
__device__ __forceinline__ uint64 sum_before(uint64* scan, int64 tile, uint64 value) {
    __shared__ uint64 warps[WARPS];
    __shared__ uint64 earlier_tiles;
    const int lane = threadIdx.x % WARP, warp = threadIdx.x / WARP;
    uint64 through = value;  // inclusive, within the warp
#pragma unroll
    for (int step = 1; step < WARP; step *= 2) {
        const uint64 other = __shfl_up_sync(FULL, through, step);
        if (lane >= step) through += other;
    }
    if (lane == WARP - 1) warps[warp] = through;
    __syncthreads();
    uint64 earlier_warps = 0, block = 0;
#pragma unroll
    for (int other = 0; other < WARPS; ++other) {
        if (other < warp) earlier_warps += warps[other];
        block += warps[other];
    }
    if (warp == 0) {
        volatile uint64* words = scan + 1;
        if (lane == 0) words[tile] = (tile == 0 ? ALL : OWN) | block;
        uint64 sum = 0;
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
            earlier_tiles = sum;
        }
    }
    __syncthreads();
    const uint64 before = earlier_tiles + earlier_warps + through - value;
    __syncthreads();
    return before;
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

// Rows are read by groups of GROUP threads, four slots (a quad, 16 bytes) a thread. A row is worth one unit of work and
// one for each quad, so that neither many empty rows nor one long one keeps a group longer than the others.
constexpr int GROUP = 8;
constexpr int QUAD = 4;

__device__ __forceinline__ int64 quads_of(int64 slots) { return (slots + QUAD - 1) / QUAD; }

struct Share {
    int64 begin, end;  // units of work
    int lane;
};

__device__ __forceinline__ Share share_of(int64 units) {
    const int64 thread = (int64)blockIdx.x * BLOCK + threadIdx.x;
    const int64 group = thread / GROUP, groups = (int64)gridDim.x * (BLOCK / GROUP);
    const int64 each = (units + groups - 1) / groups;
    const int64 begin = group * each, end = begin + each;
    return {begin, end < units ? end : units, (int)(thread % GROUP)};
}

// The last row in 0 … rows-1 whose work begins at or before `unit`; `begins(row)` ascends and begins(0) is 0.
template <class Begins>
__device__ __forceinline__ int64 row_at(int64 unit, int64 rows, Begins begins) {
    int64 low = 0, high = rows;
    while (high - low > 1) {
        const int64 middle = (low + high) / 2;
        if (begins(middle) <= unit) low = middle;
        else high = middle;
    }
    return low;
}

// The longest row of a class when rows are put into classes; not of the last class, which has no end.
__device__ __forceinline__ int64 longest_of(int row_class) {
    return row_class == 0 ? LONGEST_0 : row_class == 1 ? LONGEST_1 : LONGEST_2;
}

// Slots of a row of `length` that outgrew its place: a quarter more, at least 4.
__device__ __forceinline__ int64 roomy(int64 length) { return quads_of(length + length / 4) * QUAD; }
