// Sorted keys of operations on edges, and all rows of one direction (liverank_gpu.operations.graph: sorted_keys, sort, plan,
// deduplicate, count_rows, count_neighbours, fill_rows, pack_rows, copy_rows, partition, row_ranges, keys_of_range, entries,
// sum_weights, scale_rows).
//
//     pack_keys        columns of ids to keys: 8 to 16 bytes read, 8 written an operation; two random reads more if the graph
//                      has an order of its own
//     sort_small       sorts up to 4096 keys in one launch, by comparing each with all; if WEIGHTED also gives their order
//     transpose_keys   keys of the out-lists to those of the in-lists: 8 bytes read, 8 written
//     pack_rows        starts and capacities of rows without slack, by an exclusive sum: 4 bytes read, 12 written a row
//     copy_rows        all rows to where pack_rows placed them, in another array: 8 bytes an entry, 20 a row
//     count_bins, partition  rows by degree bin, ascending in each: 8 bytes read, 5 written a row
//     deduplicate      drops repeats and loops from sorted keys, in place, and gives each edge its weight: 16 bytes a key,
//                      40 if WEIGHTED
//     find_first_keys, count_rows, fill_rows  distinct keys to rows: 8 bytes read thrice, 4 written an edge
//     count_neighbours  lengths of the other direction: 8 bytes read, and an atomic addition at random, an edge
//     count_buckets, keys_of_range  a load sorts one range of rows at a time: 4 bytes an edge, and 4 to 8 read, 8 written;
//                      one or two random reads more if the graph has an order of its own
//     entries          all entries as two columns: 12 bytes an entry
//     sum_weights      strengths: a warp a row, the whole block for long rows: 4 bytes an entry, 24 a row
//     scale_rows       weights, loops and strengths, a warp a row: 8 bytes an entry, a random read of 4 (a 32-byte sector), and
//                      8 an entry of a row whose factor is not 1; 28 a row
//
// Keys: see GraphOperations; NO_KEY, above all keys, is no operation.
// Launch: BLOCK threads a block; a warp a key for sort_small, a block a tile for pack_rows, partition, deduplicate and
// keys_of_range; any grid for the others.
#include "scan.cuh"
#include "strengths.cuh"

#if !WEIGHTED
INSTANCES(pack_keys<int>, pack_keys<int64>)
template <class Id>
__global__ void __launch_bounds__(BLOCK) pack_keys(
    const Id* __restrict__ sources, const Id* __restrict__ targets, int64 edges, int64 vertices, int operation,
    const int* __restrict__ positions, int64 permuted, int64* __restrict__ keys) {
    for (int64 edge = (int64)blockIdx.x * BLOCK + threadIdx.x; edge < edges; edge += (int64)gridDim.x * BLOCK) {
        const int64 source = position_of(sources[edge], positions, permuted);
        const int64 target = position_of(targets[edge], positions, permuted);
        const bool known = source >= 0 && source < vertices && target >= 0 && target < vertices;
        keys[edge] = known ? key_of(source, target, operation) : NO_KEY;
    }
}
#endif

__global__ void __launch_bounds__(BLOCK) sort_small(
    const int64* __restrict__ keys, int total, int64* __restrict__ sorted, int* __restrict__ order) {
    const int at = (blockIdx.x * BLOCK + threadIdx.x) / WARP;
    const int before = keys_before(keys, total, at);
    if (threadIdx.x % WARP != 0 || at >= total) return;
    sorted[before] = keys[at];
    if constexpr (WEIGHTED) order[before] = at;
}

#if !WEIGHTED
// The same operations with rows and neighbours exchanged, for the in-lists, which have no loops.
__global__ void __launch_bounds__(BLOCK) transpose_keys(
    const int64* __restrict__ keys, int64 total, int64* __restrict__ transposed) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < total; at += (int64)gridDim.x * BLOCK) {
        const int64 key = keys[at], row = row_of_key(key), neighbour = neighbour_of_key(key);
        transposed[at] = key == NO_KEY || row == neighbour ? NO_KEY : key_of(neighbour, row, key & 1);
    }
}
#endif

#if !WEIGHTED
__global__ void __launch_bounds__(BLOCK) pack_rows(
    const int* __restrict__ row_lengths, int64 vertices, int64 begin, uint64* scan, int64* __restrict__ row_starts,
    int* __restrict__ capacities) {
    const int64 tile = next_tile(scan);
    const int64 first = first_item(tile, ITEMS);
    int quads[ITEMS];
    uint64 sums[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        quads[item] = row < vertices ? (int)quads_of(row_lengths[row]) : 0;
        sums[0][item] = (uint64)quads[item];
    }
    exclusive_sums(scan, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= vertices) continue;
        row_starts[row] = begin + (int64)sums[0][item] * QUAD;
        capacities[row] = quads[item] * QUAD;
    }
}
#endif

__global__ void __launch_bounds__(BLOCK) copy_rows(
    const int64* __restrict__ row_starts, const int4* __restrict__ column_indices, int64 vertices,
    const int64* __restrict__ new_starts, int64 new_end, int4* __restrict__ new_indices,
    const float4* __restrict__ weights, float4* __restrict__ new_weights) {
    const auto begins = [&](int64 row) { return row + (row < vertices ? new_starts[row] : new_end) / QUAD; };
    const auto one = [&](int64 row, int64 quad) {
        const int64 to = new_starts[row] / QUAD + quad, from = row_starts[row] / QUAD + quad;
        new_indices[to] = column_indices[from];
        if constexpr (WEIGHTED) new_weights[to] = weights[from];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        const int4* from = column_indices + row_starts[row] / QUAD;
        int4* to = new_indices + new_starts[row] / QUAD;
#pragma unroll 4
        for (int64 quad = first + threadIdx.x % WARP; quad < last; quad += WARP) {
            to[quad] = from[quad];
            if constexpr (WEIGHTED) new_weights[new_starts[row] / QUAD + quad] = weights[row_starts[row] / QUAD + quad];
        }
    };
    balance_rows(vertices + new_end / QUAD, vertices, begins, whole, one);
}

__device__ __forceinline__ int bin_of(int length) {
    int bin = 0;
#pragma unroll
    for (int shorter = 0; shorter < BINS - 1; ++shorter) bin += length > limit_of(shorter);
    return bin;
}

#if !WEIGHTED
// groups: int64[BINS - 1] of zeros, receives the number of rows of each bin but bin 0, the longest rows first.
__global__ void __launch_bounds__(BLOCK) count_bins(
    const int* __restrict__ row_lengths, int64 vertices, int64* __restrict__ groups) {
    int64 counts[BINS - 1] = {};
    for (int64 row = (int64)blockIdx.x * BLOCK + threadIdx.x; row < vertices; row += (int64)gridDim.x * BLOCK) {
        const int bin = bin_of(row_lengths[row]);
#pragma unroll
        for (int group = 0; group < BINS - 1; ++group) counts[group] += bin == BINS - 1 - group;
    }
#pragma unroll
    for (int group = 0; group < BINS - 1; ++group) count(groups + group, counts[group]);
}

// The longest rows come first in the order, so that new vertices can be appended to it. Two bins share a sum; a scan for each
// pair of them.
__global__ void __launch_bounds__(BLOCK) partition(
    const int* __restrict__ row_lengths, int64 vertices, const int64* __restrict__ groups, uint64* first_scan,
    uint64* second_scan, uint64* third_scan, int* __restrict__ order, uint8* __restrict__ degree_bins) {
    constexpr int PAIRS = (BINS - 1) / 2;
    static_assert(PAIRS == 3 && BINS == 7, "a scan for each pair of bins; the rows of bin 0 are the rest");
    const int64 tile = next_tile(first_scan);
    const int64 first = first_item(tile, ITEMS);
    int bins[ITEMS];
    uint64 sums[PAIRS][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        bins[item] = row < vertices ? bin_of(row_lengths[row]) : -1;
#pragma unroll
        for (int pair = 0; pair < PAIRS; ++pair)
            sums[pair][item] =
                (uint64)(bins[item] == BINS - 1 - 2 * pair) | (uint64)(bins[item] == BINS - 2 - 2 * pair) << HALF;
    }
    uint64* const scans[PAIRS] = {first_scan, second_scan, third_scan};
    exclusive_sums(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 row = first + item * WARP;
        if (row >= vertices) continue;
        int64 begin = 0, rest = row, place = 0;
#pragma unroll
        for (int group = 0; group < BINS - 1; ++group) {
            const int64 earlier = (int64)(group % 2 ? sums[group / 2][item] >> HALF : sums[group / 2][item] & LOW);
            if (bins[item] == BINS - 1 - group) place = begin + earlier;
            begin += groups[group];
            rest -= earlier;
        }
        if (bins[item] == 0) place = begin + rest;
        order[place] = (int)row;
        degree_bins[row] = (uint8)bins[item];
    }
}

#endif

// The weight of the edge whose first key is before `last`, which becomes the end of its keys. present: its weight before them.
__device__ __forceinline__ float weight_of_group(
    const int64* keys, const float* weights, int64 total, float present, int adds, int64& last) {
    const int64 key = keys[last - 1];
    double sum = (double)present + weights[last - 1];
#pragma unroll 1
    for (; last < total && keys[last] == key; ++last) sum += weights[last];
    return adds ? (float)sum : weights[last - 1];
}

// A tile writes at or before the keys that it read, and only after all earlier tiles have read theirs, since they publish their
// sums only then. The key before a tile can only be overwritten with itself until this tile has published its own sum. The
// first key of an edge reads the others before that.
// order[at]: the place of a key before the sort; edges that the graph has already are those below kept_edges.
// 0 blocks: as many as it gets.
__global__ void __launch_bounds__(BLOCK, WEIGHTED ? 4 : 0) deduplicate(
    int64* keys, float* weights, const int64* __restrict__ order, int64 total, uint64* scan, int adds, int64 kept_edges,
    Loop* __restrict__ loop, int64* __restrict__ counters) {
    const int64 tile = next_tile(scan);
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS], loops = 0, reweighted = 0, exceeded = 0;
    float weight[ITEMS] = {};
    unsigned kept = 0;  // one bit an item
    uint64 sums[1][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        sums[0][item] = 0;
        key[item] = at < total ? keys[at] : NO_KEY;
        const bool repeated = at > 0 && at < total && keys[at - 1] == key[item];
        if (key[item] == NO_KEY || repeated) continue;
        const int64 row = row_of_key(key[item]);
        const bool is_loop = row == neighbour_of_key(key[item]);
        if constexpr (WEIGHTED) {
            int64 last = at + 1;
            weight[item] = weight_of_group(keys, weights, total, is_loop ? loop[row] : 0.0f, adds, last);
            if (isinf(weight[item]) && exceeded == 0) exceeded = LAST_PLACE - last;
            reweighted += !is_loop && order[at] < kept_edges && weight[item] != weights[at];
        }
        if (is_loop) {
            loops += 1;
            loop[row] = WEIGHTED ? weight[item] : 1;
        } else {
            kept |= 1u << item;
            sums[0][item] = 1;
        }
    }
    exclusive_sums(scan, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        uint64 place = sums[0][item];
        if (kept >> item & 1) {
            if constexpr (WEIGHTED) weights[place] = weight[item];
            keys[place++] = key[item];
        }
        if (first + item * WARP + 1 == total) counters[Counter::EDGES] = (int64)place;
    }
    count(counters + Counter::CHANGED, loops);
    if constexpr (WEIGHTED) {
        count(counters + Counter::REWEIGHTED, reweighted);
        count_largest(counters + Counter::EXCEEDED, exceeded);
    }
}

#if !WEIGHTED
__global__ void __launch_bounds__(BLOCK) find_first_keys(
    const int64* __restrict__ keys, int64 edges, int64 low, int64* __restrict__ first) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = row_of_key(keys[at]);
        if (at == 0 || row_of_key(keys[at - 1]) != row) first[row - low] = at;
    }
}

__global__ void __launch_bounds__(BLOCK) count_rows(
    const int64* __restrict__ keys, int64 edges, int64 low, const int64* __restrict__ first, int* __restrict__ row_lengths,
    int64* __restrict__ counters) {
    int64 longest = 0, growth = 0;
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = row_of_key(keys[at]);
        if (at + 1 < edges && row_of_key(keys[at + 1]) == row) continue;
        const int64 entries = at + 1 - first[row - low];
        row_lengths[row - low] = (int)entries;
        growth += quads_of(entries) * QUAD;
        longest = entries > longest ? entries : longest;
    }
    count(counters + Counter::GROWTH, growth);
    count_largest(counters + Counter::LONGEST, longest);
}

__global__ void __launch_bounds__(BLOCK) count_neighbours(const int64* __restrict__ keys, int64 edges, int* counts) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK)
        atomicAdd(counts + neighbour_of_key(keys[at]), 1);
}
#endif

__global__ void __launch_bounds__(BLOCK) fill_rows(
    const int64* __restrict__ keys, int64 edges, int64 low, const int64* __restrict__ first,
    const int64* __restrict__ row_starts, int* __restrict__ column_indices, const float* __restrict__ key_weights,
    float* __restrict__ weights) {
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK) {
        const int64 row = row_of_key(keys[at]) - low, slot = row_starts[row] + at - first[row];
        column_indices[slot] = (int)neighbour_of_key(keys[at]);
        if constexpr (WEIGHTED) weights[slot] = key_weights[at];
    }
}

// The bucket of a row: the first 2·FINE buckets have one row each, the next FINE two rows each, then four, and so on, since in
// an order by degree the first rows are the longest.
constexpr int FINE = 1 << BUCKET_BITS;
__device__ __forceinline__ int bucket_of(int row) {
    const int shift = row < FINE ? 0 : 31 - __clz(row) - BUCKET_BITS;
    return shift * FINE + (row >> shift);
}

#if !WEIGHTED
// How many ids are in each bucket.
INSTANCES(count_buckets<int>, count_buckets<int64>)
template <class Id>
__global__ void __launch_bounds__(BLOCK) count_buckets(
    const Id* __restrict__ rows, int64 edges, const int* __restrict__ positions, int64 permuted,
    int64* __restrict__ buckets) {
    __shared__ int counts[BUCKETS];
    for (int bucket = threadIdx.x; bucket < BUCKETS; bucket += BLOCK) counts[bucket] = 0;
    __syncthreads();
    for (int64 at = (int64)blockIdx.x * BLOCK + threadIdx.x; at < edges; at += (int64)gridDim.x * BLOCK)
        atomicAdd(counts + bucket_of((int)position_of(rows[at], positions, permuted)), 1);
    __syncthreads();
    for (int bucket = threadIdx.x; bucket < BUCKETS; bucket += BLOCK)
        if (counts[bucket]) atomicAdd((uint64*)buckets + bucket, (uint64)counts[bucket]);
}
#endif

// Keys of the insertions into rows low … high-1, to be sorted; if WEIGHTED, also their places in the columns. A block a tile of
// RANGE_ITEMS items a thread.
INSTANCES(keys_of_range<int>, keys_of_range<int64>)
template <class Id>
__global__ void __launch_bounds__(BLOCK) keys_of_range(
    const Id* __restrict__ rows, const Id* __restrict__ neighbours, int64 edges, int64 low, int64 high,
    const int* __restrict__ positions, int64 permuted, uint64* scan, int64* __restrict__ keys, int64* __restrict__ places) {
    const int64 tile = next_tile(scan);
    const int64 first = first_item(tile, RANGE_ITEMS);
    unsigned chosen = 0;  // one bit an item
#pragma unroll
    for (int item = 0; item < RANGE_ITEMS; ++item) {
        const int64 at = first + item * WARP;
        if (at >= edges) continue;
        const int64 row = position_of(rows[at], positions, permuted);
        if (row >= low && row < high) chosen |= 1u << item;
    }
    const auto put = [&](uint64 place, int64 at) {
        const int64 row = position_of(rows[at], positions, permuted);
        keys[place] = key_of(row, position_of(neighbours[at], positions, permuted), INSERT);
        if constexpr (WEIGHTED) places[place] = at;
    };
    if constexpr (WEIGHTED) {  // in the order of the columns, so that the last of equal keys is the last one sent
        uint64 sums[1][RANGE_ITEMS];
#pragma unroll
        for (int item = 0; item < RANGE_ITEMS; ++item) sums[0][item] = chosen >> item & 1;
        exclusive_sums(scan, tile, sums);
#pragma unroll
        for (int item = 0; item < RANGE_ITEMS; ++item)
            if (chosen >> item & 1) put(sums[0][item], first + item * WARP);
    } else {
        uint64 sums[1][1] = {{(uint64)__popc(chosen)}};
        exclusive_sums(scan, tile, sums);
        uint64 place = sums[0][0];
        for (; chosen; chosen &= chosen - 1) put(place++, first + (__ffs((int)chosen) - 1) * WARP);
    }
}

__global__ void __launch_bounds__(BLOCK) entries(
    const int64* __restrict__ row_starts, const int64* __restrict__ before, const int* __restrict__ column_indices,
    int64 vertices, int64 total, int* __restrict__ rows, int* __restrict__ neighbours, const float* __restrict__ weights,
    float* __restrict__ listed_weights) {
    const auto begins = [&](int64 row) { return row + (row < vertices ? before[row] : total); };
    const auto one = [&](int64 row, int64 entry) {
        rows[before[row] + entry] = (int)row;
        neighbours[before[row] + entry] = column_indices[row_starts[row] + entry];
        if constexpr (WEIGHTED) listed_weights[before[row] + entry] = weights[row_starts[row] + entry];
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        for (int64 entry = first + threadIdx.x % WARP; entry < last; entry += WARP) one(row, entry);
    };
    balance_rows(vertices + total, vertices, begins, whole, one);
}

#if WEIGHTED
__global__ void __launch_bounds__(BLOCK) sum_weights(
    const int* __restrict__ vertices, int64 total, Lists rows, const float* __restrict__ loop, double* __restrict__ strength) {
    sum_strengths(vertices, total, rows, loop, strength);
}

// Multiplies out-lists, loops and strengths by the factors of their rows, in-lists by those of their neighbours.
__global__ void __launch_bounds__(BLOCK) scale_rows(
    int64 vertices, const int64* __restrict__ out_starts, const int* __restrict__ out_lengths,
    float* __restrict__ out_weights, const int64* __restrict__ in_starts, const int* __restrict__ in_lengths,
    const int* __restrict__ in_neighbours, float* __restrict__ in_weights, const float* __restrict__ factors,
    float* __restrict__ loop, double* __restrict__ strength) {
    const int lane = threadIdx.x % WARP;
    for (int64 v = (int64)blockIdx.x * WARPS + threadIdx.x / WARP; v < vertices; v += (int64)gridDim.x * WARPS) {
        const float factor = factors[v];
        if (factor != 1.0f) {
            for (int slot = lane; slot < out_lengths[v]; slot += WARP) out_weights[out_starts[v] + slot] *= factor;
            if (lane == 0) {
                loop[v] *= factor;
                strength[v] *= factor;
            }
        }
        for (int slot = lane; slot < in_lengths[v]; slot += WARP) {
            const int64 at = in_starts[v] + slot;
            const float of_source = factors[in_neighbours[at]];
            if (of_source != 1.0f) in_weights[at] *= of_source;
        }
    }
}
#endif
