// What a batch changes in one direction of the graph (backends/base.py, resolve). Nothing of the graph is written.
//
// A key is an operation on an edge: row in bits 32 … 62, neighbour in bits 1 … 31, and bit 0 is 0 for a deletion and 1 for
// an insertion, so that sorted keys bring the operations on an edge together, deletions first, and the edges of a row in
// the order of their neighbours. NO_KEY, above all keys, stands for no operation.
//
//     pack        columns of ids to keys: 8 to 16 bytes read, 8 written an operation; two random reads more where the
//                 graph has an order of its own
//     renumber    what pack does with positions, for keys of a small batch that the host packed
//     sort_small  sorts up to 4096 keys in one launch, by comparing all with all
//     heads       distinct edges and rows of sorted keys, by two prefix sums: about 55 bytes an operation
//     locate      every touched row is read once, 4 bytes an entry, and each entry looked up among the row's edges
//     decide      removed and added edges, by a prefix sum: about 60 bytes an edge
//
// Launch: BLOCK threads a block; a block a tile for heads and decide, which learn how much there is from `counters`; for
// locate, any grid: the touched rows are shared evenly by work among warps; a warp a key for sort_small.

constexpr int64 NO_KEY = 0x7fffffffffffffffll;

template <class Id>
__global__ void __launch_bounds__(BLOCK) pack(
    const Id* __restrict__ sources, const Id* __restrict__ targets, int64 edges, int64 vertices, int operation,
    const int* __restrict__ positions, int64 renumbered, int64* __restrict__ keys) {
    for (int64 edge = (int64)blockIdx.x * BLOCK + threadIdx.x; edge < edges; edge += (int64)gridDim.x * BLOCK) {
        const int64 source = position_of(sources[edge], positions, renumbered);
        const int64 target = position_of(targets[edge], positions, renumbered);
        const bool known = source >= 0 && source < vertices && target >= 0 && target < vertices;
        keys[edge] = known ? source << 32 | target << 1 | operation : NO_KEY;
    }
}

// Keys of ids to keys of positions, in place.
__global__ void __launch_bounds__(BLOCK) renumber(
    int64* keys, int total, const int* __restrict__ positions, int64 renumbered) {
    const int at = blockIdx.x * BLOCK + threadIdx.x;
    if (at >= total || keys[at] == NO_KEY) return;
    const int64 row = position_of(keys[at] >> 32, positions, renumbered);
    const int64 neighbour = position_of(keys[at] >> 1 & 0x7fffffff, positions, renumbered);
    keys[at] = row << 32 | neighbour << 1 | (keys[at] & 1);
}

// The place of a key is the number of keys that come before it: a warp counts them for each key. All keys
// stay in the first-level caches, and 4096 of them are compared in the time that one launch takes.
__global__ void __launch_bounds__(BLOCK) sort_small(const int64* __restrict__ keys, int total, int64* __restrict__ sorted) {
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
    if (lane == 0 && at < total) sorted[before] = key;
}

__device__ __forceinline__ int64 units_of(int row, int64 vertices, const int* length) {
    return 1 + (row < vertices ? quads_of(length[row]) : 0);
}

__global__ void __launch_bounds__(BLOCK, 4) heads(
    const int64* __restrict__ keys, int64 operations, const int* __restrict__ length, int64 vertices,
    uint64* scan_edges, uint64* scan_work,
    int* __restrict__ edge_operation, int* __restrict__ edge_neighbour, int* __restrict__ edge_row,
    int* __restrict__ edge_slot, int* __restrict__ row_edge, int* __restrict__ row_vertex,
    signed char* __restrict__ row_loop, int64* __restrict__ row_work, int64* __restrict__ opposite,
    int64* __restrict__ counters) {
    const int64 tile = take_tile(scan_edges);
    const int64 first = first_item(tile, ITEMS);
    int64 key[ITEMS];
    unsigned edge_heads = 0, row_heads = 0;  // a bit an item
    uint64 sums[2][ITEMS];
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        key[item] = at < operations ? keys[at] : NO_KEY;
        const int64 before = at > 0 && at < operations ? keys[at - 1] : -1;
        const bool edge_head = key[item] != NO_KEY && key[item] >> 1 != before >> 1;
        const bool row_head = key[item] != NO_KEY && key[item] >> 32 != before >> 32;
        edge_heads |= (unsigned)edge_head << item;
        row_heads |= (unsigned)row_head << item;
        sums[0][item] = (uint64)edge_head | (uint64)row_head << HALF;
        sums[1][item] = row_head ? (uint64)units_of((int)(key[item] >> 32), vertices, length) : 0;
    }
    uint64* const scans[2] = {scan_edges, scan_work};
    sums_before(scans, tile, sums);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 at = first + item * WARP;
        if (at >= operations) continue;
        opposite[at] = NO_KEY;
        if (key[item] == NO_KEY) continue;
        int edge = (int)(sums[0][item] & LOW), row = (int)(sums[0][item] >> HALF);
        int64 units = (int64)sums[1][item];
        if (row_heads >> item & 1) {
            const int vertex = (int)(key[item] >> 32);
            row_edge[row] = edge;
            row_vertex[row] = vertex;
            row_loop[row] = 0;
            row_work[row] = units;
            units += units_of(vertex, vertices, length);
            row += 1;
        }
        if (edge_heads >> item & 1) {
            edge_operation[edge] = (int)at;
            edge_neighbour[edge] = (int)(key[item] >> 1 & 0x7fffffff);
            edge_row[edge] = row - 1;
            edge_slot[edge] = -1;
            edge += 1;
        }
        if (at + 1 == operations || keys[at + 1] == NO_KEY) {
            edge_operation[edge] = (int)(at + 1);
            row_edge[row] = edge;
            row_work[row] = units;
            counters[EDGES] = edge;
            counters[ROWS] = row;
        }
    }
}

// A set of ids that a warp keeps in shared memory. What it does not hold is not among the row's edges, which spares nearly
// every entry of a long row the search.
constexpr int FILTER_WORDS = 128;

__device__ __forceinline__ unsigned filter_bit(int id) { return (unsigned)id * 2654435769u >> 20; }

__global__ void __launch_bounds__(BLOCK, 4) locate(
    const int64* __restrict__ counters, const int* __restrict__ row_edge, const int* __restrict__ row_vertex,
    const int64* __restrict__ row_work, const int* __restrict__ edge_neighbour,
    const int64* __restrict__ start, const int* __restrict__ length, const int4* __restrict__ pool,
    int* __restrict__ edge_slot) {
    __shared__ unsigned filters[WARPS][FILTER_WORDS];
    unsigned* filter = filters[threadIdx.x / WARP];
    const int lane = threadIdx.x % WARP;
    const int64 rows = counters[ROWS];
    if (rows == 0) return;
    const auto search = [&](int neighbour, int slot, int first_edge, int last_edge) {
        int low = first_edge, high = last_edge;
        while (low < high) {
            const int middle = (low + high) / 2;
            if (edge_neighbour[middle] < neighbour) low = middle + 1;
            else high = middle;
        }
        if (low < last_edge && edge_neighbour[low] == neighbour) edge_slot[low] = slot;
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
        const int count = length[vertex];
        const int4* quads = pool + start[vertex] / QUAD;
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
        const int count = length[vertex];
        const int4 four = pool[start[vertex] / QUAD + quad];
        const int neighbours[QUAD] = {four.x, four.y, four.z, four.w};
#pragma unroll
        for (int item = 0; item < QUAD; ++item) {
            const int slot = (int)quad * QUAD + item;
            if (slot < count) search(neighbours[item], slot, first_edge, last_edge);
        }
    };
    share_rows(row_work[rows], rows, [&](int64 row) { return row_work[row]; }, whole, one);
}

__global__ void __launch_bounds__(BLOCK) decide(
    const int64* __restrict__ keys, int64 vertices, const uint8* __restrict__ loop, int fixed_loops,
    const int* __restrict__ edge_operation, const int* __restrict__ edge_neighbour, const int* __restrict__ edge_row,
    const int* __restrict__ edge_slot, const int* __restrict__ row_edge, const int* __restrict__ row_vertex,
    uint64* scan, signed char* __restrict__ row_loop, int* __restrict__ row_removed, int* __restrict__ row_added,
    int* __restrict__ removed_row, int* __restrict__ removed_neighbour, int* __restrict__ removed_slot,
    int* __restrict__ added_row, int* __restrict__ added_neighbour, int64* __restrict__ opposite,
    int64* __restrict__ counters) {
    const int64 edges = counters[EDGES];
    const int64 tile = take_tile(scan);
    if (tile * TILE >= edges) return;
    const int64 first = first_item(tile, ITEMS);
    unsigned removed = 0, added = 0;  // a bit an item
    uint64 changes[1][ITEMS];
    int64 inserted = 0, deleted = 0;
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        changes[0][item] = 0;
        if (edge >= edges) continue;
        const int vertex = row_vertex[edge_row[edge]], neighbour = edge_neighbour[edge];
        const bool is_loop = vertex == neighbour;
        if (is_loop && fixed_loops) continue;
        const bool deletes = (keys[edge_operation[edge]] & 1) == 0;
        const bool inserts = (keys[edge_operation[edge + 1] - 1] & 1) == 1;
        const bool present = is_loop ? vertex < vertices && loop[vertex] : edge_slot[edge] >= 0;
        deleted += present && deletes;
        inserted += inserts && (deletes || !present);
        const bool goes = present && deletes && !inserts, comes = inserts && !present;
        removed |= (unsigned)goes << item;
        added |= (unsigned)comes << item;
        changes[0][item] = (uint64)goes | (uint64)comes << HALF;
    }
    sums_before(scan, tile, changes);
#pragma unroll
    for (int item = 0; item < ITEMS; ++item) {
        const int64 edge = first + item * WARP;
        if (edge >= edges) continue;
        const int row = edge_row[edge];
        int out = (int)(changes[0][item] & LOW), in = (int)(changes[0][item] >> HALF);
        if (row_edge[row] == edge) {
            row_removed[row] = out;
            row_added[row] = in;
        }
        if ((removed | added) >> item & 1) {
            const int comes = added >> item & 1;
            const int64 vertex = row_vertex[row], neighbour = edge_neighbour[edge];
            if (vertex == neighbour) row_loop[row] = comes ? 1 : -1;
            else opposite[out + in] = neighbour << 32 | vertex << 1 | comes;
            if (!comes) {
                removed_row[out] = row;
                removed_neighbour[out] = (int)neighbour;
                removed_slot[out] = edge_slot[edge];
                out += 1;
            } else {
                added_row[in] = row;
                added_neighbour[in] = (int)neighbour;
                in += 1;
            }
        }
        if (edge + 1 == edges) {
            row_removed[row + 1] = out;
            row_added[row + 1] = in;
            counters[REMOVED] = out;
            counters[ADDED] = in;
        }
    }
    count(counters + INSERTED, inserted);
    count(counters + DELETED, deleted);
}
