// Lays out all rows of one direction anew: after a load, when the pool is used up, and the partition by length for the
// sweeps (backends/base.py, pack_rows, copy_rows, partition, distinct, fill_rows). At bandwidth, and no atomics on floats.
//
//     pack_rows   start and capacity of rows packed tight, by a prefix sum over the lengths: 4 bytes read, 12 written a row
//     copy_rows   all rows to where pack_rows put them, in another pool: 8 bytes an entry, 20 a row
//     partition   rows by class of length, ascending in each: 8 bytes read, 5 written a row
//     distinct    drops repeats and loops from sorted keys, in place: 16 bytes a key
//     first_key, row_length, fill_rows  distinct keys to rows: 8 bytes read thrice, 4 written an edge
//     count_buckets, gather_keys  a load sorts a range of rows at a time: 4 bytes an edge, and 4 to 8 read, 8 written;
//                 a random read or two more where the graph has an order of its own
//     list_entries  all entries as two columns, for audits: 12 bytes an entry
//
// Launch: BLOCK threads a block; a block a tile for pack_rows, partition and distinct; any grid for the others.

constexpr int64 NO_KEY = 0x7fffffffffffffffll;

__global__ void __launch_bounds__(BLOCK) pack_rows(
    const int* __restrict__ length, int64 vertices, int64 begin, uint64* scan, int64* __restrict__ start,
    int* __restrict__ capacity) {
    const int64 tile = take_tile(scan);
    const int64 first = first_item(tile, ITEMS);
    int quads[ITEMS];
    uint64 sums[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        quads[item] = row < vertices ? (int)quads_of(length[row]) : 0;
        sums[0][item] = (uint64)quads[item];
    }
    sums_before(scan, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= vertices) continue;
        start[row] = begin + (int64)sums[0][item] * QUAD;
        capacity[row] = quads[item] * QUAD;
    }
}

__global__ void __launch_bounds__(BLOCK) copy_rows(
    const int64* __restrict__ start, const int4* __restrict__ pool, int64 vertices,
    const int64* __restrict__ new_start, int64 new_end, int4* __restrict__ new_pool) {
    const auto begins = [&](int64 row) { return row + (row < vertices ? new_start[row] : new_end) / QUAD; };
    const auto one = [&](int64 row, int64 quad) {
        new_pool[new_start[row] / QUAD + quad] = pool[start[row] / QUAD + quad];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        const int4* from = pool + start[row] / QUAD;
        int4* to = new_pool + new_start[row] / QUAD;
#pragma unroll 4
        for (int64 quad = first + threadIdx.x % WARP; quad < last; quad += WARP) to[quad] = from[quad];
    };
    share_rows(vertices + new_end / QUAD, vertices, begins, whole, one);
}

// The longest rows come first in the order, and new vertices go to its end.
__device__ __forceinline__ int class_of(int length) {
    int row_class = 0;
#pragma unroll
    for (int shorter = 0; shorter < CLASSES - 1; ++shorter) row_class += length > longest_of(shorter);
    return row_class;
}

// groups: int64[CLASSES - 1] of zeros, receives the number of rows of each class but 0, the longest first.
__global__ void __launch_bounds__(BLOCK) count_classes(
    const int* __restrict__ length, int64 vertices, int64* __restrict__ groups) {
    int64 counts[CLASSES - 1] = {};
    for (int64 row = (int64)blockIdx.x * BLOCK + threadIdx.x; row < vertices; row += (int64)gridDim.x * BLOCK) {
        const int row_class = class_of(length[row]);
#pragma unroll
        for (int group = 0; group < CLASSES - 1; ++group) counts[group] += row_class == CLASSES - 1 - group;
    }
#pragma unroll
    for (int group = 0; group < CLASSES - 1; ++group) count(groups + group, counts[group]);
}

// Two classes share a sum; scans: one for each pair.
__global__ void __launch_bounds__(BLOCK) partition(
    const int* __restrict__ length, int64 vertices, const int64* __restrict__ groups, uint64* first_scan,
    uint64* second_scan, uint64* third_scan, int* __restrict__ order, uint8* __restrict__ row_class) {
    constexpr int PAIRS = (CLASSES - 1) / 2;
    static_assert(PAIRS == 3 && CLASSES == 7, "a scan for each pair of classes, and the shortest rows are what is left");
    const int64 tile = take_tile(first_scan);
    const int64 first = first_item(tile, ITEMS);
    int classes[ITEMS];
    uint64 sums[PAIRS][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        classes[item] = row < vertices ? class_of(length[row]) : -1;
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair)
            sums[pair][item] = (uint64)(classes[item] == CLASSES - 1 - 2 * pair) |
                               (uint64)(classes[item] == CLASSES - 2 - 2 * pair) << HALF;
    }
    uint64* const scans[PAIRS] = {first_scan, second_scan, third_scan};
    sums_before(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= vertices) continue;
        int64 begin = 0, rest = row, place = 0;
#pragma unroll
        for (int group = 0; group < CLASSES - 1; ++group) {
            const int64 earlier = (int64)(group % 2 ? sums[group / 2][item] >> HALF : sums[group / 2][item] & LOW);
            if (classes[item] == CLASSES - 1 - group) place = begin + earlier;
            begin += groups[group];
            rest -= earlier;
        }
        if (classes[item] == 0) place = begin + rest;
        order[place] = (int)row;
        row_class[row] = (uint8)classes[item];
    }
}

// A tile writes at or before the keys that it read, and after all earlier tiles have read theirs: they tell their sums
// only then. The key before a tile can be overwritten only with itself until this tile has told its own sum.
__global__ void __launch_bounds__(BLOCK) distinct(
    int64* keys, int64 total, uint64* scan, uint8* __restrict__ loop, int64* __restrict__ counters) {
    const int64 tile = take_tile(scan);
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS], loops = 0;
    unsigned kept = 0;  // a bit an item
    uint64 sums[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        sums[0][item] = 0;
        key[item] = at < total ? keys[at] : NO_KEY;
        const bool repeated = at > 0 && at < total && keys[at - 1] == key[item];
        if (key[item] == NO_KEY || repeated) continue;
        if (key[item] >> 32 == (key[item] >> 1 & 0x7fffffff)) {
            loops += 1;
            loop[key[item] >> 32] = 1;
        } else {
            kept |= 1u << item;
            sums[0][item] = 1;
        }
    }
    sums_before(scan, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        uint64 place = sums[0][item];
        if (kept >> item & 1) keys[place++] = key[item];
        if (first + item * WARP + 1 == total) counters[EDGES] = (int64)place;
    }
    count(counters + CHANGED, loops);
}

__global__ void __launch_bounds__(BLOCK) first_key(
    const int64* __restrict__ keys, int64 edges, int64 low, int64* __restrict__ first) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = keys[at] >> 32;
        if (at == 0 || keys[at - 1] >> 32 != row) first[row - low] = at;
    }
}

__global__ void __launch_bounds__(BLOCK) row_length(
    const int64* __restrict__ keys, int64 edges, int64 low, const int64* __restrict__ first, int* __restrict__ length,
    int64* __restrict__ counters) {
    int64 longest = 0, growth = 0;
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = keys[at] >> 32;
        if (at + 1 < edges && keys[at + 1] >> 32 == row) continue;
        const int64 entries = at + 1 - first[row - low];
        length[row - low] = (int)entries;
        growth += quads_of(entries) * QUAD;
        longest = entries > longest ? entries : longest;
    }
    count(counters + GROWTH, growth);
    count_largest(counters + LONGEST, longest);
}

__global__ void __launch_bounds__(BLOCK) fill_rows(
    const int64* __restrict__ keys, int64 edges, int64 low, const int64* __restrict__ first,
    const int64* __restrict__ start, int* __restrict__ pool) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = (keys[at] >> 32) - low;
        pool[start[row] + at - first[row]] = (int)(keys[at] >> 1 & 0x7fffffff);
    }
}

// How many ids lie in each bucket of neighbouring rows. The first 2·FINE buckets are a row each, the next FINE are two rows
// each, then four, and so on: in an order by degree the first rows are the longest.
constexpr int FINE_BITS = 7, FINE = 1 << FINE_BITS, BUCKETS = (31 - FINE_BITS + 1) * FINE;
__device__ __forceinline__ int bucket_of(int row) {
    const int shift = row < FINE ? 0 : 31 - __clz(row) - FINE_BITS;
    return shift * FINE + (row >> shift);
}

template <class Id>
__global__ void __launch_bounds__(BLOCK) count_buckets(
    const Id* __restrict__ rows, int64 edges, const int* __restrict__ positions, int64 renumbered,
    int64* __restrict__ buckets) {
    __shared__ int mine[BUCKETS];
    for (int bucket = threadIdx.x; bucket < BUCKETS; bucket += BLOCK) mine[bucket] = 0;
    __syncthreads();
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK)
        atomicAdd(mine + bucket_of((int)position_of(rows[at], positions, renumbered)), 1);
    __syncthreads();
    for (int bucket = threadIdx.x; bucket < BUCKETS; bucket += BLOCK)
        if (mine[bucket]) atomicAdd((uint64*)buckets + bucket, (uint64)mine[bucket]);
}

// Keys of the insertions into rows low … high-1, in no order that matters. A block a tile of WIDE items a thread.
constexpr int WIDE = 16;
template <class Id>
__global__ void __launch_bounds__(BLOCK) gather_keys(
    const Id* __restrict__ rows, const Id* __restrict__ neighbours, int64 edges, int64 low, int64 high,
    const int* __restrict__ positions, int64 renumbered, uint64* scan, int64* __restrict__ keys) {
    const int64 tile = take_tile(scan);
    const int64 first = first_item(tile, WIDE);
    unsigned chosen = 0;  // a bit an item
#pragma unroll
    for (int item = 0; item < WIDE; ++item) {
        const int64 at = first + item * WARP;
        if (at >= edges) continue;
        const int64 row = position_of(rows[at], positions, renumbered);
        if (row >= low && row < high) chosen |= 1u << item;
    }
    uint64 sums[1][1] = {{(uint64)__popc(chosen)}};
    sums_before(scan, tile, sums);
    uint64 place = sums[0][0];
    for (; chosen; chosen &= chosen - 1) {
        const int64 at = first + (__ffs((int)chosen) - 1) * WARP;
        const int64 row = position_of(rows[at], positions, renumbered);
        keys[place++] = row << 32 | position_of(neighbours[at], positions, renumbered) << 1 | 1;
    }
}

__global__ void __launch_bounds__(BLOCK) list_entries(
    const int64* __restrict__ start, const int64* __restrict__ before, const int* __restrict__ pool, int64 vertices,
    int64 total, int* __restrict__ rows, int* __restrict__ neighbours) {
    const auto begins = [&](int64 row) { return row + (row < vertices ? before[row] : total); };
    const auto one = [&](int64 row, int64 entry) {
        rows[before[row] + entry] = (int)row;
        neighbours[before[row] + entry] = pool[start[row] + entry];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        for (int64 entry = first + threadIdx.x % WARP; entry < last; entry += WARP) one(row, entry);
    };
    share_rows(vertices + total, vertices, begins, whole, one);
}
