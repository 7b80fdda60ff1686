// What a batch changes in one direction of the graph (liverank_gpu.operations.graph: sorted_keys, sort, resolve_update).
// Nothing of the graph is written. Keys: see GraphOperations; NO_KEY, above all keys, is no operation.
//
//     pack_keys      columns of ids to keys: 8 to 16 bytes read, 8 written an operation; two random reads more if the graph has
//                    an order of its own
//     permute_keys   ids to positions in keys that the host packed for a small batch
//     sort_small     sorts up to 4096 keys in one launch, by comparing each with all; if WEIGHTED also gives their order
//     find_rows      distinct edges and rows of sorted keys, by two exclusive sums: about 55 bytes an operation
//     locate         reads every named row once, 4 bytes an entry, and looks each entry up among the edges of the row
//     decide         removed and added edges, by an exclusive sum: about 60 bytes an edge. If WEIGHTED, weights before and
//                    after too: about 30 bytes more, one random read among them; an edge with another weight is both
//
// Launch: BLOCK threads a block; a block a tile for find_rows and decide, which learn from `counters` how much there is; any
// grid for locate, which balances the named rows over warps; a warp a key for sort_small; a thread an item for the others.
#include "scan.cuh"

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

__global__ void __launch_bounds__(BLOCK) permute_keys(
    int64* keys, int total, const int* __restrict__ positions, int64 permuted) {
    const int at = blockIdx.x * BLOCK + threadIdx.x;
    if (at >= total || keys[at] == NO_KEY) return;
    const int64 row = position_of(row_of_key(keys[at]), positions, permuted);
    const int64 neighbour = position_of(neighbour_of_key(keys[at]), positions, permuted);
    keys[at] = key_of(row, neighbour, keys[at] & 1);
}
#endif

// The position of a key is the number of keys before it, which a warp counts. All keys stay in the L1 caches: comparing 4096 of
// them takes as long as one launch.
__global__ void __launch_bounds__(BLOCK) sort_small(
    const int64* __restrict__ keys, int total, int64* __restrict__ sorted, int* __restrict__ order) {
    const int at = (blockIdx.x * BLOCK + threadIdx.x) / WARP, lane = threadIdx.x % WARP;
    const int64 key = at < total ? keys[at] : NO_KEY;
    int before = 0;
#pragma unroll 4
    for (int other = lane; other < total; other += WARP) {
        const int64 compared = keys[other];
        before += compared < key || (compared == key && other < at);
    }
#pragma unroll
    for (int step = WARP / 2; step > 0; step /= 2) before += __shfl_xor_sync(FULL, before, step);
    if (lane != 0 || at >= total) return;
    sorted[before] = key;
    if constexpr (WEIGHTED) order[before] = at;
}

__device__ __forceinline__ int64 units_of(int row, int64 vertices, const int* row_lengths) {
    return 1 + (row < vertices ? quads_of(row_lengths[row]) : 0);
}

#if !WEIGHTED
__global__ void __launch_bounds__(BLOCK, 4) find_rows(
    const int64* __restrict__ keys, int64 operations, const int* __restrict__ row_lengths, int64 vertices,
    uint64* scan_edges, uint64* scan_work, int* __restrict__ edge_operation, int* __restrict__ edge_neighbour,
    int* __restrict__ edge_row, int* __restrict__ edge_slot, int* __restrict__ row_edge, int* __restrict__ row_vertex,
    signed char* __restrict__ row_loop, int64* __restrict__ row_work, int64* __restrict__ opposite,
    int64* __restrict__ counters) {
    const int64 tile = next_tile(scan_edges);
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS];
    unsigned edge_heads = 0, row_heads = 0;  // one bit an item: the first key of an edge, of a row
    uint64 sums[2][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        key[item] = at < operations ? keys[at] : NO_KEY;
        const int64 before = at > 0 && at < operations ? keys[at - 1] : -1;
        const bool edge_head = key[item] != NO_KEY && key[item] >> 1 != before >> 1;
        const bool row_head = key[item] != NO_KEY && row_of_key(key[item]) != row_of_key(before);
        edge_heads |= (unsigned)edge_head << item;
        row_heads |= (unsigned)row_head << item;
        sums[0][item] = (uint64)edge_head | (uint64)row_head << HALF;
        sums[1][item] = row_head ? (uint64)units_of((int)row_of_key(key[item]), vertices, row_lengths) : 0;
    }
    uint64* const scans[2] = {scan_edges, scan_work};
    exclusive_sums(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        if (at >= operations) continue;
        opposite[at] = NO_KEY;
        if (key[item] == NO_KEY) continue;
        int edge = (int)(sums[0][item] & LOW), row = (int)(sums[0][item] >> HALF);
        int64 units = (int64)sums[1][item];
        if (row_heads >> item & 1) {
            const int vertex = (int)row_of_key(key[item]);
            row_edge[row] = edge;
            row_vertex[row] = vertex;
            row_loop[row] = 0;
            row_work[row] = units;
            units += units_of(vertex, vertices, row_lengths);
            row += 1;
        }
        if (edge_heads >> item & 1) {
            edge_operation[edge] = (int)at;
            edge_neighbour[edge] = (int)neighbour_of_key(key[item]);
            edge_row[edge] = row - 1;
            edge_slot[edge] = -1;
            edge += 1;
        }
        if (at + 1 == operations || keys[at + 1] == NO_KEY) {
            edge_operation[edge] = (int)(at + 1);
            row_edge[row] = edge;
            row_work[row] = units;
            counters[Counter::EDGES] = edge;
            counters[Counter::ROWS] = row;
        }
    }
}

// A Bloom filter of ids, one for each warp. It spares nearly every entry of a long row the search.
constexpr int FILTER_WORDS = 128;

__device__ __forceinline__ unsigned filter_bit(int id) { return (unsigned)id * 2654435769u >> 20; }

__global__ void __launch_bounds__(BLOCK, 4) locate(
    const int64* __restrict__ counters, const int* __restrict__ row_edge, const int* __restrict__ row_vertex,
    const int64* __restrict__ row_work, const int* __restrict__ edge_neighbour, const int64* __restrict__ row_starts,
    const int* __restrict__ row_lengths, const int4* __restrict__ column_indices, int* __restrict__ edge_slot) {
    __shared__ unsigned filters[WARPS][FILTER_WORDS];
    unsigned* filter = filters[threadIdx.x / WARP];
    const int lane = threadIdx.x % WARP;
    const int64 rows = counters[Counter::ROWS];
    if (rows == 0) return;
    const auto search = [&](int neighbour, int slot, int first_edge, int last_edge) {
        const int edge = first_from(edge_neighbour, first_edge, last_edge, neighbour);
        if (edge < last_edge && edge_neighbour[edge] == neighbour) edge_slot[edge] = slot;
    };
    const auto whole = [&](int64 row, int64 first, int64 last) {
        const int vertex = row_vertex[row], first_edge = row_edge[row], last_edge = row_edge[row + 1];
        __syncwarp();
        for (int word = lane; word < FILTER_WORDS; word += WARP) filter[word] = 0;
        __syncwarp();
        for (int edge = first_edge + lane; edge < last_edge; edge += WARP) {
            const unsigned bit = filter_bit(edge_neighbour[edge]);
            atomicOr(filter + bit / 32, 1u << bit % 32);
        }
        __syncwarp();
        const int count = row_lengths[vertex];
        const int4* quads = column_indices + row_starts[vertex] / QUAD;
        constexpr int AHEAD = 4;  // loads in flight
        for (int64 quad = first + lane; quad < last; quad += AHEAD * WARP) {
            int4 four[AHEAD];
#pragma unroll
            for (int load = 0; load < AHEAD; ++load)
                four[load] = quad + load * WARP < last ? quads[quad + load * WARP] : make_int4(-1, -1, -1, -1);
#pragma unroll
            for (int load = 0; load < AHEAD; ++load) {
                const int neighbours[QUAD] = {four[load].x, four[load].y, four[load].z, four[load].w};
#pragma unroll
                for (int item = 0; item < QUAD; ++item) {
                    const unsigned bit = filter_bit(neighbours[item]);
                    const int slot = (int)(quad + load * WARP) * QUAD + item;
                    if ((filter[bit / 32] >> bit % 32 & 1) && slot < count)
                        search(neighbours[item], slot, first_edge, last_edge);
                }
            }
        }
    };
    const auto one = [&](int64 row, int64 quad) {
        const int vertex = row_vertex[row], first_edge = row_edge[row], last_edge = row_edge[row + 1];
        const int count = row_lengths[vertex];
        const int4 four = column_indices[row_starts[vertex] / QUAD + quad];
        const int neighbours[QUAD] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int item = 0; item < QUAD; ++item) {
            const int slot = (int)quad * QUAD + item;
            if (slot < count) search(neighbours[item], slot, first_edge, last_edge);
        }
    };
    balance_rows(row_work[rows], rows, [&](int64 row) { return row_work[row]; }, whole, one);
}
#endif

// The weight of an edge after the insertions among its operations keys[first … last), in the order in which they were sent.
// present: its weight before them, 0 if it is absent.
__device__ __forceinline__ float summed_weight(
    const int64* keys, const float* weights, int first, int last, float present, int adds) {
    if (!adds) return weights[last - 1];
    double total = present;
    for (int at = first; at < last; ++at)
        if ((keys[at] & 1) == INSERT) total += weights[at];
    return (float)total;
}

__global__ void __launch_bounds__(BLOCK) decide(
    const int64* __restrict__ keys, int64 vertices, const Loop* __restrict__ loop, int fixed_loops, int directed,
    const int* __restrict__ edge_operation, const int* __restrict__ edge_neighbour, const int* __restrict__ edge_row,
    const int* __restrict__ edge_slot, const int* __restrict__ row_edge, uint64* scan, const int* __restrict__ row_vertex,
    signed char* __restrict__ row_loop, int* __restrict__ row_removed, int* __restrict__ row_added,
    int* __restrict__ removed_row, int* __restrict__ removed_neighbour, int* __restrict__ removed_slot,
    int* __restrict__ added_row, int* __restrict__ added_neighbour, int64* __restrict__ opposite,
    int64* __restrict__ counters, const float* __restrict__ weights, int adds, const int64* __restrict__ row_starts,
    const float* __restrict__ slot_weights, float* __restrict__ removed_weights, float* __restrict__ added_weights,
    float* __restrict__ opposite_weights) {
    const int64 edges = counters[Counter::EDGES];
    const int64 tile = next_tile(scan);
    if (tile * TILE >= edges) return;
    const int64 first = first_item(tile, ITEMS);
    unsigned removed = 0, added = 0;  // one bit an item
    uint64 changes[1][ITEMS];
    int64 inserted = 0, deleted = 0, reweighted = 0, exceeded = 0;
    float before[ITEMS], after[ITEMS];  // weights
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        changes[0][item] = 0;
        if (edge >= edges) continue;
        const int vertex = row_vertex[edge_row[edge]], neighbour = edge_neighbour[edge];
        const bool is_loop = vertex == neighbour;
        if (is_loop && fixed_loops) continue;
        const bool deletes = (keys[edge_operation[edge]] & 1) == DELETE;
        const bool inserts = (keys[edge_operation[edge + 1] - 1] & 1) == INSERT;
        const bool present = is_loop ? vertex < vertices && loop[vertex] : edge_slot[edge] >= 0;
        const bool counted = directed || vertex <= neighbour;
        deleted += counted && present && deletes;
        inserted += counted && inserts && (deletes || !present);
        bool removes = present && deletes && !inserts, places = inserts && !present;
        if constexpr (WEIGHTED) {
            before[item] = 0.0f;
            if (present) before[item] = is_loop ? loop[vertex] : slot_weights[row_starts[vertex] + edge_slot[edge]];
            after[item] = deletes ? 0.0f : before[item];
            const int last = edge_operation[edge + 1];
            if (inserts) {
                after[item] = summed_weight(keys, weights, edge_operation[edge], last, after[item], adds);
                if (isinf(after[item]) && exceeded == 0) exceeded = LAST_PLACE - last;
                reweighted += counted && present && !deletes && after[item] != before[item];
            }
            removes = present && after[item] != before[item];
            places = after[item] > 0.0f && after[item] != before[item];
        }
        removed |= (unsigned)removes << item;
        added |= (unsigned)places << item;
        changes[0][item] = (uint64)removes | (uint64)places << HALF;
    }
    exclusive_sums(scan, tile, changes);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        if (edge >= edges) continue;
        const int row = edge_row[edge];
        int removals = (int)(changes[0][item] & LOW), additions = (int)(changes[0][item] >> HALF);
        if (row_edge[row] == edge) {
            row_removed[row] = removals;
            row_added[row] = additions;
        }
        if ((removed | added) >> item & 1) {
            const int removes = removed >> item & 1, places = added >> item & 1;
            const int64 vertex = row_vertex[row], neighbour = edge_neighbour[edge];
            if (vertex == neighbour) {
                row_loop[row] = removes && places ? LOOP_REWEIGHTED : places ? 1 : -1;
            } else if constexpr (WEIGHTED) {  // an edge with another weight is counted twice
                opposite[edge] = key_of(neighbour, vertex, places);
                opposite_weights[edge] = after[item];
            } else {
                opposite[removals + additions] = key_of(neighbour, vertex, places);
            }
            if (removes) {
                removed_row[removals] = row;
                removed_neighbour[removals] = (int)neighbour;
                removed_slot[removals] = edge_slot[edge];
                if constexpr (WEIGHTED) removed_weights[removals] = before[item];
                removals += 1;
            }
            if (places) {
                added_row[additions] = row;
                added_neighbour[additions] = (int)neighbour;
                if constexpr (WEIGHTED) added_weights[additions] = after[item];
                additions += 1;
            }
        }
        if (edge + 1 == edges) {
            row_removed[row + 1] = removals;
            row_added[row + 1] = additions;
            counters[Counter::REMOVED] = removals;
            counters[Counter::ADDED] = additions;
        }
    }
    count(counters + Counter::INSERTED, inserted);
    count(counters + Counter::DELETED, deleted);
    if constexpr (WEIGHTED) {
        count(counters + Counter::REWEIGHTED, reweighted);
        count_largest(counters + Counter::EXCEEDED, exceeded);
    }
}
